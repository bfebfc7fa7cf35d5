import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { randomBytes } from '../../lib/crypto/random.ts';

describe('random bytes', () => {
  it('have the length that was asked for, and never come twice', () => {
    const seen = new Set<string>();
    let expected = 0;
    for (let i = 0; i < 500; i++) {
      for (const length of [12, 32, 30, 16, 60, 61, 12, 1000]) {
        const bytes = randomBytes(length);
        assert.equal(bytes.length, length);
        // No eight bytes in a row of one draw are in another.
        for (let at = 0; at + 8 <= length; at++) seen.add(bytes.toString('latin1', at, at + 8));
        expected += length - 7;
      }
    }
    assert.equal(seen.size, expected);
  });

  it('stay as they are when others are drawn', () => {
    const first = randomBytes(12);
    const copy = Buffer.from(first);
    for (let i = 0; i < 2000; i++) randomBytes(12).fill(0);
    assert.deepEqual(first, copy);
  });
});
