/** The budget of memory for bodies, and a body that is collected within it. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { PrivatemodeError } from '../../lib/errors.ts';
import { CollectedBody, Room } from '../../lib/gateway/memory.ts';

const MIB = 1024 * 1024;

const rooms = (count: number, used = { bufferedBytes: 0 }) => {
  const budget = { of: 'uploads', limit: 80 * MIB, used } as const;
  return { used, all: Array.from({ length: count }, () => new Room(budget)) };
};

const tooMany = (thrown: unknown): boolean => {
  assert.ok(thrown instanceof PrivatemodeError && thrown.code === 'too_many_uploads');
  assert.ok(thrown.retryAfter! >= 2 && thrown.retryAfter! <= 5, String(thrown.retryAfter));
  return true;
};

describe('the memory of bodies', () => {
  it('has an eighth reserved for small bodies', () => {
    const [large, other, small] = rooms(3).all;
    large!.grow(70 * MIB);
    assert.throws(() => other!.grow(2 * MIB), tooMany);
    small!.grow(MIB);
    assert.throws(() => small!.grow(1), tooMany, 'beyond 1 MiB it is large');
  });

  it('can be taken by one body as a whole, and not by a larger one', () => {
    const { all, used } = rooms(2);
    const [one, other] = all;
    one!.grow(80 * MIB);
    assert.throws(() => other!.grow(1), tooMany);
    assert.throws(() => one!.grow(1), { code: 'body_too_large' });
    one!.release();
    one!.release();
    assert.equal(used.bufferedBytes, 0);
    other!.grow(80 * MIB);
  });

  it('is given to nobody whose exchange is over', () => {
    const { all, used } = rooms(1);
    all[0]!.release();
    all[0]!.grow(MIB);
    assert.equal(used.bufferedBytes, 0);
  });
});

describe('a body that is collected', () => {
  it('holds what arrived and no byte more, whatever its chunks', () => {
    for (const sizes of [[1, 2, 3], [70_000, 1, 200_000], Array<number>(40_000).fill(1)]) {
      const chunks = sizes.map((size, i) => Buffer.alloc(size, i % 251));
      const body = new CollectedBody(rooms(1).all[0]!, MIB);
      for (const chunk of chunks) body.push(chunk);
      assert.ok(body.bytes().equals(Buffer.concat(chunks)));
    }
  });

  it('takes memory as it arrives, twice its bytes at most and never more than was announced', () => {
    const { all, used } = rooms(1);
    const body = new CollectedBody(all[0]!, 64 * MIB);
    assert.equal(used.bufferedBytes, 0);
    body.push(Buffer.alloc(100_000));
    assert.ok(used.bufferedBytes >= 100_000 && used.bufferedBytes <= 200_000, String(used.bufferedBytes));
    for (let mib = 1; mib < 63; mib++) body.push(Buffer.alloc(MIB));
    assert.equal(used.bufferedBytes, 64 * MIB);
  });
});
