/**
 * Dates in verdicts: what lies ahead of the local clock names that clock, and lists of revocation say their
 * age. How large such a list may be.
 */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { Check } from '../../lib/attestation/check.ts';
import { obtained, readRevocationList } from '../../lib/attestation/collateral.ts';
import { inForce } from '../../lib/attestation/validity.ts';
import { type CollateralSource, verify } from '../../lib/attestation/verify-evidence.ts';
import { toPem } from '../../simulator/pki/certificate.ts';
import {
  attestedBy,
  CRL,
  issueArkCrl,
  issueMeshCa,
  issueVcek,
  type Changes as SnpChanges,
} from '../support/evidence/snp-platform.ts';
import { FUTURE, judge } from '../support/evidence/tdx-cases.ts';
import { type Changes, NOW } from '../support/evidence/tdx-platform.ts';

const BEHIND = /not valid yet at 2026-12-01T00:00:00\.000Z: the local clock is probably behind$/;
const failedBy = (checks: readonly Check[], id: string): Check | undefined =>
  checks.find((check) => check.id === id && check.outcome === 'fail');
const foundBy = (checks: readonly Check[], id: string): string =>
  failedBy(checks, id)?.found ?? 'did not fail';

describe('a period', () => {
  const [notBefore, notAfter] = [new Date('2026-11-01T00:00:00Z'), new Date('2026-12-01T00:00:00Z')];
  const range = '2026-11-01T00:00:00.000Z to 2026-12-01T00:00:00.000Z';

  it('is shown with "over" or "not valid yet" if now is outside it; it begins a minute early, and ends in time', () => {
    for (const [now, words, clock] of [
      ['2026-10-31T23:59:00.000Z', range],
      ['2026-12-01T00:00:00.000Z', range],
      ['2026-12-01T00:00:00.001Z', `${range}, over at 2026-12-01T00:00:00.001Z`, 'late'],
      [
        '2026-10-31T23:58:59.999Z',
        `${range}, not valid yet at 2026-10-31T23:58:59.999Z: the local clock is probably behind`,
        'early',
      ],
    ] as const) {
      const { outcome, found, detail } = inForce(new Date(now), { notBefore, notAfter });
      assert.deepEqual([outcome, found, detail?.clock], [clock ? 'fail' : 'pass', words, clock]);
    }
  });

  it('that is not valid yet names the clock, also beside one that is over', () => {
    const [over, soon] = [
      { notBefore: new Date(0), notAfter: new Date(0) },
      { notBefore, notAfter },
    ];
    const now = new Date('2026-10-01T00:00:00Z');
    for (const judged of [inForce(now, over, soon), inForce(now, soon, over)])
      assert.equal(judged.detail?.clock, 'early');
  });
});

describe('a local clock that is behind', () => {
  const soon = '2026-12-01T00:01:01Z';
  const tdx: readonly (readonly [id: string, changes: Changes])[] = [
    ['tdx.tcb_info.dates', { tcbInfo: (j) => ({ ...j, issueDate: soon }) }],
    ['tdx.tcb_info.signer', { tcbSigning: (r) => ({ ...r, notBefore: FUTURE }) }],
    ['tdx.root_crl.dates', { rootCrl: (r) => ({ ...r, thisUpdate: FUTURE }) }],
  ];
  const early = (id: string, checks: readonly Check[]): void => {
    assert.match(foundBy(checks, id), BEHIND);
    assert.deepEqual(failedBy(checks, id)?.detail, { clock: 'early' });
  };
  for (const [id, changes] of tdx)
    it(`is named as the probable cause by ${id}`, async () => early(id, await judge(changes)));

  const ahead = new Date(soon);
  const list = issueArkCrl({ thisUpdate: ahead });
  const snp: readonly (readonly [id: string, changes: SnpChanges])[] = [
    ['snp.chain.validity', { vcek: issueVcek({ notBefore: ahead }) }],
    ['snp.crl.current', { crl: list, collateral: { amdCrl: async () => ({ crl: list }) } }],
    ['document.mesh_ca', { meshCaPem: toPem(issueMeshCa({ notBefore: ahead })) }],
  ];
  for (const [id, changes] of snp)
    it(`is named as the probable cause by ${id}`, async () =>
      early(id, (await verify(attestedBy(changes))).checks));
});

describe("the age of Intel's collateral", () => {
  it('is in the verdict, which says when it was stored and why what was stored is used', async () => {
    const stored = { fetchedAt: NOW.getTime() - 90 * 60_000, because: 'the host is down' };
    const checks = await judge({
      context: (context) => {
        const { intelRootCrl, intelTcbInfo } = context.collateral;
        const collateral: CollateralSource = {
          ...context.collateral,
          intelRootCrl: async (query) => ({ ...(await intelRootCrl(query)), stored }),
          intelTcbInfo: async (query) => ({ ...(await intelTcbInfo(query)), stored }),
        };
        return { ...context, collateral };
      },
    });
    const instead =
      'stored at 2026-11-30T22:30:00.000Z, because it could not be fetched now (the host is down)';
    const ofList = [11 * 86_400, `${instead}; number 01, issued 2026-11-20T00:00:00.000Z`];
    for (const [wanted, expected] of [
      ['root_crl', ofList],
      ['tcb_info', [undefined, instead]],
    ] as const) {
      const { age, found } = checks.find(({ id }) => id === `tdx.${wanted}.format`) ?? {};
      assert.deepEqual([age, found], expected, wanted);
    }
  });
});

const ISSUED = Date.parse('2026-11-01T00:00:00Z');
const list = readRevocationList({ crl: CRL });

describe('the age of a revocation list', () => {
  it('is whole seconds since it was issued, or 0 if that lies ahead', () => {
    const found = 'here; number 04, issued 2026-11-01T00:00:00.000Z';
    for (const [seconds, age] of [
      [-10, 0],
      [0, 0],
      [1.999, 1],
      [172_800, 172_800],
    ] as const) {
      const now = new Date(ISSUED + 1000 * seconds);
      assert.deepEqual(obtained(list, 'here', now), { outcome: 'pass', found, age });
    }
  });
});

describe('the size of a revocation list', () => {
  it('is at most 256 KiB, or the smaller limit that the caller sets', () => {
    const tooLarge = { code: 'evidence_malformed', message: 'the CRL is too large' };
    const read = (bytes: number, most?: number) => () =>
      readRevocationList({ crl: new Uint8Array(bytes) }, most);
    assert.throws(read(262_144), ({ message }: Error) => message !== tooLarge.message);
    assert.throws(read(262_145), tooLarge);
    assert.throws(read(10, 10), ({ message }: Error) => message !== tooLarge.message);
    assert.throws(read(11, 10), tooLarge);
  });
});
