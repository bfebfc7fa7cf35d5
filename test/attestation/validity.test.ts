/**
 * Dates in verdicts: what lies ahead of the local clock names that clock, and lists of revocation say their
 * age. How large such a list may be.
 */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { Check } from '../../lib/attestation/check.ts';
import { obtained, readRevocationList } from '../../lib/attestation/collateral.ts';
import { inForce } from '../../lib/attestation/validity.ts';
import { verify } from '../../lib/attestation/verify-evidence.ts';
import { toPem } from '../../simulator/pki/certificate.ts';
import {
  attestedBy,
  CRL,
  issueArkCrl,
  issueMeshCa,
  type Changes as SnpChanges,
} from '../support/evidence/snp-platform.ts';
import { judge } from '../support/evidence/tdx-cases.ts';

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
  const ahead = new Date(soon);
  const list = issueArkCrl({ thisUpdate: ahead });
  const snp = async (changes: SnpChanges) => (await verify(attestedBy(changes))).checks;
  const rows: readonly (readonly [id: string, judged: () => Promise<readonly Check[]>])[] = [
    ['tdx.tcb_info.dates', () => judge({ tcbInfo: (j) => ({ ...j, issueDate: soon }) })],
    ['snp.crl.current', () => snp({ crl: list, collateral: { amdCrl: async () => ({ crl: list }) } })],
    ['document.mesh_ca', () => snp({ meshCaPem: toPem(issueMeshCa({ notBefore: ahead })) })],
  ];
  for (const [id, judged] of rows)
    it(`is named as the probable cause by ${id}`, async () => {
      const check = (await judged()).find((each) => each.id === id);
      assert.deepEqual([check?.outcome, check?.detail], ['fail', { clock: 'early' }]);
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

  it('comes with the reason why a stored list is used', () => {
    const stored = { fetchedAt: ISSUED, because: 'the host is down' };
    const { found } = obtained({ ...list, stored }, 'here', new Date(ISSUED));
    assert.match(found, /^stored at 2026-11-01T00:00:00.000Z, because .*\(the host is down\); number 04/);
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
