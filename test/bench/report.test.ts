import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { describe, it } from 'node:test';
import { interTokenChart } from '../../bench/chart.ts';
import { METRICS } from '../../bench/metrics.ts';
import { newestReport } from '../../bench/readme.ts';
import {
  barTable,
  comparisons,
  farBeyond,
  HEADLINES,
  readmeSection,
  summarise,
  valuesOf,
} from '../../bench/report.ts';

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

  it('gives a row without a bar no verdict, and never fails for it', () => {
    const free = { id: 'free', title: 'A cost', figure: '÷ passthrough' } as const;
    const found = summarise(
      { name: 'm', rows: [free] },
      [9, 9, 9].map((figure) => ({ figures: { free: figure }, values: {} })),
    );
    assert.equal(barTable([found]).split('\n')[2], '| A cost | ÷ passthrough | 9.00 | 9.00 – 9.00 | - | - |');
    assert.deepEqual(farBeyond([found], 0), []);
  });

  const ratio = {
    id: 'r',
    title: 'A ratio',
    figure: '÷ passthrough',
    bar: { limit: 2, kind: 'at most' },
  } as const;
  const share = {
    id: 's',
    title: 'A share',
    figure: '÷ limit',
    bar: { limit: 0.5, kind: 'at least' },
  } as const;
  const cases = [
    [ratio, [3.1, 3.2, 3.3], true],
    [ratio, [2.9, 2.9, 2.9], false],
    [ratio, [2.5, 9, 9], false], // its interval reaches down to less
    [share, [0.3, 0.3, 0.32], true],
    [share, [0.4, 0.4, 0.4], false],
    [metric.rows[0], [100, 100, 100], false], // ms are those of the machine
  ] as const;
  for (const [row, figures, failing] of cases) {
    it(`${failing ? 'fails' : 'lets pass'} ${figures.join(', ')} ${row.figure} for ${row.bar.kind} ${row.bar.limit}, at 1.5`, () => {
      const found = figures.map((figure) => ({ figures: { [row.id]: figure }, values: {} }));
      const beyond = farBeyond([summarise({ name: 'm', rows: [row] }, found)], 1.5);
      assert.deepEqual(
        beyond.map(({ id }) => id),
        failing ? [row.id] : [],
      );
    });
  }

  it('compares what ours and another proxy have in common, round by round', () => {
    const values = [
      { 'ours, ms': 2, 'other, ms': 1, 'ours, alone ms': 7, 'ours, streams': 0, 'other, streams': 0 },
      { 'ours, ms': 9, 'other, ms': 3, 'ours, alone ms': 7, 'ours, streams': 0, 'other, streams': 0 },
      { 'ours, ms': 8, 'other, ms': 2, 'ours, alone ms': 7, 'ours, streams': 0, 'other, streams': 0 },
    ];
    const found = summarise(
      metric,
      values.map((each) => ({ figures: { row: 1 }, values: each })),
    );
    const [first, ...more] = comparisons([found], 'other');
    assert.deepEqual(more, [], 'streams that neither carried have no ratio');
    assert.deepEqual([first?.what, first?.ours, first?.other, first?.median], ['m: ms', 8, 2, 3]);
    assert.deepEqual(comparisons([found], 'nobody'), []);
  });

  it('leaves rounds without a figure out, and gives no verdict where none has one', () => {
    const found = (...figures: number[]) =>
      summarise(
        { name: 'm', rows: [share] },
        figures.map((s) => ({ figures: { s }, values: {} })),
      ).rows[0];
    assert.equal(found(0.7, Number.POSITIVE_INFINITY, 0.7)?.verdict, 'met');
    assert.equal(found(Number.POSITIVE_INFINITY, Number.NaN)?.verdict, 'unclear');
  });

  it('leaves out a row that has no figure in any round', () => {
    const { rows } = summarise({ name: 'm', rows: [share, ratio] }, [{ figures: { s: 0.7 }, values: {} }]);
    assert.deepEqual(
      rows.map(({ id }) => id),
      ['s'],
    );
  });

  it('is what the README shows of the newest saved run', () => {
    const readme = readFileSync(new URL('../../README.md', import.meta.url), 'utf8');
    assert.ok(readme.includes(readmeSection(newestReport())), 'node bench/readme.ts brings it up to date');
  });

  it('has one row id for each bar, and rounds for each metric', () => {
    const ids = METRICS.flatMap(({ rows }) => rows.map(({ id }) => id));
    assert.equal(new Set(ids).size, ids.length);
    for (const id of HEADLINES) assert.ok(ids.includes(id), `${id} is no row`);
    assert.equal(new Set(METRICS.map(({ name }) => name)).size, METRICS.length);
    for (const { name, rounds: planned } of METRICS) assert.ok(planned.full >= 3, name);
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
