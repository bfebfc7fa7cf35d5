import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { METRICS } from '../../bench/metrics.ts';
import { barTable, farBeyond, summarise, toMarkdown, valuesOf } from '../../bench/report.ts';

const metric = {
  name: 'm',
  rows: [{ id: 'row', title: 'A thing', figure: 'ms', bar: { limit: 2, kind: 'at most' } }],
} as const;
const rounds = [1, 3, 2.5].map((row) => ({ figures: { row }, values: { 'ours, ms': 10 * row } }));

describe('the report of the benchmark', () => {
  it('compares the median of the rounds with the bar', () => {
    const [row] = summarise(metric, rounds).rows;
    assert.equal(row?.median, 2.5);
    assert.equal(row?.excess, 1.25);
    assert.equal(row?.verdict, 'unclear');
    assert.deepEqual(valuesOf({ rounds }), { 'ours, ms': 25 });
  });

  const report = {
    ...{ version: '0.0.0', date: '2026-01-01', quick: false, entered: ['before'] },
    machine: {
      ...{ processor: 'P', cores: 2, memoryGiB: 1, kernel: 'k', node: 'n', openssl: 'o', httpProxy3: 'h' },
      ...{ commit: 'c', pinned: true, raised: true, loadBefore: 0 },
    },
  };

  it('shows every row with its interval, bar and verdict', () => {
    const text = barTable([summarise(metric, rounds)]);
    assert.match(text, /^\| A thing \| ms \| 2\.50 \| 1\.00–3\.00 \| ≤ 2 \| no verdict \|$/m);
  });

  it('shows what each proxy adds, and ratios in which the speed of the machine cancels out', () => {
    const rounds = [1, 2, 3].map((speed) => ({
      figures: {},
      values: {
        'direct, alone, p50 ms': speed,
        'ours, alone, p50 ms': 2 * speed,
        'before, alone, p50 ms': 1.5 * speed,
      },
    }));
    const text = toMarkdown({ ...report, measured: [{ metric: 'ttft_added', rows: [], rounds }] });
    const cells = '2.00 (1.00–3.00) | - | 1.00 (0.50–1.50) | - | 2.00 (2.00–2.00)';
    assert.ok(text.includes(`| First token, one request at a time, p50: ms | ${cells} |`), text);
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
    it(`${failing ? 'fails' : 'passes'} ${figures.join(', ')} ${row.figure} if the bar is ${row.bar.kind} ${row.bar.limit} and the factor 1.5`, () => {
      const found = figures.map((figure) => ({ figures: { [row.id]: figure }, values: {} }));
      const beyond = farBeyond([summarise({ name: 'm', rows: [row] }, found)], 1.5);
      const ids = beyond.map(({ id }) => id);
      assert.deepEqual(ids, failing ? [row.id] : []);
    });
  }

  it('has unique row ids and metric names, and at least three rounds for each metric', () => {
    const ids = METRICS.flatMap(({ rows }) => rows.map(({ id }) => id));
    assert.equal(new Set(ids).size, ids.length);
    assert.equal(new Set(METRICS.map(({ name }) => name)).size, METRICS.length);
    for (const { name, rounds: planned } of METRICS) assert.ok(planned.full >= 3, name);
  });
});
