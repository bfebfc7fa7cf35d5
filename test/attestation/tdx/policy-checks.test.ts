import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { boolean, enumerated } from '../../../simulator/pki/der.ts';
import { filled, itAccepts, itRefuses, judge, type Row } from '../../support/evidence/tdx-cases.ts';
import { type Changes, COORDINATOR_HASH } from '../../support/evidence/tdx-platform.ts';

const configured = (suffix: string, value: Uint8Array | undefined): Changes => ({
  sgx: (s) => ({
    ...s,
    configuration: s.configuration.flatMap(([name, original]) =>
      name !== suffix ? [[name, original] as const] : value === undefined ? [] : [[name, value] as const],
    ),
  }),
});
const withXfam = (quote: string, manifest = 'e702060000000000'): Changes => ({
  body: (b) => ({ ...b, xfam: Buffer.from(quote, 'hex') }),
  entry: (e) => ({ ...e, xfam: Buffer.from(manifest, 'hex') }),
});

const POLICY: readonly Row[] = [
  [
    'an answer to another nonce',
    { body: (b) => ({ ...b, reportData: filled(64, 1) }) },
    ['tdx.policy.report_data'],
  ],
  [
    'report data with a tail that is not zero',
    { body: (b) => ({ ...b, reportData: Uint8Array.of(...b.reportData.subarray(0, 63), 1) }) },
    ['tdx.policy.report_data'],
  ],
  [
    'a workload that is not the coordinator',
    { context: (c) => ({ ...c, coordinatorHashes: [filled(32, 1)] }) },
    ['tdx.policy.mrconfigid'],
  ],
  ['no coordinator at all', { context: (c) => ({ ...c, coordinatorHashes: [] }) }, ['tdx.policy.mrconfigid']],
  [
    'a coordinator hash with a tail that is not zero',
    { body: (b) => ({ ...b, mrConfigId: Uint8Array.of(...b.mrConfigId.subarray(0, 47), 1) }) },
    ['tdx.policy.mrconfigid'],
  ],
  ['another TDX module', { body: (b) => ({ ...b, mrSeam: filled(48, 1) }) }, ['tdx.policy.mrseam']],
  ['another initial memory', { body: (b) => ({ ...b, mrTd: filled(48, 1) }) }, ['tdx.policy.mrtd']],
  ...[0, 1, 2, 3].map(
    (changed): Row => [
      `another RTMR${changed}`,
      { body: (b) => ({ ...b, rtmrs: b.rtmrs.map((rtmr, i) => (i === changed ? filled(48, 1) : rtmr)) }) },
      [`tdx.policy.rtmr${changed}`],
    ],
  ),
  [
    'an RTMR0 that is none of the alternatives',
    {
      body: (b) => ({ ...b, rtmrs: [filled(48, 1), ...b.rtmrs.slice(1)] }),
      entry: (e) => ({ ...e, rtmr0Alternatives: [filled(48, 2), filled(48, 3)] }),
    },
    ['tdx.policy.rtmr0'],
  ],
  [
    'an RTMR1 that only an alternative of RTMR0 allows',
    {
      body: (b) => ({ ...b, rtmrs: b.rtmrs.map((rtmr, i) => (i === 1 ? filled(48, 1) : rtmr)) }),
      entry: (e) => ({ ...e, rtmr0Alternatives: [filled(48, 1)] }),
    },
    ['tdx.policy.rtmr1'],
  ],
  [
    'one XFAM bit more than in the manifest',
    withXfam('e706060000000000'),
    ['tdx.policy.xfam', 'tdx.policy.xfam_fixed_bits'],
  ],
  ['one XFAM bit less than in the manifest', withXfam('e700060000000000'), ['tdx.policy.xfam']],
  [
    'an XFAM without SSE, as in the manifest',
    withXfam('e502060000000000', 'e502060000000000'),
    ['tdx.policy.xfam_fixed_bits'],
  ],
  [
    'an XFAM with a bit that does not exist, as in the manifest',
    withXfam('e702060000000080', 'e702060000000080'),
    ['tdx.policy.xfam_fixed_bits'],
  ],
  [
    'a domain under debug',
    { body: (b) => ({ ...b, tdAttributes: Uint8Array.of(1, 0, 0, 0x10, 0, 0, 0, 0) }) },
    ['tdx.policy.td_attributes'],
  ],
  [
    'a domain without SEPT_VE_DISABLE',
    { body: (b) => ({ ...b, tdAttributes: new Uint8Array(8) }) },
    ['tdx.policy.td_attributes'],
  ],
  [
    'memory without integrity',
    {
      sgx: (s) => ({ ...s, parts: s.parts.map(([n, v]) => [n, n === '5' ? enumerated(1) : v] as const) }),
    },
    ['tdx.policy.memory_integrity'],
  ],
  ['multithreading', configured('7.3', boolean(true)), ['tdx.policy.smt_disabled']],
  ['a platform silent on multithreading', configured('7.3', undefined), ['tdx.policy.smt_disabled']],
  ['a dynamic platform', configured('7.1', boolean(true)), ['tdx.policy.static_platform']],
  ['a platform silent on being dynamic', configured('7.1', undefined), ['tdx.policy.static_platform']],
  [
    'a platform that is not on the list',
    { entry: (e) => ({ ...e, allowedPiids: [filled(16, 2), filled(15, 0x11)] }) },
    ['tdx.policy.piid'],
  ],
];

describe('the policy of a TDX reference value', () => {
  itRefuses('policy', POLICY);
  itAccepts([
    ['the platform on which nothing is wrong', {}],
    ['CET in the quote only', withXfam('e71a060000000000')],
    ['CET in the manifest only', withXfam('e702060000000000', 'e71a060000000000')],
    [
      'an alternative of RTMR0',
      {
        body: (b) => ({ ...b, rtmrs: [filled(48, 1), ...b.rtmrs.slice(1)] }),
        entry: (e) => ({ ...e, rtmr0Alternatives: [filled(48, 2), filled(48, 1)] }),
      },
    ],
    [
      'the second of two coordinators',
      { context: (c) => ({ ...c, coordinatorHashes: [filled(32, 1), COORDINATOR_HASH] }) },
    ],
    [
      'any platform if the manifest requires nothing of it',
      {
        sgx: (s) => ({ ...s, configuration: [] }),
        entry: (e) => ({
          ...e,
          allowedPiids: [],
          memoryIntegrity: false,
          smtDisabled: false,
          staticPlatform: false,
        }),
      },
    ],
  ]);
});

describe('the flags of a platform', () => {
  const flags = [
    ['smt_disabled', '7.3'],
    ['static_platform', '7.1'],
  ] as const;
  for (const [row, suffix] of flags) {
    it(`are shown as the PCK certificate states them: ${row}`, async () => {
      const shown = async (value: Uint8Array | undefined) =>
        (await judge(configured(suffix, value))).find(({ id }) => id === `tdx.policy.${row}`)?.found;
      assert.equal(await shown(boolean(false)), 'false');
      assert.equal(await shown(boolean(true)), 'true');
      assert.equal(await shown(undefined), 'not stated');
    });
  }
});

describe('XFAM', () => {
  const bits = Array.from({ length: 64 }, (_, bit) => bit);
  const flipped = (bit: number): string => {
    const xfam = Buffer.from('e702060000000000', 'hex');
    xfam.writeBigUInt64LE(xfam.readBigUInt64LE() ^ (1n << BigInt(bit)));
    return xfam.toString('hex');
  };
  const failed = async (changes: Changes): Promise<string[]> =>
    (await judge(changes)).flatMap(({ id, outcome }) => (outcome === 'fail' ? [id] : []));

  it('may differ from the manifest in the two CET bits, and in no other', async () => {
    const free: number[] = [];
    for (const bit of bits) {
      if (!(await failed(withXfam(flipped(bit)))).includes('tdx.policy.xfam')) free.push(bit);
    }
    assert.deepEqual(free, [11, 12]);
  });

  it('is refused with a bit that does not exist, or without bit 0 or 1, even if the manifest has the same bits', async () => {
    const possible: number[] = [];
    for (const bit of bits) {
      const xfam = Buffer.from('0300000000000000', 'hex');
      xfam.writeBigUInt64LE(xfam.readBigUInt64LE() | (1n << BigInt(bit)));
      const same = xfam.toString('hex');
      if ((await failed(withXfam(same, same))).length === 0) possible.push(bit);
    }
    assert.deepEqual(possible, [0, 1, 2, 5, 6, 7, 8, 9, 11, 12, 14, 15, 17, 18]);
    for (const without of ['0200000000000000', '0100000000000000']) {
      assert.deepEqual(await failed(withXfam(without, without)), ['tdx.policy.xfam_fixed_bits']);
    }
  });
});
