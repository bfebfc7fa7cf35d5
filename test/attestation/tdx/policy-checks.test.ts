import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { boolean, enumerated } from '../../../simulator/pki/der.ts';
import { failed } from '../../support/evidence/cases.ts';
import { filled, itAccepts, itRefuses, judge } from '../../support/evidence/tdx-cases.ts';
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
const withRtmr = (place: number, rtmr0Alternatives: Uint8Array[] = []): Changes => ({
  body: (b) => ({ ...b, rtmrs: b.rtmrs.with(place, filled(48, 1)) }),
  entry: (e) => ({ ...e, rtmr0Alternatives }),
});
const coordinators = (...coordinatorHashes: readonly Uint8Array[]): Changes => ({
  context: (c) => ({ ...c, coordinatorHashes }),
});

describe('the policy of a TDX reference value', () => {
  itRefuses('policy', {
    'tdx.policy.report_data': {
      'an answer to another nonce': { body: (b) => ({ ...b, reportData: filled(64, 1) }) },
      'report data with a tail that is not zero': {
        body: (b) => ({ ...b, reportData: Uint8Array.of(...b.reportData.subarray(0, 63), 1) }),
      },
    },
    'tdx.policy.mrconfigid': {
      'a workload that is not the coordinator': coordinators(filled(32, 1)),
      'no coordinator at all': coordinators(),
      'a coordinator hash with a tail that is not zero': {
        body: (b) => ({ ...b, mrConfigId: Uint8Array.of(...b.mrConfigId.subarray(0, 47), 1) }),
      },
    },
    'tdx.policy.mrseam': { 'another TDX module': { body: (b) => ({ ...b, mrSeam: filled(48, 1) }) } },
    'tdx.policy.mrtd': { 'another initial memory': { body: (b) => ({ ...b, mrTd: filled(48, 1) }) } },
    'tdx.policy.rtmr0': {
      'another RTMR0': withRtmr(0),
      'an RTMR0 that is none of the alternatives': withRtmr(0, [filled(48, 2), filled(48, 3)]),
    },
    'tdx.policy.rtmr1': {
      'another RTMR1': withRtmr(1),
      'an RTMR1 that only an alternative of RTMR0 allows': withRtmr(1, [filled(48, 1)]),
    },
    'tdx.policy.rtmr2': { 'another RTMR2': withRtmr(2) },
    'tdx.policy.rtmr3': { 'another RTMR3': withRtmr(3) },
    'tdx.policy.xfam': { 'one XFAM bit less than in the manifest': withXfam('e700060000000000') },
    'tdx.policy.xfam, tdx.policy.xfam_fixed_bits': {
      'one XFAM bit more than in the manifest': withXfam('e706060000000000'),
    },
    'tdx.policy.td_attributes': {
      'a domain under debug': {
        body: (b) => ({ ...b, tdAttributes: Uint8Array.of(1, 0, 0, 0x10, 0, 0, 0, 0) }),
      },
      'a domain without SEPT_VE_DISABLE': { body: (b) => ({ ...b, tdAttributes: new Uint8Array(8) }) },
    },
    'tdx.policy.memory_integrity': {
      'memory without integrity': {
        sgx: (s) => ({ ...s, parts: s.parts.map(([n, v]) => [n, n === '5' ? enumerated(1) : v] as const) }),
      },
    },
    'tdx.policy.smt_disabled': {
      multithreading: configured('7.3', boolean(true)),
      'a platform silent on multithreading': configured('7.3', undefined),
    },
    'tdx.policy.static_platform': {
      'a dynamic platform': configured('7.1', boolean(true)),
      'a platform silent on being dynamic': configured('7.1', undefined),
    },
    'tdx.policy.piid': {
      'a platform that is not on the list': {
        entry: (e) => ({ ...e, allowedPiids: [filled(16, 2), filled(15, 0x11)] }),
      },
    },
  });
  itAccepts({
    'the platform on which nothing is wrong': {},
    'CET in the quote only': withXfam('e71a060000000000'),
    'CET in the manifest only': withXfam('e702060000000000', 'e71a060000000000'),
    'an alternative of RTMR0': withRtmr(0, [filled(48, 2), filled(48, 1)]),
    'the second of two coordinators': coordinators(filled(32, 1), COORDINATOR_HASH),
    'any platform if the manifest requires nothing of it': {
      sgx: (s) => ({ ...s, configuration: [] }),
      entry: (e) => ({
        ...{ ...e, allowedPiids: [] },
        ...{ memoryIntegrity: false, smtDisabled: false, staticPlatform: false },
      }),
    },
  });
});

describe('XFAM', () => {
  const bits = Array.from({ length: 64 }, (_, bit) => bit);
  const flipped = (bit: number): string => {
    const xfam = Buffer.from('e702060000000000', 'hex');
    xfam.writeBigUInt64LE(xfam.readBigUInt64LE() ^ (1n << BigInt(bit)));
    return xfam.toString('hex');
  };

  it('may differ from the manifest in the two CET bits, and in no other', async () => {
    const free: number[] = [];
    for (const bit of bits) {
      if (!failed(await judge(withXfam(flipped(bit)))).includes('tdx.policy.xfam')) free.push(bit);
    }
    assert.deepEqual(free, [11, 12]);
  });

  it('is refused with a bit that does not exist, or without bit 0 or 1, even if the manifest has the same bits', async () => {
    const possible: number[] = [];
    for (const bit of bits) {
      const xfam = Buffer.from('0300000000000000', 'hex');
      xfam.writeBigUInt64LE(xfam.readBigUInt64LE() | (1n << BigInt(bit)));
      const same = xfam.toString('hex');
      if (failed(await judge(withXfam(same, same))).length === 0) possible.push(bit);
    }
    assert.deepEqual(possible, [0, 1, 2, 5, 6, 7, 8, 9, 11, 12, 14, 15, 17, 18]);
    for (const without of ['0200000000000000', '0100000000000000']) {
      assert.deepEqual(failed(await judge(withXfam(without, without))), ['tdx.policy.xfam_fixed_bits']);
    }
  });
});
