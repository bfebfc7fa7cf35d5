import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { p384 } from '@noble/curves/nist.js';
import fc from 'fast-check';
import {
  addPoints,
  integerOf,
  multiplyBase,
  negatePoint,
  P384_FIELD,
  P384_ORDER,
} from '../../lib/crypto/p384.ts';

const scalar = fc.bigInt({ min: 1n, max: P384_ORDER - 1n });
const RUNS = { seed: 20261201, numRuns: 25 };

describe('P-384 arithmetic', () => {
  it('uses the field and the order of the standard', () => {
    assert.equal(P384_FIELD, p384.Point.CURVE().p);
    assert.equal(P384_ORDER, p384.Point.CURVE().n);
  });

  it('agrees with an independent library on multiples of the base point', () => {
    fc.assert(
      fc.property(scalar, (k) => {
        assert.deepEqual(multiplyBase(k), p384.Point.BASE.multiply(k).toAffine());
      }),
      RUNS,
    );
  });

  it('agrees with an independent library on sums and opposites', () => {
    fc.assert(
      fc.property(scalar, scalar, (a, b) => {
        fc.pre(a !== b && a + b !== P384_ORDER);
        const [left, right] = [multiplyBase(a), multiplyBase(b)];
        const oracle = p384.Point.fromAffine(left).add(p384.Point.fromAffine(right));
        assert.deepEqual(addPoints(left, right), oracle.toAffine());
        assert.deepEqual(negatePoint(left), p384.Point.fromAffine(left).negate().toAffine());
      }),
      RUNS,
    );
  });

  it('handles the ends of the range and refuses what lies outside', () => {
    assert.deepEqual(multiplyBase(1n), p384.Point.BASE.toAffine());
    assert.deepEqual(multiplyBase(P384_ORDER - 1n), p384.Point.BASE.negate().toAffine());
    for (const bad of [0n, P384_ORDER, -1n]) assert.throws(() => multiplyBase(bad), RangeError);
    assert.throws(() => addPoints(multiplyBase(5n), negatePoint(multiplyBase(5n))), RangeError);
  });

  it('reads big-endian integers', () => {
    assert.equal(integerOf(new Uint8Array([1, 0, 2])), 0x010002n);
    assert.equal(integerOf(new Uint8Array(0)), 0n);
  });
});
