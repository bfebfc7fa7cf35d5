import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import { createByteChain } from '../../lib/pipeline/byte-chain.ts';

describe('byte chain', () => {
  it('gives any stretch of what was pushed, as views', () => {
    fc.assert(
      fc.property(fc.array(fc.uint8Array({ maxLength: 9 })), fc.nat(), fc.nat(), (chunks, a, b) => {
        const chain = createByteChain();
        for (const chunk of chunks) chain.push(chunk);
        const whole = Buffer.concat(chunks);
        assert.equal(chain.length, whole.length);
        const start = whole.length === 0 ? 0 : a % (whole.length + 1);
        const end = start + (b % (whole.length - start + 1));
        const slices = chain.slices(start, end);
        assert.deepEqual(Buffer.concat(slices), whole.subarray(start, end));
        assert.deepEqual(chain.bytes(start, end), Buffer.from(whole.subarray(start, end)));
        const backings = new Set<ArrayBufferLike>(chunks.map(({ buffer }) => buffer));
        assert.ok(slices.every(({ buffer, length }) => backings.has(buffer) && length > 0));
      }),
      { seed: 20261121 },
    );
  });
});
