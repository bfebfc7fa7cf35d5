import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { type AttestationDocument, parseDocument } from '../../lib/attestation/document.ts';
import { PrivatemodeError } from '../../lib/errors.ts';
import { SYNTHETIC_SETS, vectorBytes } from '../support/evidence/attestation-vectors.ts';

const malformed = (error: unknown): boolean =>
  error instanceof PrivatemodeError && error.code === 'evidence_malformed';

const GOOD = {
  version: 'v1.24.1',
  raw_attestation_doc: 'AAEC',
  attestation_type: [1, 3, 9901, 2, 1],
  manifests: ['bQ=='],
  policies: ['cDE=', 'cDI='],
  root_ca: 'cm9vdA==',
  mesh_ca: 'bWVzaA==',
};
const parse = (members: Readonly<Record<string, unknown>>): AttestationDocument =>
  parseDocument(Buffer.from(JSON.stringify(members)));
const without = (key: keyof typeof GOOD): Record<string, unknown> =>
  Object.fromEntries(Object.entries(GOOD).filter(([name]) => name !== key));

describe('attestation documents', () => {
  it('of the test vectors yield the bytes of their parts', () => {
    for (const set of SYNTHETIC_SETS) {
      const document = parseDocument(vectorBytes(`${set}/coordinator_response.json`));
      assert.deepEqual(new Uint8Array(document.rawAttestation), vectorBytes(`${set}/attestation.pb`));
      assert.deepEqual(
        new Uint8Array(document.manifests[0] as Uint8Array),
        vectorBytes(`${set}/manifest.json`),
      );
      assert.deepEqual(new Uint8Array(document.rootCa), vectorBytes(`${set}/root_ca.pem`));
      assert.deepEqual(new Uint8Array(document.meshCa), vectorBytes(`${set}/mesh_ca.pem`));
      assert.equal(document.policies.length, 3);
    }
  });

  it('yield their version, attestation type, policies and mesh CA', () => {
    const document = parse(GOOD);
    assert.equal(document.version, 'v1.24.1');
    assert.equal(document.attestationType, '1.3.9901.2.1');
    assert.deepEqual(
      document.policies.map((bytes) => Buffer.from(bytes).toString()),
      ['p1', 'p2'],
    );
    assert.equal(Buffer.from(document.meshCa).toString(), 'mesh');
  });

  it('may lack version and type, have null for an empty list, unknown members, and a newline at the end', () => {
    assert.equal(parse(without('attestation_type')).attestationType, undefined);
    assert.equal(parse({ ...GOOD, attestation_type: null }).attestationType, undefined);
    assert.equal(parse(without('version')).version, undefined);
    assert.equal(parse({ ...GOOD, version: 7 }).version, undefined);
    assert.deepEqual(parse({ ...GOOD, manifests: null, policies: null }).manifests, []);
    assert.doesNotThrow(() => parse({ ...GOOD, something_new: { a: 1 } }));
    assert.doesNotThrow(() => parseDocument(Buffer.from(`${JSON.stringify(GOOD)}\n`)));
  });

  it('may have 256 policies, and 32 arcs in attestation_type', () => {
    assert.equal(parse({ ...GOOD, policies: new Array(256).fill('cDE=') }).policies.length, 256);
    const type = parse({ ...GOOD, attestation_type: new Array(32).fill(1) }).attestationType;
    assert.equal(type, new Array(32).fill(1).join('.'));
  });

  it('may have 16 MiB, eight levels of nesting and 10,000 values, and no more', () => {
    const padded = (length: number): Uint8Array => Buffer.from(JSON.stringify(GOOD).padEnd(length));
    assert.doesNotThrow(() => parseDocument(padded(16_777_216)));
    assert.throws(() => parseDocument(padded(16_777_217)), { message: /larger than 16 MiB/ });
    const nested = (depth: number): unknown => (depth === 0 ? 1 : [nested(depth - 1)]);
    assert.doesNotThrow(() => parse({ ...GOOD, more: nested(7) }));
    assert.throws(() => parse({ ...GOOD, more: nested(8) }), { message: /nested too deeply/ });
    // One for the document, seven members, eight items of their lists, and one for this list.
    const others = 17;
    assert.doesNotThrow(() => parse({ ...GOOD, more: new Array(10_000 - others).fill(1) }));
    assert.throws(() => parse({ ...GOOD, more: new Array(10_001 - others).fill(1) }), {
      message: /too many values/,
    });
  });

  it('may have 256 manifests, and no more', () => {
    assert.equal(parse({ ...GOOD, manifests: new Array(256).fill('bQ==') }).manifests.length, 256);
    assert.throws(() => parse({ ...GOOD, manifests: new Array(257).fill('bQ==') }), malformed);
  });

  it('may have only arcs of one to ten digits in attestation_type', () => {
    const typed = (...arcs: readonly unknown[]) => {
      const text = JSON.stringify({ ...GOOD, attestation_type: 'ARCS' }).replace('"ARCS"', `[${arcs}]`);
      return parseDocument(Buffer.from(text)).attestationType;
    };
    assert.equal(typed('0', '9999999999'), '0.9999999999');
    for (const arc of ['10000000000', '1e1', '1.0', '-0', '"1"', 'null']) {
      assert.throws(() => typed('1', arc), malformed, arc);
      assert.throws(() => typed(arc, '1'), malformed, arc);
    }
  });

  const refused: readonly (readonly [string, () => unknown])[] = [
    ['without evidence', () => parse(without('raw_attestation_doc'))],
    ['without root CA', () => parse(without('root_ca'))],
    ['without mesh CA', () => parse(without('mesh_ca'))],
    ['with an empty mesh CA', () => parse({ ...GOOD, mesh_ca: '' })],
    ['with evidence that is no string', () => parse({ ...GOOD, raw_attestation_doc: 7 })],
    ['with manifests that are no list', () => parse({ ...GOOD, manifests: 'bQ==' })],
    ['with a manifest that is no string', () => parse({ ...GOOD, manifests: [null] })],
    ['with base64 without padding', () => parse({ ...GOOD, root_ca: 'cm9vdA' })],
    ['with base64url', () => parse({ ...GOOD, root_ca: '-_-_' })],
    ['with a line break in base64', () => parse({ ...GOOD, root_ca: 'cm9v\ndA==' })],
    ['with base64 whose unused bits are set', () => parse({ ...GOOD, root_ca: 'cm9vdB==' })],
    ['with a type that is a string', () => parse({ ...GOOD, attestation_type: '1.3.9901.2.1' })],
    ['with a type of fractions', () => parse({ ...GOOD, attestation_type: [1, 3.5] })],
    ['with a negative arc', () => parse({ ...GOOD, attestation_type: [1, -3] })],
    ['with an empty type', () => parse({ ...GOOD, attestation_type: [] })],
    ['with a type of 33 arcs', () => parse({ ...GOOD, attestation_type: new Array(33).fill(1) })],
    ['with a member in another case', () => parse({ ...GOOD, Mesh_CA: 'bWVzaA==' })],
    [
      'with a member name that only Unicode case folding makes equal',
      () => parse({ ...GOOD, ['ver\u017fion']: 'v1' }),
    ],
    ['with too many policies', () => parse({ ...GOOD, policies: new Array(257).fill('cDE=') })],
    [
      'with a repeated member',
      () => parseDocument(Buffer.from(`{"mesh_ca":"YQ==",${JSON.stringify(GOOD).slice(1)}`)),
    ],
    ['followed by another value', () => parseDocument(Buffer.from(`${JSON.stringify(GOOD)}{}`))],
    ['if they are a list', () => parseDocument(Buffer.from('[]'))],
    ['if they are an error of the coordinator', () => parse({ version: 'v1', error: 'no manifest' })],
    ['if they are not UTF-8', () => parseDocument(Buffer.from('ff', 'hex'))],
    ['with more than 16 MiB', () => parseDocument(new Uint8Array(16 * 1024 * 1024 + 1))],
  ];
  for (const [what, read] of refused) it(`are refused ${what}`, () => assert.throws(read, malformed));
});
