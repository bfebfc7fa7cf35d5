import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { estimate, excess, median, quantile, seededRandom, shuffled, verdictOf } from '../../bench/stats.ts';

describe('statistics of the benchmark', () => {
  it('interpolates quantiles, whatever the order of the values', () => {
    assert.equal(median([3, 1, 2]), 2);
    assert.equal(median([4, 1, 2, 3]), 2.5);
    assert.equal(quantile([10, 0], 0.25), 2.5);
    assert.equal(quantile([1, 2, 3], 0), 1);
    assert.equal(quantile([1, 2, 3], 1), 3);
    assert.throws(() => quantile([], 0.5), RangeError);
  });

  it('gives an interval around the median that narrows with more rounds', () => {
    const noisy = (count: number): number[] => {
      const random = seededRandom(7);
      return Array.from({ length: count }, () => 1 + 0.2 * (random() - 0.5));
    };
    const few = estimate(noisy(5), seededRandom(1));
    const many = estimate(noisy(200), seededRandom(1));
    for (const { low, median: middle, high } of [few, many]) assert.ok(low <= middle && middle <= high);
    assert.ok(many.high - many.low < (few.high - few.low) / 2);
    assert.ok(many.low > 0.95 && many.high < 1.05);
  });

  const most = { limit: 1, kind: 'at most' } as const;
  const least = { limit: 0.5, kind: 'at least' } as const;
  const cases = [
    [most, { low: 0.95, median: 0.98, high: 0.99 }, 'met'],
    [most, { low: 0.95, median: 0.98, high: 1.02 }, 'met'],
    [most, { low: 0.98, median: 1.02, high: 1.05 }, 'missed'],
    [most, { low: 0.7, median: 0.95, high: 1.3 }, 'unclear'],
    [most, { low: 0.2, median: 0.5, high: 0.9 }, 'met'],
    [most, { low: 1.1, median: 2, high: 3 }, 'missed'],
    [most, { low: 0.91, median: 1, high: 1.09 }, 'met'],
    [most, { low: 0.89, median: 1, high: 1.05 }, 'unclear'],
    [most, { low: -0.1, median: 0, high: 1.2 }, 'unclear'],
    [most, { low: Number.NaN, median: Number.NaN, high: Number.NaN }, 'unclear'],
    [least, { low: 0.55, median: 0.6, high: 0.9 }, 'met'],
    [least, { low: 0.1, median: 0.2, high: 0.4 }, 'missed'],
    [least, { low: 0.3, median: 0.55, high: 0.8 }, 'unclear'],
  ] as const;
  for (const [bar, found, verdict] of cases) {
    it(`gives the verdict "${verdict}" for ${found.low} to ${found.high} if the bar is ${bar.kind} ${bar.limit}`, () => {
      assert.equal(verdictOf(found, bar), verdict);
    });
  }

  it('returns by which factor a figure is beyond its bar, for "at most" and "at least"', () => {
    assert.equal(excess(3, { limit: 2, kind: 'at most' }), 1.5);
    assert.equal(excess(2, { limit: 3, kind: 'at least' }), 1.5);
    assert.equal(excess(0, { limit: 0, kind: 'at most' }), 1);
    assert.equal(excess(1, { limit: 0, kind: 'at most' }), Number.POSITIVE_INFINITY);
  });

  it('shuffles a list without losing an item', () => {
    const items = ['a', 'b', 'c', 'd'];
    const orders = new Set(Array.from({ length: 200 }, () => shuffled(items).join('')));
    assert.equal(orders.size, 24);
    for (const order of orders) assert.equal([...order].sort().join(''), 'abcd');
  });
});
