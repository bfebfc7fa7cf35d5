/**
 * Dates in verdicts: what lies ahead of the local clock names that clock, and lists of revocation say their
 * age.
 */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { Check } from '../../lib/attestation/check.ts';
import { inForce } from '../../lib/attestation/validity.ts';
import { verify } from '../../lib/attestation/verify-evidence.ts';
import { PrivatemodeError } from '../../lib/errors.ts';
import { toPem } from '../../simulator/pki/certificate.ts';
import {
  attestedBy,
  issueArkCrl,
  issueMeshCa,
  issueVcek,
  type Changes as SnpChanges,
} from '../support/evidence/snp-platform.ts';
import { FUTURE, judge, PAST } from '../support/evidence/tdx-cases.ts';
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
});

describe('a local clock that is behind', () => {
  const soon = '2026-12-01T00:01:01Z';
  const tdx: readonly (readonly [id: string, changes: Changes])[] = [
    ['tdx.tcb_info.dates', { tcbInfo: (j) => ({ ...j, issueDate: soon }) }],
    ['tdx.qe_identity.dates', { qeIdentity: (j) => ({ ...j, issueDate: soon }) }],
    ['tdx.tcb_info.signer', { tcbSigning: (r) => ({ ...r, notBefore: FUTURE }) }],
    ['tdx.qe_identity.signer', { qeSigning: (r) => ({ ...r, notBefore: FUTURE }) }],
    ['tdx.root_crl.dates', { rootCrl: (r) => ({ ...r, thisUpdate: FUTURE }) }],
    ['tdx.pck_crl.dates', { pckCrl: (r) => ({ ...r, thisUpdate: FUTURE }) }],
    ['tdx.pck.validity', { pck: (r) => ({ ...r, notBefore: FUTURE }) }],
  ];
  for (const [id, changes] of tdx) {
    it(`is named as the probable cause by ${id}`, async () => {
      const checks = await judge(changes);
      assert.match(foundBy(checks, id), BEHIND);
      assert.deepEqual(failedBy(checks, id)?.detail, { clock: 'early' });
    });
  }

  const ahead = new Date(soon);
  const early = issueArkCrl({ thisUpdate: ahead });
  const snp: readonly (readonly [id: string, changes: SnpChanges])[] = [
    ['snp.chain.validity', { vcek: issueVcek({ notBefore: ahead }) }],
    ['snp.crl.current', { crl: early, collateral: { amdCrl: async () => ({ crl: early }) } }],
    ['document.mesh_ca', { meshCaPem: toPem(issueMeshCa({ notBefore: ahead })) }],
  ];
  for (const [id, changes] of snp) {
    it(`is named as the probable cause by ${id}`, async () => {
      const { checks } = await verify(attestedBy(changes));
      assert.match(foundBy(checks, id), BEHIND);
      assert.deepEqual(failedBy(checks, id)?.detail, { clock: 'early' });
    });
  }

  it('is not named as the cause if something has expired', async () => {
    const expired = await judge({ tcbInfo: (j) => ({ ...j, nextUpdate: '2026-11-30T23:59:59Z' }) });
    assert.match(foundBy(expired, 'tdx.tcb_info.dates'), /, over at 2026-12-01T00:00:00\.000Z$/);
    assert.deepEqual(failedBy(expired, 'tdx.tcb_info.dates')?.detail, { clock: 'late' });
    const pck = await judge({ pck: (r) => ({ ...r, notAfter: PAST }) });
    assert.doesNotMatch(foundBy(pck, 'tdx.pck.validity'), /clock/);
    assert.deepEqual(failedBy(pck, 'tdx.pck.validity')?.detail, { clock: 'late' });
  });

  it('is named as the cause if one certificate is not valid yet and another has expired', async () => {
    const both = await judge({
      pck: (r) => ({ ...r, notBefore: FUTURE }),
      platformCa: (r) => ({ ...r, notAfter: PAST }),
    });
    assert.deepEqual(failedBy(both, 'tdx.pck.validity')?.detail, { clock: 'early' });
  });

  for (const [what, crl, detail] of [
    ['is not valid yet', issueArkCrl({ thisUpdate: ahead }), { clock: 'early' }],
    ['has expired', issueArkCrl({ nextUpdate: new Date('2026-11-30T00:00:00Z') }), undefined],
  ] as const) {
    it(`${detail === undefined ? 'is not named' : 'is named'} as the cause if no CRL can be fetched and the list of the document ${what}`, async () => {
      const amdCrl = async () => {
        throw new PrivatemodeError('collateral_unavailable', 'CRL: the fetch failed');
      };
      const { checks } = await verify(attestedBy({ crl, collateral: { amdCrl } }));
      const failure = failedBy(checks, 'snp.crl.available');
      assert.match(failure?.found ?? '', /^CRL: the fetch failed \(needed, /);
      assert.deepEqual(failure?.detail, detail);
    });
  }
});

describe("the age of Intel's collateral", () => {
  it('is in the verdict, which says when it was stored and why what was stored is used', async () => {
    const obtainedIn = (checks: readonly Check[]) =>
      ['root_crl', 'pck_crl', 'tcb_info', 'qe_identity'].map((wanted) => {
        const { age, found } = checks.find(({ id }) => id === `tdx.${wanted}.format`) ?? {};
        return [age, found];
      });
    const day = 86_400;
    assert.deepEqual(obtainedIn(await judge({})), [
      [11 * day, 'as expected; number 01, issued 2026-11-20T00:00:00.000Z'],
      [11 * day, 'as expected; number 01, issued 2026-11-20T00:00:00.000Z'],
      [undefined, 'as expected'],
      [undefined, 'as expected'],
    ]);
    const stored = { fetchedAt: NOW.getTime() - 90 * 60_000, because: 'the host is down' };
    const checks = await judge({
      context: (context) => {
        const { collateral } = context;
        return {
          ...context,
          collateral: {
            ...collateral,
            intelRootCrl: async (query) => ({ ...(await collateral.intelRootCrl(query)), stored }),
            intelPckCrl: async () => ({ ...(await collateral.intelPckCrl()), stored }),
            intelTcbInfo: async (query) => ({ ...(await collateral.intelTcbInfo(query)), stored }),
            intelQeIdentity: async (query) => ({ ...(await collateral.intelQeIdentity(query)), stored }),
          },
        };
      },
    });
    const instead =
      'stored at 2026-11-30T22:30:00.000Z, because it could not be fetched now (the host is down)';
    assert.deepEqual(obtainedIn(checks), [
      [11 * day, `${instead}; number 01, issued 2026-11-20T00:00:00.000Z`],
      [11 * day, `${instead}; number 01, issued 2026-11-20T00:00:00.000Z`],
      [undefined, instead],
      [undefined, instead],
    ]);
  });
});
