import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { DATE, hex, integer, type JsonMembers, TEXT } from '../../../lib/attestation/json-members.ts';
import { underMask } from '../../../lib/attestation/tdx/tcb-checks.ts';
import {
  platformLevel,
  readQeIdentity,
  readSignedJson,
  readTcbInfo,
  svnLevel,
  type TcbInfo,
} from '../../../lib/attestation/tdx/tcb-info.ts';
import { platformLevelJson, tdxPlatform } from '../../support/evidence/tdx-platform.ts';

const UNUSABLE = { name: 'PrivatemodeError', code: 'collateral_unavailable' };
const SIGNATURE = 'ab'.repeat(64);
const members = (value: object): JsonMembers =>
  readSignedJson(`{"x":${JSON.stringify(value)},"signature":"${SIGNATURE}"}`, 'x').content;

describe('signed JSON of Intel', () => {
  const texts: readonly (readonly [name: string, value: string])[] = [
    ['as Intel writes it', '{"id":"TDX","version":3}'],
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

  const signature = `"signature":"${SIGNATURE}"`;
  const refused: readonly (readonly [name: string, body: string])[] = [
    ['a list', `[{"tcbInfo":{},${signature}}]`],
    ['no value', `{${signature}}`],
    ['a value of another name', `{"enclaveIdentity":{},${signature}}`],
    ['a value that is no object', `{"tcbInfo":[],${signature}}`],
    ['a value inside another member only', `{"x":{"tcbInfo":{}},${signature}}`],
    ['the value twice', `{"tcbInfo":{},"tcbInfo":{},${signature}}`],
    ['the value twice, once escaped', String.raw`{"tcbInfo":{},"tcb\u0049nfo":{},${signature}}`],
    ['the signature twice', `{"tcbInfo":{},${signature},${signature}}`],
    ['no signature', '{"tcbInfo":{}}'],
    ['a signature of 63 bytes', `{"tcbInfo":{},"signature":"${SIGNATURE.slice(2)}"}`],
    ['a signature of 65 bytes', `{"tcbInfo":{},"signature":"${SIGNATURE}00"}`],
    ['a signature that is not hex', `{"tcbInfo":{},"signature":"${'zz'.repeat(64)}"}`],
  ];
  for (const [name, body] of refused)
    it(`refuses ${name}`, () => assert.throws(() => readSignedJson(body, 'tcbInfo'), UNUSABLE));
});

describe('the limits of signed JSON', () => {
  const ending = `,"signature":"${SIGNATURE}"}`;

  it('allow 64 Ki characters, and no more', () => {
    const padded = (length: number): string => {
      const start = '{"tcbInfo":{"x":"';
      return `${start}${' '.repeat(length - start.length - 2 - ending.length)}"}${ending}`;
    };
    assert.equal(readSignedJson(padded(65_536), 'tcbInfo').signature.length, 64);
    assert.throws(() => readSignedJson(padded(65_537), 'tcbInfo'), { ...UNUSABLE, message: /too large/ });
  });

  it('allow 16 levels of nesting, and no more', () => {
    const nested = (depth: number): string =>
      `{"tcbInfo":{"x":${'['.repeat(depth - 2)}${']'.repeat(depth - 2)}}${ending}`;
    assert.equal(readSignedJson(nested(16), 'tcbInfo').signature.length, 64);
    assert.throws(() => readSignedJson(nested(17), 'tcbInfo'), { ...UNUSABLE, message: /nested too deeply/ });
  });
});

describe('members of Intel’s JSON', () => {
  it('are read with their type, length and range', () => {
    const object = members({ s: 'a', n: 3, h: 'A0b1', d: '2026-11-01T00:00:00Z', l: [{}] });
    assert.equal(object.get('s', TEXT), 'a');
    assert.equal(object.get('n', integer(3)), 3);
    assert.deepEqual(object.get('h', hex(2)), Uint8Array.of(0xa0, 0xb1));
    assert.equal(object.get('d', DATE).getTime(), Date.UTC(2026, 10, 1));
    assert.equal(object.objects('l').length, 1);
    assert.equal(object.members.has('toString'), false);
  });

  const refusals: readonly (readonly [string, unknown, (object: JsonMembers) => unknown])[] = [
    ['a missing string', undefined, (o) => o.get('m', TEXT)],
    ['an inherited member', undefined, (o) => o.get('constructor', TEXT)],
    ['a fraction', 2.5, (o) => o.get('m', integer(9))],
    ['a number above its range', 10, (o) => o.get('m', integer(9))],
    ['hex of another length', 'abcd', (o) => o.get('m', hex(3))],
    ['hex with a stray letter', 'abcg', (o) => o.get('m', hex(2))],
    ['a date without time', '2026-11-01', (o) => o.get('m', DATE)],
    ['a date in another zone', '2026-11-01T00:00:00+01:00', (o) => o.get('m', DATE)],
    ['a date that does not exist', '2026-02-30T00:00:00Z', (o) => o.get('m', DATE)],
    ['an object for a list', {}, (o) => o.objects('m')],
    ['a list of numbers', [1], (o) => o.objects('m')],
    ['a list for an object', [], (o) => o.object('m')],
  ];
  for (const [name, value, read] of refusals) {
    it(`are refused with ${name}`, () => assert.throws(() => read(members({ m: value })), UNUSABLE));
  }
});

const info = async (): Promise<Record<string, unknown>> => {
  const { body } = await tdxPlatform().context.collateral.intelTcbInfo({ fmspc: '' });
  return JSON.parse(body).tcbInfo;
};

describe('TCB info', () => {
  it('is refused without any one of its members but the module identities', async () => {
    const { tdxModuleIdentities: _, ...whole } = await info();
    assert.deepEqual(readTcbInfo(members(whole)).moduleIdentities, []);
    for (const name of Object.keys(whole)) {
      const { [name]: _, ...rest } = whole;
      assert.throws(() => readTcbInfo(members(rest)), UNUSABLE, name);
    }
  });

  it('is refused with a level of 15 components or a component above 255', async () => {
    const whole = await info();
    for (const sgx of [Array(15).fill(0), [...Array(15).fill(0), 256]]) {
      const tcbLevels = [platformLevelJson('UpToDate', sgx)];
      assert.throws(() => readTcbInfo(members({ ...whole, tcbLevels })), UNUSABLE);
    }
  });

  const sixteen = (...first: number[]): number[] => Array.from({ length: 16 }, (_, i) => first[i] ?? 0);
  const platform = { componentSvns: sixteen(3, 3), pceSvn: 13 };
  const teeTcbSvn = Uint8Array.from(sixteen(7, 1, 3));
  const levelsOf = async (...tcbLevels: readonly object[]): Promise<TcbInfo> =>
    readTcbInfo(members({ ...(await info()), tcbLevels }));

  it('gives the first level that a platform reaches in every component', async () => {
    const levels = await levelsOf(
      platformLevelJson('first', sixteen(3, 4)),
      platformLevelJson('second', sixteen(3, 3), 14),
      platformLevelJson('third', sixteen(3, 3), 13, sixteen(0, 0, 4)),
      platformLevelJson('fourth', [...sixteen().slice(1), 1]),
      platformLevelJson('fifth', sixteen(), 0, [...sixteen().slice(1), 1]),
      platformLevelJson('sixth', sixteen(3, 3), 13, sixteen(255, 255, 3)),
      platformLevelJson('seventh', sixteen(), 0, sixteen()),
    );
    assert.equal(platformLevel(levels, platform, teeTcbSvn)?.status, 'sixth');
  });

  it('compares the first two TDX components only for module version 0', async () => {
    const levels = await levelsOf(platformLevelJson('high', sixteen(), 0, sixteen(8)));
    assert.equal(platformLevel(levels, platform, teeTcbSvn)?.status, 'high');
    assert.equal(platformLevel(levels, platform, Uint8Array.from(sixteen(7, 0, 3))), undefined);
  });

  it('gives the first level whose security version is reached', () => {
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

  it('is compared under a mask, and only with values of the same length', () => {
    const bytes = (...list: number[]): Uint8Array => Uint8Array.from(list);
    const holds = (value: Uint8Array, attributesMask: Uint8Array, attributes: Uint8Array) =>
      underMask(value, { attributes, attributesMask }).outcome === 'pass';
    assert.ok(holds(bytes(0x15, 0xff), bytes(0xfb, 0), bytes(0x11, 0)));
    assert.ok(!holds(bytes(0x17, 0xff), bytes(0xfb, 0), bytes(0x11, 0)));
    // A wanted bit outside the mask can never be met.
    assert.ok(!holds(bytes(0x15), bytes(0x11), bytes(0x15)));
    assert.ok(!holds(bytes(0x15), bytes(0xfb, 0), bytes(0x11)));
    assert.ok(!holds(bytes(0x11), bytes(0xfb), bytes(0x11, 0)));
  });
});
