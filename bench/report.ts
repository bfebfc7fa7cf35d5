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
  /** Where a token's processor time goes (stages.ts). */
  readonly stages?: Readonly<Record<string, number>> | undefined;
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

/** A figure of ours beside the same of a proxy that was entered. */
export interface Comparison extends Estimate {
  readonly what: string;
  /** Medians over the rounds. */
  readonly ours: number;
  readonly other: number;
}

/**
 * Ours ÷ other, round by round, for each value that both have. Ratios of machine's figures, and so not the
 * machine's.
 */
export const comparisons = (measured: readonly Measured[], other: string): readonly Comparison[] =>
  measured.flatMap(({ metric, rounds }) =>
    Object.keys(rounds[0]?.values ?? {})
      .filter(
        (name) => name.startsWith('ours, ') && `${other}${name.slice('ours'.length)}` in rounds[0]!.values,
      )
      .flatMap((name): Comparison[] => {
        const all = (key: string): number[] => rounds.map(({ values }) => values[key] as number);
        const [ours, others] = [all(name), all(`${other}${name.slice('ours'.length)}`)];
        const ratios = ours.map((value, i) => value / others[i]!).filter(Number.isFinite);
        const what = `${metric}: ${name.slice('ours, '.length)}`;
        if (ratios.length === 0) return []; // the other never had a figure
        return [{ what, ours: median(ours), other: median(others), ...estimate(ratios) }];
      }),
  );

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

export const digits = (value: number): string =>
  value.toFixed(Math.abs(value) >= 100 ? 0 : Math.abs(value) >= 10 ? 1 : 2);
const WORDS: Record<Verdict, string> = {
  met: 'met',
  missed: '**missed**',
  unclear: 'no verdict',
  none: '-',
};
const SIGNS = { 'at most': '≤', 'at least': '≥' } as const;

export const table = (head: readonly string[], rows: readonly (readonly string[])[]): string =>
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
        barOf(row),
        WORDS[row.verdict],
      ]),
    ),
  );

const barOf = ({ bar }: Row): string => (bar === undefined ? '-' : `${SIGNS[bar.kind]} ${bar.limit}`);

const comparisonTable = (measured: readonly Measured[], other: string): string =>
  table(
    ['what', 'ours', other, `ours ÷ ${other}`, '95 % interval'],
    comparisons(measured, other).map((found) => [
      found.what,
      digits(found.ours),
      digits(found.other),
      digits(found.median),
      `${digits(found.low)} – ${digits(found.high)}`,
    ]),
  );

const stagesTable = (stages: Readonly<Record<string, number>>): string =>
  table(
    ['stage', 'share of the processor time'],
    Object.entries(stages).map(([stage, share]) => [stage, `${(100 * share).toFixed(0)} %`]),
  );

export function toMarkdown(report: Report): string {
  const { version, date, quick, machine, measured, entered, stages } = report;
  return `# Benchmark of ${version}

${date}, commit ${machine.commit}${quick ? ', quick run' : ''}. ${machine.processor}, ${machine.cores} cores, ${machine.memoryGiB} GiB,
Linux ${machine.kernel}, Node ${machine.node}, OpenSSL ${machine.openssl}, http-proxy-3 ${machine.httpProxy3};
processes ${machine.pinned ? 'pinned: the subject to one core, upstream and generator to the other' : 'unpinned'}, ${machine.raised ? 'of raised priority' : 'of normal priority'};
load average before the run ${machine.loadBefore}.

Figures are medians of what each round found, rounds interleaved, with bootstrap intervals. An interval that lies on one side of
its bar gives the verdict; with the bar inside it the median does, or, where it is wider than ±10 % of the median, nothing.
\`passthrough\` is a bare http-proxy-3 over TLS, \`limit\` the cryptography alone on the same bytes.

${barTable(measured)}
${entered.map((other) => `\n## Ours beside ${other}\n\n${comparisonTable(measured, other)}\n`).join('')}${stages === undefined ? '' : `\n## Where the time of a token goes\n\nFrom a profile of 100 streams × 50 tokens/s.\n\n${stagesTable(stages)}\n`}`;
}
