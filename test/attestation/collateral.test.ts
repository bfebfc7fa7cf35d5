/** Collateral: how large and how old a revocation list is. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { obtained, readRevocationList } from '../../lib/attestation/collateral.ts';
import { CRL } from '../support/evidence/snp-platform.ts';

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
