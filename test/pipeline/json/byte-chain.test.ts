import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import { createByteChain } from '../../../lib/pipeline/json/byte-chain.ts';

/** Lengths on both sides of what is copied, with bytes that tell where they came from. */
const chunksOfAllSizes = fc
  .array(
    fc.oneof(fc.nat({ max: 9 }), fc.integer({ min: 2_000, max: 9_000 }), fc.constantFrom(4_095, 4_096)),
    {
      maxLength: 60,
    },
  )
  .map((sizes) => sizes.map((size, i) => Uint8Array.from({ length: size }, (_, at) => (31 * i + at) & 0xff)));

/** Bytes that the memory behind the views takes. */
const memoryBehind = (views: readonly Uint8Array[]): number =>
  [...new Set(views.map(({ buffer }) => buffer))].reduce((sum, { byteLength }) => sum + byteLength, 0);

describe('byte chain', () => {
  it('gives any range of the pushed bytes, as views that do not change', () => {
    fc.assert(
      fc.property(chunksOfAllSizes, fc.nat(), fc.nat(), fc.nat(), (chunks, a, b, c) => {
        const chain = createByteChain();
        const early = chunks.slice(0, c % (chunks.length + 1));
        for (const chunk of early) chain.push(chunk);
        const before = chain.slices(0, chain.length);
        for (const chunk of chunks.slice(early.length)) chain.push(chunk);
        assert.deepEqual(Buffer.concat(before), Buffer.concat(early));
        const whole = Buffer.concat(chunks);
        assert.equal(chain.length, whole.length);
        const start = whole.length === 0 ? 0 : a % (whole.length + 1);
        const end = start + (b % (whole.length - start + 1));
        const slices = chain.slices(start, end);
        assert.deepEqual(Buffer.concat(slices), whole.subarray(start, end));
        assert.ok(slices.every(({ length }) => length > 0));
        assert.deepEqual(chain.bytes(start, end), Buffer.from(whole.subarray(start, end)));
      }),
      { seed: 20261121 },
    );
  });

  it('keeps long chunks, and a single short chunk before them, by reference', () => {
    const chunks = [Buffer.alloc(3), Buffer.alloc(4_096), Buffer.alloc(70_000)];
    const chain = createByteChain();
    for (const chunk of chunks) chain.push(chunk);
    assert.deepEqual(
      chain.slices(0, chain.length).map(({ buffer }) => buffer),
      chunks.map(({ buffer }) => buffer),
    );
  });

  for (const [name, sizes] of [
    ['of one byte', [1]],
    ['that are short and long in turn', [1, 4_096]],
    ['that are two short and one long in turn', [1, 1, 4_096]],
    ['that just do not fit twice into a block', [2_800]],
  ] as const) {
    it(`takes at most three times the bytes of its chunks, for chunks ${name}`, () => {
      const chain = createByteChain();
      for (let i = 0; chain.length < 1_000_000; i++) {
        chain.push(new Uint8Array(sizes[i % sizes.length] as number));
      }
      const slices = chain.slices(0, chain.length);
      // An object for a view takes less than 300 bytes.
      const taken = memoryBehind(slices) + 300 * slices.length;
      assert.ok(taken < 3 * chain.length, `${taken} bytes for ${chain.length}`);
    });
  }
});
