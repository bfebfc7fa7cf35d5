import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { DecryptedBytes } from '../../../lib/pipeline/sse/write-event.ts';

describe('decrypted bytes', () => {
  const digits = Buffer.from('0123456789'.repeat(40));

  it('come out in the order in which they went in, copied or as text', () => {
    const bytes = new DecryptedBytes();
    bytes.reserve(200);
    bytes.copy(digits, 3, 6);
    bytes.text('\xe9-');
    bytes.copy(digits, 0, 130);
    bytes.text('');
    bytes.text('-');
    assert.equal(bytes.take().toString('latin1'), `345\xe9-${'0123456789'.repeat(13)}-`);
    assert.equal(bytes.take().length, 0);
  });

  for (const size of [1, 129]) {
    it(`have all the room that was reserved, whatever is left of the reservation before: ${size} bytes`, () => {
      for (const left of [-1, 0, 1]) {
        const bytes = new DecryptedBytes();
        bytes.reserve(5 + size + left);
        bytes.copy(digits, 0, 5);
        bytes.reserve(size);
        bytes.copy(digits, 5, 5 + size);
        assert.deepEqual(bytes.take(), digits.subarray(0, 5 + size), `${left}`);
      }
    });
  }

  it('stay in the memory that was reserved while it has room', () => {
    const bytes = new DecryptedBytes();
    bytes.reserve(100_000);
    bytes.copy(digits, 0, 5);
    bytes.text('-');
    bytes.copy(digits, 0, 200);
    assert.equal(bytes.take().buffer.byteLength, 100_000);
    bytes.reserve(100_000);
    bytes.copy(Buffer.alloc(60_000), 0, 60_000);
    bytes.copy(Buffer.alloc(40_000), 0, 40_000); // all of it
    const all = bytes.take();
    assert.deepEqual([all.length, all.buffer.byteLength], [100_000, 100_000]);
  });

  it('stay as they are once they were taken', () => {
    const bytes = new DecryptedBytes();
    const taken = ['first', 'other'].map((text) => {
      bytes.reserve(5);
      bytes.copy(Buffer.from(text), 0, 5);
      return bytes.take();
    });
    assert.deepEqual(taken.map(String), ['first', 'other']);
  });
});
