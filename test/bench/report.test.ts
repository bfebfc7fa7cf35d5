import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { describe, it } from 'node:test';
import { addedSection } from '../../bench/added.ts';
import { METRICS } from '../../bench/metrics.ts';
import { newestReport } from '../../bench/readme.ts';
import { barTable, farBeyond, summarise, valuesOf } from '../../bench/report.ts';

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

  it('shows every row with its interval, bar and verdict', () => {
    const table = barTable([summarise(metric, rounds)]).split('\n');
    assert.equal(table.length, 3);
    assert.match(table[2] as string, /^\| A thing \| ms \| 2\.50 \| 1\.00 – 3\.00 \| ≤ 2 \| no verdict \|$/);
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
      assert.deepEqual(
        beyond.map(({ id }) => id),
        failing ? [row.id] : [],
      );
    });
  }

  it('shows the time a proxy adds, and its ratio to the reference, only if the machine was quiet and the rounds agree', () => {
    /** Rounds of a machine of that speed: all times are multiplied by it. */
    const report = (ours: readonly number[], loadBefore: number, speeds = ours.map(() => 1)): string => {
      const rounds = ours.map((time, i) => {
        const [direct, own, reference] = [1, time, 1.5].map((each) => each * speeds[i]!);
        return {
          figures: {},
          values: {
            'direct, alone, p50 ms': direct!,
            'ours, alone, p50 ms': own!,
            'reference, alone, p50 ms': reference!,
          },
        };
      });
      return addedSection({
        ...newestReport(),
        ...{ measured: [{ metric: 'ttft_added', rows: [], rounds }], entered: ['reference'] },
        machine: { ...newestReport().machine, loadBefore },
      });
    };
    const rowOf = (text: string): string | undefined => /^\| First token, one .*$/m.exec(text)?.[0];
    const title = 'First token, one request at a time, p50: ms';
    const reference = '0.50 (0.50 – 0.50)';
    const twice = '2.00 (2.00 – 2.00)';
    assert.equal(
      rowOf(report([2, 2, 2], 0.1)),
      `| ${title} | - | ${reference} | 1.00 (1.00 – 1.00) | ${twice} |`,
    );
    assert.equal(rowOf(report([1.7, 2, 2], 0.1)), `| ${title} | - | ${reference} | not shown | not shown |`);
    assert.equal(rowOf(report([2, 2, 2], 0.2)), `| ${title} | - | not shown | not shown | not shown |`);
    const uneven = report([2, 2, 2], 0.1, [1, 2, 3]);
    assert.equal(rowOf(uneven), `| ${title} | - | not shown | not shown | ${twice} |`);
  });

  it('is what bench/README.md shows of the newest saved run', () => {
    const readme = readFileSync(new URL('../../bench/README.md', import.meta.url), 'utf8');
    assert.ok(readme.includes(addedSection(newestReport())), 'node bench/readme.ts brings it up to date');
  });

  it('has unique row ids and metric names, and at least three rounds for each metric', () => {
    const ids = METRICS.flatMap(({ rows }) => rows.map(({ id }) => id));
    assert.equal(new Set(ids).size, ids.length);
    assert.equal(new Set(METRICS.map(({ name }) => name)).size, METRICS.length);
    for (const { name, rounds: planned } of METRICS) assert.ok(planned.full >= 3, name);
  });
});
