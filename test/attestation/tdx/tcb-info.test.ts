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
