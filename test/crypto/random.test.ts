import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { randomBytes } from '../../lib/crypto/random.ts';

describe('random bytes', () => {
  it('have the requested length, and differ each time', () => {
    const drawn = [12, 12, 30, 32, 1000].map(randomBytes);
    assert.deepEqual(
      drawn.map(({ length }) => length),
      [12, 12, 30, 32, 1000],
    );
    assert.equal(new Set(drawn.map((bytes) => bytes.toString('latin1', 0, 12))).size, 5);
  });
});
