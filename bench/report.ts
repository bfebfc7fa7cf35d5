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
  /** How many times the bar the figure is; above 1 it is missed. NaN without a bar. */
  readonly excess: number;
}

export interface Report {
  readonly version: string;
  readonly date: string;
  readonly quick: boolean;
  readonly machine: Machine;
  readonly measured: readonly Measured[];
  /** Names given with --subject. */
  readonly entered: readonly string[];
}

export function summarise(metric: Pick<Metric, 'name' | 'rows'>, rounds: readonly Round[]): Measured {
  const measured = metric.rows.filter(({ id }) => rounds.some(({ figures }) => id in figures));
  const rows = measured.map((row): Result => {
    const figures = rounds.map((round) => round.figures[row.id] as number);
    const found = estimate(figures.filter(Number.isFinite)); // a round whose yardstick gave up tells nothing
    return {
      ...row,
      ...found,
      verdict: row.bar === undefined ? 'none' : verdictOf(found, row.bar),
      excess: row.bar === undefined ? Number.NaN : excess(found.median, row.bar),
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

/** What a proxy costs, for people who choose one: a value of a metric, in some rows less that of `direct`. */
const COSTS = [
  ['First token, one request at a time, p50: ms', 'ttft_added', 'alone, p50 ms', 'over direct'],
  ['First token beside 50 streams, p50: ms', 'ttft_added', 'staggered, p50 ms', 'over direct'],
  ['CPU per token, 100 streams × 50 tokens/s: µs', 'stream_cpu_per_token', 'µs/event'],
  ['CPU per token, 16 streams as fast as they go: µs', 'stream_saturated', 'µs/event'],
  ['CPU per request of 3 tokens, one at a time: µs', 'request_cpu', 'µs/request'],
  ['Requests per second of one core, 20 tokens each', 'request_rate', 'requests/s of its core'],
  ['Memory per stream, 200 to 1,000 of them: KB', 'mem_per_stream', 'KB/stream'],
  ['Prompt of 2 MB at once, CPU: ms', 'upload_2_mb', 'CPU ms'],
  ['Prompt of 16 MB at once, CPU: ms', 'upload_16_mb', 'CPU ms'],
] as const;

/** What `name` costs in each round; NaN where it was not measured. */
function costs(rounds: readonly Round[], name: string, [, , value, over]: (typeof COSTS)[number]): number[] {
  const of = (who: string, values: Round['values']): number => values[`${who}, ${value}`] ?? Number.NaN;
  return rounds.map(({ values }) => of(name, values) - (over === undefined ? 0 : of('direct', values)));
}

const shown = (figures: readonly number[]): string => {
  const found = figures.filter(Number.isFinite);
  if (found.length === 0) return '-';
  const { median, low, high } = estimate(found);
  return `${digits(median)} (${digits(low)}–${digits(high)})`;
};

/** Each proxy's cost, and ours ÷ each other's, round by round: in a ratio the machine's speed cancels out. */
function costTable(measured: readonly Measured[], entered: readonly string[]): string {
  const others = ['passthrough', ...entered];
  const rows = COSTS.flatMap((row) => {
    const rounds = measured.find(({ metric }) => metric === row[1])?.rounds ?? [];
    if (rounds.length === 0) return [];
    const ours = costs(rounds, 'ours', row);
    const all = others.map((name) => costs(rounds, name, row));
    const ratios = all.map((other) => shown(ours.map((cost, i) => cost / other[i]!)));
    return [[row[0], shown(ours), ...all.map(shown), ...ratios]];
  });
  return table(['cost', 'ours', ...others, ...others.map((name) => `ours ÷ ${name}`)], rows);
}

/**
 * Ratios that are more than `factor` times their bar even at the kinder end of their interval: noise must not
 * block. Figures with a unit depend on the machine and never count.
 */
export const farBeyond = (measured: readonly Measured[], factor: number): readonly Result[] =>
  measured
    .flatMap(({ rows }) => rows)
    .filter(({ figure }) => figure.startsWith('÷'))
    .filter(
      ({ bar, low, high }) => bar !== undefined && excess(bar.kind === 'at most' ? low : high, bar) > factor,
    );

const digits = (value: number): string =>
  value.toFixed(Math.abs(value) >= 100 ? 0 : Math.abs(value) >= 10 ? 1 : 2);
const WORDS: Record<Verdict, string> = {
  met: 'met',
  missed: '**missed**',
  unclear: 'no verdict',
  none: '-',
};
const SIGNS = { 'at most': '≤', 'at least': '≥' } as const;

const table = (head: readonly string[], rows: readonly (readonly string[])[]): string =>
  [head, head.map(() => '---'), ...rows].map((cells) => `| ${cells.join(' | ')} |`).join('\n');

/** The bars and how they were met, which a run prints. */
export const barTable = (measured: readonly Measured[]): string => `
Against the bars. An interval on one side of its bar gives the verdict; with the bar inside, the median does, or, where it is wider than ±10 %, nothing.

${table(
  ['what', 'figure', 'median', '95 % interval', 'bar', 'verdict'],
  measured.flatMap(({ rows }) =>
    rows.map((row) => [
      row.title,
      row.figure,
      digits(row.median),
      `${digits(row.low)}–${digits(row.high)}`,
      barOf(row),
      WORDS[row.verdict],
    ]),
  ),
)}
`;

const barOf = ({ bar }: Row): string => (bar === undefined ? '-' : `${SIGNS[bar.kind]} ${bar.limit}`);

/** What each proxy costs: the section of bench/README.md. */
export function toMarkdown({ version, date, quick, machine, measured, entered }: Report): string {
  return `
Version ${version}, ${date}, commit ${machine.commit}${quick ? ', quick run' : ''}. ${machine.processor}, ${machine.cores} cores, ${machine.memoryGiB} GiB, Linux ${machine.kernel}, Node ${machine.node}, OpenSSL ${machine.openssl}, http-proxy-3 ${machine.httpProxy3};
processes ${machine.pinned ? 'pinned: the subject to one core, upstream and generator to the other' : 'unpinned'}, ${machine.raised ? 'of raised priority' : 'of normal priority'}; load average before the run ${machine.loadBefore}.

Medians of the rounds with their 95 % bootstrap intervals. Figures with a unit depend on the machine. First tokens are what is added to the same request without a proxy.

${costTable(measured, entered)}
`;
}
