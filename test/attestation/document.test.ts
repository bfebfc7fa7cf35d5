import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import {
  type AttestationDocument,
  parseDocument,
  reportData,
  transitionDigest,
} from '../../lib/attestation/document.ts';
import { malformed } from '../support/evidence/readers.ts';
import { toHex } from '../support/evidence/wycheproof.ts';

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

  it('may have 1 MiB, eight levels of nesting and 10,000 values, and no more', () => {
    const padded = (length: number): Uint8Array => Buffer.from(JSON.stringify(GOOD).padEnd(length));
    assert.doesNotThrow(() => parseDocument(padded(1_048_576)));
    assert.throws(() => parseDocument(padded(1_048_577)), { message: /larger than 1 MiB/ });
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

  it('may have 256 manifests and policies, 32 arcs in attestation_type, and no more', () => {
    for (const [name, item, most] of [
      ['manifests', 'bQ==', 256],
      ['policies', 'cDE=', 256],
      ['attestation_type', 1, 32],
    ] as const) {
      const of = (count: number) => parse({ ...GOOD, [name]: new Array(count).fill(item) });
      assert.doesNotThrow(() => of(most));
      assert.throws(() => of(most + 1), malformed, name);
    }
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

  it('are refused if they are not UTF-8', () => {
    const bytes = Buffer.from(JSON.stringify({ ...GOOD, version: '\xff' }), 'latin1');
    assert.throws(() => parseDocument(bytes), malformed);
  });

  const refused: readonly (readonly [string, Readonly<Record<string, unknown>> | string])[] = [
    ['without evidence', without('raw_attestation_doc')],
    ['without mesh CA', without('mesh_ca')],
    ['with an empty mesh CA', { ...GOOD, mesh_ca: '' }],
    ['with a manifest that is no string', { ...GOOD, manifests: [null] }],
    ['with base64 without padding', { ...GOOD, root_ca: 'cm9vdA' }],
    ['with base64 whose unused bits are set', { ...GOOD, root_ca: 'cm9vdB==' }],
    ['with a type that is a string', { ...GOOD, attestation_type: '1.3.9901.2.1' }],
    ['with an empty type', { ...GOOD, attestation_type: [] }],
    ['with a member in another case', { ...GOOD, Mesh_CA: 'bWVzaA==' }],
    ['with a member name that only Unicode case folding makes equal', { ...GOOD, ver\u017fion: 'v1' }],
    ['with a repeated member', `{"mesh_ca":"YQ==",${JSON.stringify(GOOD).slice(1)}`],
    ['followed by another value', `${JSON.stringify(GOOD)}{}`],
    ['if they are an error of the coordinator', { version: 'v1', error: 'no manifest' }],
  ];
  for (const [what, bad] of refused) {
    const bytes = Buffer.from(typeof bad === 'string' ? bad : JSON.stringify(bad));
    it(`are refused ${what}`, () => assert.throws(() => parseDocument(bytes), malformed));
  }
});

const ascii = (text: string): Uint8Array => Buffer.from(text, 'latin1');
const range = (first: number): Uint8Array => Uint8Array.from({ length: 32 }, (_, index) => first + index);
const ZEROS = '00'.repeat(32);

describe('transitionDigest', () => {
  it('chains manifests oldest first (docs/protocol/attestation.md 17)', () => {
    assert.equal(toHex(transitionDigest([])), ZEROS);
    assert.equal(
      toHex(transitionDigest([ascii('manifest1')])),
      '9eb1578ea616a1f083f558f8e66d531b3d4611f49eb7eb8947024216a9901baf',
    );
    assert.equal(
      toHex(transitionDigest([ascii('manifest1'), ascii('manifest2')])),
      '5a61bb484dead0b420e4a7c58d6ea4acde3c3a64780060b7a0b518aacbf29cf7',
    );
  });
});

describe('reportData', () => {
  const input = {
    nonce: range(0),
    transition: range(0xa0),
    rootCa: ascii('root-ca'),
    meshCa: ascii('mesh-ca'),
  };

  it('binds nonce, history and both CAs (docs/protocol/attestation.md 17)', () => {
    const expected = `ec25193fbfa21fb46964de80adca8e7d70222ad41e67c77a696e2f188c02a0f2${ZEROS}`;
    assert.equal(toHex(reportData(input)), expected);
  });

  it('refuses a nonce or transition digest of another length, since they are hashed without separators', () => {
    assert.throws(() => reportData({ ...input, nonce: new Uint8Array(31) }), malformed);
    assert.throws(() => reportData({ ...input, transition: new Uint8Array(33) }), malformed);
  });
});
