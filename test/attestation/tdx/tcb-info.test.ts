import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { JsonMembers } from '../../../lib/attestation/json-members.ts';
import { underMask } from '../../../lib/attestation/tdx/collateral-checks.ts';
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
const members = (value: object): JsonMembers =>
  readSignedJson(`{"x":${JSON.stringify(value)},"signature":"${'00'.repeat(64)}"}`, 'x').content;

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

type Numbered = readonly (readonly [name: string, most: number, read: (value: number) => unknown])[];

/** Each number from 0 to its largest value is taken, and none beside them. */
function itBounds(numbers: Numbered): void {
  for (const [name, most, read] of numbers) {
    it(`have a range from 0 to ${most} for ${name}`, () => {
      for (const number of [0, most]) assert.doesNotThrow(() => read(number));
      for (const number of [-1, most + 1]) {
        assert.throws(() => read(number), {
          ...UNUSABLE,
          message: new RegExp(`an integer from 0 to ${most}$`),
        });
      }
    });
  }
}

describe('the numbers of TCB info', async () => {
  const whole = await info();
  const [identity] = whole['tdxModuleIdentities'] as object[];
  const read = (change: object) => readTcbInfo(members({ ...whole, ...change }));
  const level = (tcb: object) => [{ tcb, tcbDate: '2026-03-13T00:00:00Z', tcbStatus: 'UpToDate' }];
  const zeros: readonly number[] = new Array(16).fill(0);
  itBounds([
    ['version', 65_535, (version) => read({ version })],
    ['tcbType', 65_535, (tcbType) => read({ tcbType })],
    [
      'tcbEvaluationDataNumber',
      4_294_967_295,
      (tcbEvaluationDataNumber) => read({ tcbEvaluationDataNumber }),
    ],
    [
      'the security version of an SGX component',
      255,
      (svn) => read({ tcbLevels: [platformLevelJson('UpToDate', zeros.with(15, svn))] }),
    ],
    [
      'the security version of a TDX component',
      255,
      (svn) => read({ tcbLevels: [platformLevelJson('UpToDate', zeros, 13, zeros.with(15, svn))] }),
    ],
    ['pcesvn', 65_535, (pcesvn) => read({ tcbLevels: [platformLevelJson('UpToDate', zeros, pcesvn)] })],
    [
      'the security version of a module',
      65_535,
      (isvsvn) => read({ tdxModuleIdentities: [{ ...identity, tcbLevels: level({ isvsvn }) }] }),
    ],
  ]);
});

describe('the numbers of QE identity', async () => {
  const { body } = await tdxPlatform().context.collateral.intelQeIdentity({});
  const whole = JSON.parse(body).enclaveIdentity as object;
  const read = (change: object) => readQeIdentity(members({ ...whole, ...change }));
  itBounds([
    ['version', 65_535, (version) => read({ version })],
    [
      'tcbEvaluationDataNumber',
      4_294_967_295,
      (tcbEvaluationDataNumber) => read({ tcbEvaluationDataNumber }),
    ],
    ['isvprodid', 65_535, (isvprodid) => read({ isvprodid })],
    [
      'isvsvn',
      65_535,
      (isvsvn) => read({ tcbLevels: [{ tcb: { isvsvn }, tcbDate: '', tcbStatus: 'UpToDate' }] }),
    ],
  ]);
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
