/** A revocation list as it was obtained: how large it may be, and what is said of its age. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { obtained, readRevocationList } from '../../lib/attestation/collateral.ts';
import { CRL } from '../support/evidence/snp-platform.ts';

const ISSUED = Date.parse('2026-11-01T00:00:00Z');
const list = readRevocationList({ crl: CRL });

describe('the age of a revocation list', () => {
  const rows: readonly (readonly [seconds: number, age: number, words: string])[] = [
    [-10, 0, '0 s'],
    [0, 0, '0 s'],
    [1, 1, '1 s'],
    [1.999, 1, '1 s'],
    [119, 119, '119 s'],
    [120, 120, '2 min'],
    [7_199, 7_199, '119 min'],
    [7_200, 7_200, '2 h'],
    [172_799, 172_799, '47 h'],
    [172_800, 172_800, '2 days'],
    [259_199, 259_199, '2 days'],
  ];
  for (const [seconds, age, words] of rows) {
    it(`is ${words} after ${seconds} seconds`, () => {
      const now = new Date(ISSUED + 1000 * seconds);
      const found = `here; number 04, issued ${words} ago`;
      assert.deepEqual(obtained(list, 'here', now), { outcome: 'pass', found, age });
      const stored = { fetchedAt: ISSUED, because: 'no network' };
      assert.match(obtained({ ...list, stored }, 'here', now).found, new RegExp(`^stored ${words} ago, `));
    });
  }
});

describe('the size of a revocation list', () => {
  it('is 256 KiB where nothing less is said', () => {
    const tooLarge = { code: 'evidence_malformed', message: 'the CRL is too large' };
    const read = (bytes: number, most?: number) => () =>
      readRevocationList({ crl: new Uint8Array(bytes) }, most);
    assert.throws(read(262_144), ({ message }: Error) => message !== tooLarge.message);
    assert.throws(read(262_145), tooLarge);
    assert.throws(read(10, 10), ({ message }: Error) => message !== tooLarge.message);
    assert.throws(read(11, 10), tooLarge);
  });
});
