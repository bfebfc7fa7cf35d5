import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { p384 } from '@noble/curves/nist.js';
import fc from 'fast-check';
import { multiplyBaseP384 } from '#crypto/p384';

const { n: ORDER } = p384.Point.CURVE();
const oracle = (scalar: bigint): Buffer => Buffer.from(p384.Point.BASE.multiply(scalar).toBytes(false));

describe('the product of the P-384 base point', () => {
  it('agrees with an independent library', () => {
    fc.assert(
      fc.property(fc.bigInt({ min: 1n, max: ORDER - 1n }), (k) => {
        assert.deepEqual(Buffer.from(multiplyBaseP384(k)), oracle(k));
      }),
      { seed: 20261201, numRuns: 25 },
    );
  });

  it('is right at the ends of the range, and refuses what lies outside', () => {
    for (const k of [1n, ORDER - 1n]) assert.deepEqual(Buffer.from(multiplyBaseP384(k)), oracle(k));
    for (const bad of [0n, ORDER, -1n]) assert.throws(() => multiplyBaseP384(bad));
  });
});
