import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { interTokenChart } from '../../bench/chart.ts';
import { METRICS } from '../../bench/metrics.ts';
import { barTable, summarise, valuesOf } from '../../bench/report.ts';

const metric = {
  name: 'm',
  rows: [{ id: 'row', title: 'A thing', figure: 'ms', bar: { limit: 2, kind: 'at most' } }],
} as const;
const rounds = [1, 3, 2.5].map((row) => ({ figures: { row }, values: { 'ours, ms': 10 * row } }));

describe('the report of the benchmark', () => {
  it('holds medians of rounds against the bar', () => {
    const [row] = summarise(metric, rounds).rows;
    assert.equal(row?.median, 2.5);
    assert.equal(row?.excess, 1.25);
    assert.equal(row?.verdict, 'unclear');
    assert.deepEqual(valuesOf({ rounds }), { 'ours, ms': 25 });
  });

  it('shows every row with its interval, bar and verdict', () => {
    const table = barTable([summarise(metric, rounds)]).split('\n');
    assert.equal(table.length, 3);
    assert.match(table[2] as string, /^\| A thing \| ms \| 2\.50 \| 1\.00 – 3\.00 \| ≤ 2 \| no verdict \|$/);
  });

  it('has one row id for each bar, and rounds for each metric', () => {
    const ids = METRICS.flatMap(({ rows }) => rows.map(({ id }) => id));
    assert.equal(new Set(ids).size, ids.length);
    assert.equal(new Set(METRICS.map(({ name }) => name)).size, METRICS.length);
    for (const { rounds: planned } of METRICS) assert.ok(planned.full >= 5);
  });

  it('draws higher percentiles further right and longer gaps further up', () => {
    const svg = interTokenChart([
      {
        name: 'a<b',
        points: [
          [0.5, 10],
          [0.99, 30],
        ],
      },
    ]);
    const [from, to] = [...svg.matchAll(/([\d.]+),([\d.]+)(?= L|" fill="none" stroke="#8888)/g)];
    assert.ok(Number(from?.[1]) < Number(to?.[1]) && Number(from?.[2]) > Number(to?.[2]));
    assert.match(svg, /a&lt;b/);
    assert.doesNotMatch(svg, /NaN/);
  });
});
