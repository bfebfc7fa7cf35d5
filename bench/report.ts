/** Rounds become a table: for programs as JSON, for people as Markdown. */
import type { Machine } from './machine.ts';
import type { Metric, Round, Row } from './metric.ts';
import { type Estimate, estimate, excess, median, type Verdict, verdictOf } from './stats.ts';

export interface Measured {
  readonly metric: string;
  readonly rows: readonly Result[];
  readonly rounds: readonly Round[];
}

export interface Result extends Row, Estimate {
  readonly verdict: Verdict;
  /** How many times the bar the figure is; above 1 it is missed. */
  readonly excess: number;
}

export interface Report {
  readonly version: string;
  readonly date: string;
  readonly quick: boolean;
  readonly machine: Machine;
  readonly measured: readonly Measured[];
}

export function summarise(metric: Pick<Metric, 'name' | 'rows'>, rounds: readonly Round[]): Measured {
  const rows = metric.rows.map((row): Result => {
    const found = estimate(rounds.map(({ figures }) => figures[row.id] as number));
    return {
      ...row,
      ...found,
      verdict: verdictOf(found, row.bar),
      excess: excess(found.median, row.bar),
    };
  });
  return { metric: metric.name, rows, rounds };
}

/** The medians over the rounds of what the figures were made from. */
export function valuesOf({ rounds }: Pick<Measured, 'rounds'>): Record<string, number> {
  const names = Object.keys(rounds[0]?.values ?? {});
  return Object.fromEntries(
    names.map((name) => [name, median(rounds.map(({ values }) => values[name] as number))]),
  );
}

const digits = (value: number): string =>
  value.toFixed(Math.abs(value) >= 100 ? 0 : Math.abs(value) >= 10 ? 1 : 2);
const WORDS: Record<Verdict, string> = {
  met: 'met',
  missed: '**missed**',
  unclear: 'no verdict',
};
const SIGNS = { 'at most': '≤', 'at least': '≥' } as const;

const table = (head: readonly string[], rows: readonly (readonly string[])[]): string =>
  [head, head.map(() => '---'), ...rows].map((cells) => `| ${cells.join(' | ')} |`).join('\n');

/** The bars and how they were met. */
export const barTable = (measured: readonly Measured[]): string =>
  table(
    ['what', 'figure', 'median', '95 % interval', 'bar', 'verdict'],
    measured.flatMap(({ rows }) =>
      rows.map((row) => [
        row.title,
        row.figure,
        digits(row.median),
        `${digits(row.low)} – ${digits(row.high)}`,
        `${SIGNS[row.bar.kind]} ${row.bar.limit}`,
        WORDS[row.verdict],
      ]),
    ),
  );

export function toMarkdown({ version, date, quick, machine, measured }: Report): string {
  const values = measured.flatMap((entry) =>
    Object.entries(valuesOf(entry)).map(([name, value], index) => [
      index === 0 ? entry.metric : '',
      name,
      digits(value),
    ]),
  );
  return `# Benchmark of ${version}

${date}, commit ${machine.commit}${quick ? ', quick run' : ''}. ${machine.processor}, ${machine.cores} cores, ${machine.memoryGiB} GiB,
Linux ${machine.kernel}, Node ${machine.node}, OpenSSL ${machine.openssl}, http-proxy-3 ${machine.httpProxy3};
processes ${machine.pinned ? 'pinned: the subject to one core, upstream and generator to the other' : 'unpinned'};
load average before the run ${machine.loadBefore}.

Figures are medians of per-round ratios, rounds interleaved, with bootstrap intervals; an interval wider than ±10 % that
crosses its bar gives no verdict. \`passthrough\` is a bare http-proxy-3 over TLS, \`limit\` the cryptography alone on the same bytes.

${barTable(measured)}

## What the figures were made from

Medians over the rounds.

${table(['metric', 'value', 'median'], values)}
`;
}
