/** The readers below the TDX checks: signed JSON, TCB levels, Intel's certificate extension, certificate profiles. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { linkDefects, profileDefects } from '../../lib/attestation/tdx/chain.ts';
import { distributionPoint } from '../../lib/attestation/tdx/distribution-point.ts';
import { JsonObject } from '../../lib/attestation/tdx/json-object.ts';
import { readPckChain } from '../../lib/attestation/tdx/pck.ts';
import { equalUnderMask, readQeIdentity } from '../../lib/attestation/tdx/qe-identity.ts';
import { readSgxExtension } from '../../lib/attestation/tdx/sgx-extension.ts';
import { readSignedJson } from '../../lib/attestation/tdx/signed-json.ts';
import {
  moduleIdentity,
  platformLevel,
  readTcbInfo,
  svnLevel,
  type TcbInfo,
} from '../../lib/attestation/tdx/tcb-info.ts';
import type { Certificate } from '../../lib/attestation/x509/certificate.ts';
import { boolean, element, enumerated, integer, octetString, sequence } from '../../simulator/pki/der.ts';
import { crlDistributionPoint, type EncodedExtension } from '../../simulator/pki/extensions.ts';
import { encodeSgx, ROOT_CRL_URL, SGX_PARTS, type SgxParts } from '../support/tdx-authorities.ts';
import { platformLevelJson, tdxPlatform } from '../support/tdx-platform.ts';

const UNUSABLE = { name: 'PrivatemodeError', code: 'collateral_unavailable' };
const MALFORMED = { name: 'PrivatemodeError', code: 'evidence_malformed' };
const SIGNATURE = 'ab'.repeat(64);

describe('signed JSON of Intel', () => {
  const texts: readonly (readonly [name: string, value: string])[] = [
    ['as Intel writes it', '{"id":"TDX","version":3}'],
    ['with white space inside', '{ "id" :\t"TDX",\n"version" : 3 }'],
    [
      'with the structure of JSON inside strings',
      String.raw`{"a":"},\"signature\":\"}","b":["{","]",{"c":"\\"}]}`,
    ],
    ['with escapes and other alphabets', String.raw`{"ü":"\u00fc","n":1e2}`],
    ['with the name of the member inside', '{"tcbInfo":{"tcbInfo":1}}'],
  ];
  for (const [name, value] of texts) {
    it(`gives the exact bytes of the value ${name}`, () => {
      for (const body of [
        `{"tcbInfo":${value},"signature":"${SIGNATURE}"}`,
        `{"signature":"${SIGNATURE}","tcbInfo":${value}}`,
        ` {\n "tcbInfo" : ${value} ,\r\n "later": [1,{"x":"y"}], "signature":"${SIGNATURE.toUpperCase()}"\t}\n`,
      ]) {
        const { signed, signature } = readSignedJson(body, 'tcbInfo');
        assert.equal(Buffer.from(signed).toString('utf8'), value);
        assert.equal(Buffer.from(signature).toString('hex'), SIGNATURE);
      }
    });
  }

  const refused: readonly (readonly [name: string, body: string])[] = [
    ['nothing', ''],
    ['a page of HTML', '<html>portal</html>'],
    ['a list', `[{"tcbInfo":{},"signature":"${SIGNATURE}"}]`],
    ['null', 'null'],
    ['no value', `{"signature":"${SIGNATURE}"}`],
    ['a value of another name', `{"enclaveIdentity":{},"signature":"${SIGNATURE}"}`],
    ['a value that is no object', `{"tcbInfo":[],"signature":"${SIGNATURE}"}`],
    ['a value inside another member only', `{"x":{"tcbInfo":{}},"signature":"${SIGNATURE}"}`],
    ['the value twice', `{"tcbInfo":{},"tcbInfo":{},"signature":"${SIGNATURE}"}`],
    [
      'the value twice, once escaped',
      String.raw`{"tcbInfo":{},"tcb\u0049nfo":{},"signature":"${SIGNATURE}"}`,
    ],
    ['the signature twice', `{"tcbInfo":{},"signature":"${SIGNATURE}","signature":"${SIGNATURE}"}`],
    ['no signature', '{"tcbInfo":{}}'],
    ['a signature of 63 bytes', `{"tcbInfo":{},"signature":"${SIGNATURE.slice(2)}"}`],
    ['a signature of 65 bytes', `{"tcbInfo":{},"signature":"${SIGNATURE}00"}`],
    ['a signature that is not hex', `{"tcbInfo":{},"signature":"${'zz'.repeat(64)}"}`],
    ['a text after the object', `{"tcbInfo":{},"signature":"${SIGNATURE}"}x`],
    [
      'what is nested too deeply',
      `{"tcbInfo":{"x":${'['.repeat(20)}${']'.repeat(20)}},"signature":"${SIGNATURE}"}`,
    ],
    ['an unterminated string', '{"tcbInfo":{},"signature":"'],
    ['closing brackets only', '}}]]'],
    ['a megabyte', `{"tcbInfo":{"x":"${' '.repeat(1 << 20)}"},"signature":"${SIGNATURE}"}`],
  ];
  for (const [name, body] of refused) {
    it(`refuses ${name}`, () => assert.throws(() => readSignedJson(body, 'tcbInfo'), UNUSABLE));
  }
});

const members = (value: object): JsonObject => new JsonObject(value as Record<string, unknown>, 'x');

describe('members of Intel’s JSON', () => {
  it('are read with their type, length and range', () => {
    const object = members({ s: 'a', n: 3, h: 'A0b1', d: '2026-11-01T00:00:00Z', l: [{}] });
    assert.equal(object.string('s'), 'a');
    assert.equal(object.integer('n', 3), 3);
    assert.deepEqual(object.hex('h', 2), Uint8Array.of(0xa0, 0xb1));
    assert.equal(object.date('d').getTime(), Date.UTC(2026, 10, 1));
    assert.equal(object.list('l', 1).length, 1);
    assert.equal(object.has('toString'), false);
  });

  const refusals: readonly (readonly [string, unknown, (object: JsonObject) => unknown])[] = [
    ['a missing string', undefined, (o) => o.string('m')],
    ['a number for a string', 3, (o) => o.string('m')],
    ['an inherited member', undefined, (o) => o.string('constructor')],
    ['a fraction', 2.5, (o) => o.integer('m', 9)],
    ['a negative number', -1, (o) => o.integer('m', 9)],
    ['a number above its range', 10, (o) => o.integer('m', 9)],
    ['a number as text', '3', (o) => o.integer('m', 9)],
    ['hex of another length', 'abcd', (o) => o.hex('m', 3)],
    ['hex with a stray letter', 'abcg', (o) => o.hex('m', 2)],
    ['a date without time', '2026-11-01', (o) => o.date('m')],
    ['a date in another zone', '2026-11-01T00:00:00+01:00', (o) => o.date('m')],
    ['a date that does not exist', '2026-02-30T00:00:00Z', (o) => o.date('m')],
    ['a date as a number', 0, (o) => o.date('m')],
    ['an object for a list', {}, (o) => o.list('m')],
    ['a list of another length', [{}], (o) => o.list('m', 2)],
    ['a list of numbers', [1], (o) => o.list('m')],
    ['a list for an object', [], (o) => o.object('m')],
    ['null for an object', null, (o) => o.object('m')],
  ];
  for (const [name, value, read] of refusals) {
    it(`refuse ${name}`, () => assert.throws(() => read(members({ m: value })), UNUSABLE));
  }
});

const info = async (): Promise<Record<string, unknown>> => {
  const { body } = await tdxPlatform().context.collateral.intelTcbInfo({ fmspc: '' });
  return JSON.parse(body).tcbInfo;
};

describe('TCB info', () => {
  const without = [
    'id',
    'version',
    'issueDate',
    'nextUpdate',
    'fmspc',
    'pceId',
    'tcbType',
    'tcbEvaluationDataNumber',
    'tdxModule',
    'tcbLevels',
  ];
  for (const name of without) {
    it(`is refused without ${name}`, async () => {
      const { [name]: _, ...rest } = await info();
      assert.throws(() => readTcbInfo(members(rest)), UNUSABLE);
    });
  }

  it('is refused with a level of 15 components or a component above 255', async () => {
    const whole = await info();
    for (const sgx of [Array(15).fill(0), [...Array(15).fill(0), 256]]) {
      const tcbLevels = [platformLevelJson('UpToDate', sgx)];
      assert.throws(() => readTcbInfo(members({ ...whole, tcbLevels })), UNUSABLE);
    }
  });

  const sixteen = (...first: number[]): number[] => Array.from({ length: 16 }, (_, i) => first[i] ?? 0);
  const platform = { componentSvns: sixteen(3, 3), pceSvn: 13, teeTcbSvn: Uint8Array.from(sixteen(7, 1, 3)) };
  const levelsOf = async (...tcbLevels: readonly object[]): Promise<TcbInfo> =>
    readTcbInfo(members({ ...(await info()), tcbLevels }));

  it('gives the first level that is reached in every component', async () => {
    const levels = await levelsOf(
      platformLevelJson('first', sixteen(3, 4)),
      platformLevelJson('second', sixteen(3, 3), 14),
      platformLevelJson('third', sixteen(3, 3), 13, sixteen(0, 0, 4)),
      platformLevelJson('fourth', [...sixteen().slice(1), 1]),
      platformLevelJson('fifth', sixteen(), 0, [...sixteen().slice(1), 1]),
      platformLevelJson('sixth', sixteen(3, 3), 13, sixteen(255, 255, 3)),
      platformLevelJson('seventh', sixteen(), 0, sixteen()),
    );
    assert.equal(platformLevel(levels, platform)?.status, 'sixth');
  });

  it('counts the first two TDX components for module version 0 only', async () => {
    const levels = await levelsOf(platformLevelJson('high', sixteen(), 0, sixteen(8)));
    assert.equal(platformLevel(levels, platform)?.status, 'high');
    const teeTcbSvn = Uint8Array.from(sixteen(7, 0, 3));
    assert.equal(platformLevel(levels, { ...platform, teeTcbSvn }), undefined);
  });

  it('names module identities by two lower-case hex digits', async () => {
    const whole = await info();
    const [identity] = whole['tdxModuleIdentities'] as object[];
    const named = (id: string): TcbInfo =>
      readTcbInfo(members({ ...whole, tdxModuleIdentities: [{ ...identity, id }] }));
    const version = (number: number): Uint8Array => Uint8Array.from(sixteen(7, number));
    assert.equal(moduleIdentity(named('TDX_0a'), version(10))?.id, 'TDX_0a');
    assert.equal(moduleIdentity(named('TDX_10'), version(10)), undefined);
    assert.equal(moduleIdentity(named('TDX_1'), version(1)), undefined);
  });

  it('takes the first security version that is reached', () => {
    const levels = [
      { isvSvn: 7, status: 'a' },
      { isvSvn: 3, status: 'b' },
    ];
    assert.deepEqual(
      [8, 7, 6, 3, 2].map((svn) => svnLevel(levels, svn)?.status),
      ['a', 'a', 'b', 'b', undefined],
    );
  });
});

describe('QE identity', () => {
  const identity = async (): Promise<Record<string, unknown>> => {
    const { body } = await tdxPlatform().context.collateral.intelQeIdentity({});
    return JSON.parse(body).enclaveIdentity;
  };
  it('is refused without any one of its members', async () => {
    const whole = await identity();
    assert.equal(readQeIdentity(members(whole)).isvProdId, 2);
    for (const name of Object.keys(whole)) {
      const { [name]: _, ...rest } = whole;
      assert.throws(() => readQeIdentity(members(rest)), UNUSABLE, name);
    }
  });

  it('compares under a mask, and only equal lengths', () => {
    const bytes = (...list: number[]): Uint8Array => Uint8Array.from(list);
    assert.ok(equalUnderMask(bytes(0x15, 0xff), bytes(0xfb, 0), bytes(0x11, 0)));
    assert.ok(!equalUnderMask(bytes(0x17, 0xff), bytes(0xfb, 0), bytes(0x11, 0)));
    // A wanted bit outside the mask can never be met.
    assert.ok(!equalUnderMask(bytes(0x15), bytes(0x11), bytes(0x15)));
    assert.ok(!equalUnderMask(bytes(0x15), bytes(0xfb, 0), bytes(0x11)));
    assert.ok(!equalUnderMask(bytes(0x11), bytes(0xfb), bytes(0x11, 0)));
  });
});

describe('Intel’s extension of a PCK certificate', () => {
  const read = (change: Partial<SgxParts>) => readSgxExtension(encodeSgx({ ...SGX_PARTS, ...change }));

  it('is read into platform, versions and configuration', () => {
    const { fmspc, sgxType, piid, pceSvn, componentSvns, dynamicPlatform, smtEnabled } = read({});
    assert.equal(Buffer.from(fmspc).toString('hex'), 'a0b1c2d3e4f5');
    assert.deepEqual([sgxType, piid[0], pceSvn, componentSvns[7]], [2, 0x11, 13, 5]);
    assert.deepEqual([dynamicPlatform, smtEnabled], [false, false]);
  });

  it('leaves configuration that is not stated open', () => {
    const { dynamicPlatform, smtEnabled } = read({ configuration: [] });
    assert.deepEqual([dynamicPlatform, smtEnabled], [undefined, undefined]);
  });

  type List = readonly (readonly [string, Uint8Array])[];
  const set = (list: List, suffix: string, value: Uint8Array): List =>
    list.map(([name, old]) => [name, name === suffix ? value : old] as const);
  const { parts, tcb, configuration } = SGX_PARTS;
  const refused: readonly (readonly [string, Partial<SgxParts>])[] = [
    ...parts.map(
      ([missing]) => [`no part ${missing}`, { parts: parts.filter(([name]) => name !== missing) }] as const,
    ),
    ...tcb.map(
      ([missing]) => [`no part ${missing}`, { tcb: tcb.filter(([name]) => name !== missing) }] as const,
    ),
    ['an unknown part', { parts: [...parts, ['8', integer(1)]] }],
    ['an unknown TCB component', { tcb: [...tcb, ['2.19', integer(1)]] }],
    ['an unknown configuration', { configuration: [...configuration, ['7.4', boolean(true)]] }],
    ['a part twice', { parts: [...parts, parts[0] as List[number]] }],
    ['a configuration twice', { configuration: [...configuration, ['7.3', boolean(false)]] }],
    ['a PPID of 15 bytes', { parts: set(parts, '1', octetString(new Uint8Array(15))) }],
    ['a PCE-ID of 3 bytes', { parts: set(parts, '3', octetString(new Uint8Array(3))) }],
    ['an FMSPC of 5 bytes', { parts: set(parts, '4', octetString(new Uint8Array(5))) }],
    ['an SGX type that does not exist', { parts: set(parts, '5', enumerated(3)) }],
    ['an SGX type as INTEGER', { parts: set(parts, '5', integer(2)) }],
    ['a PIID of 17 bytes', { parts: set(parts, '6', octetString(new Uint8Array(17))) }],
    ['a component above 255', { tcb: set(tcb, '2.1', integer(256)) }],
    ['a PCESVN above 16 bits', { tcb: set(tcb, '2.17', integer(65536)) }],
    ['a CPUSVN of 15 bytes', { tcb: set(tcb, '2.18', octetString(new Uint8Array(15))) }],
    ['a flag that is a number', { configuration: set(configuration, '7.1', integer(0)) }],
  ];
  for (const [name, change] of refused) {
    it(`is refused with ${name}`, () => assert.throws(() => read(change), MALFORMED));
  }
});

const { quote } = tdxPlatform();
const chain = readPckChain(
  quote.signedData.certificationData.qeReportCertificationData.pckCertificateChainData.pckCertChain,
);

describe('certificate profile', () => {
  const { leaf, intermediate, root } = chain;
  const NAME = 'Intel SGX PCK Certificate';

  const altered: readonly (readonly [string, Certificate])[] = [
    ['another X.509 version', { ...leaf, version: 1 }],
    [
      'another signature algorithm',
      { ...leaf, signatureAlgorithm: { ...leaf.signatureAlgorithm, name: 'ecdsa-with-SHA384' } },
    ],
    ['a key on another curve', { ...leaf, publicKey: { ...leaf.publicKey, curve: 'P-384' } }],
    ['a key that is not elliptic', { ...leaf, publicKey: { ...leaf.publicKey, curve: undefined } }],
    [
      'two common names',
      {
        ...leaf,
        subject: { ...leaf.subject, attributes: [...leaf.subject.attributes, { type: 'CN', value: NAME }] },
      },
    ],
  ];
  it('is held by the certificates of the platform', () => assert.deepEqual(profileDefects(leaf, NAME), []));
  for (const [name, certificate] of altered) {
    it(`refuses ${name}`, () => assert.equal(profileDefects(certificate, NAME).length, 1));
  }

  it('lets a CA stand above as many others as its path length says', () => {
    assert.deepEqual(linkDefects(intermediate, root, 1), []);
    assert.equal(linkDefects(intermediate, root, 2).length, 1);
    assert.equal(linkDefects(leaf, intermediate, 1).length, 1);
  });
});

describe('CRL distribution point', () => {
  const at = (...extensions: readonly EncodedExtension[]): string =>
    distributionPoint({ ...chain.root, extensions });
  const uri = element(0x86, Buffer.from('https://example.test/'));
  const point = (...names: readonly Uint8Array[]): Uint8Array =>
    sequence(element(0xa0, element(0xa0, ...names)));
  const extension = (...points: readonly Uint8Array[]): EncodedExtension => ({
    oid: '2.5.29.31',
    critical: false,
    value: sequence(...points),
  });

  it('is the one URI', () => {
    assert.equal(at(crlDistributionPoint(ROOT_CRL_URL)), ROOT_CRL_URL);
    assert.equal(at(extension(point(uri))), 'https://example.test/');
  });

  const refused: readonly (readonly [string, readonly EncodedExtension[]])[] = [
    ['none', []],
    ['no point', [extension()]],
    ['two points', [extension(point(uri), point(uri))]],
    ['two URIs', [extension(point(uri, uri))]],
    ['no URI', [extension(point())]],
    ['a name of another kind', [extension(point(element(0x82, Buffer.from('example.test'))))]],
    [
      'a point with reasons',
      [extension(sequence(element(0xa0, element(0xa0, uri)), element(0x81, Uint8Array.of(7, 0x80))))],
    ],
  ];
  for (const [name, extensions] of refused) {
    it(`is refused where there is ${name}`, () => assert.throws(() => at(...extensions), MALFORMED));
  }
});
