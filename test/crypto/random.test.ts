import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { randomBytes } from '../../lib/crypto/random.ts';

describe('random bytes', () => {
  it('are not given out twice, although they are drawn many at once', () => {
    const sizes = Array.from({ length: 2_000 }, (_, i) => [12, 32, 64, 65, 1000][i % 5]!);
    const drawn = sizes.map(randomBytes);
    assert.deepEqual(
      drawn.map(({ length }) => length),
      sizes,
    );
    assert.equal(new Set(drawn.map((bytes) => bytes.toString('latin1', 0, 12))).size, sizes.length);
    assert.ok(drawn.every((bytes) => bytes.some((byte) => byte !== 0)));
  });
});
