/** What a proxy adds to a request, for people who choose one: the table of bench/README.md. */
import { digits, type Measured, type Report, table } from './report.ts';
import { type Estimate, estimate } from './stats.ts';

interface Row {
  readonly title: string;
  readonly metric: string;
  /** The value of a metric, without the name of its subject. */
  readonly value: string;
  /** Whether it counts over what is measured without any proxy. */
  readonly overDirect: boolean;
}

const FIRST_TOKEN = { metric: 'ttft_added', overDirect: true } as const;
const MOCK = { metric: 'field_mock', overDirect: true } as const;
const ROWS: readonly Row[] = [
  { title: 'First token, one request at a time, p50: ms', ...FIRST_TOKEN, value: 'alone, p50 ms' },
  { title: 'the same, p99: ms', ...FIRST_TOKEN, value: 'alone, p99 ms' },
  { title: 'First token beside 50 streams, p50: ms', ...FIRST_TOKEN, value: 'staggered, p50 ms' },
  { title: 'the same, p99: ms', ...FIRST_TOKEN, value: 'staggered, p99 ms' },
  { title: '100 streams of 64 tokens × 20 ms, first token p50: ms', ...MOCK, value: 'first token, p50 ms' },
  { title: 'the same, p99: ms', ...MOCK, value: 'first token, p99 ms' },
  { title: 'the same, whole response p50: ms', ...MOCK, value: 'whole, p50 ms' },
  {
    title: 'CPU per token, 100 streams × 50 tokens/s: µs',
    ...{ metric: 'stream_cpu_per_token', value: 'µs/event', overDirect: false },
  },
  {
    title: 'Requests per second of one core, 20 tokens each, 64 in flight',
    ...{ metric: 'request_rate', value: 'requests/s of its core', overDirect: false },
  },
  {
    title: 'CPU per request of 3 tokens, one at a time: µs',
    ...{ metric: 'request_cpu', value: 'µs/request', overDirect: false },
  },
  {
    title: 'Memory per stream, 200 to 1,000 of them: KB',
    ...{ metric: 'mem_per_stream', value: 'KB/stream', overDirect: false },
  },
];

/** The metrics of the table: a run of them alone takes some ten minutes. */
export const ADDED_METRICS: ReadonlySet<string> = new Set(ROWS.map(({ metric }) => metric));

/** One-minute load average above which somebody else was at work, and a figure is not shown. */
const QUIET = 0.2;
/**
 * An interval that reaches further than this share of the median to either side tells too little to be shown.
 */
const WIDE = 0.15;

/** What a proxy costs in each round that has the row. */
function costsOf(measured: readonly Measured[], name: string, row: Row): ReadonlyMap<unknown, number> {
  const rounds = measured.find(({ metric }) => metric === row.metric)?.rounds ?? [];
  const costs = rounds.map((round) => {
    const [own, direct] = [round.values[`${name}, ${row.value}`], round.values[`direct, ${row.value}`]];
    return [round, (own ?? Number.NaN) - (row.overDirect ? (direct ?? Number.NaN) : 0)] as const;
  });
  return new Map(costs.filter(([, cost]) => Number.isFinite(cost)));
}

/** Undefined where no round has a figure. */
const estimateOf = (found: readonly number[]): Estimate | undefined =>
  found.length === 0 ? undefined : estimate(found);

/**
 * What `name` costs, divided by what `other` costs in the same round: the speed of the machine cancels out.
 */
function ratioOf(measured: readonly Measured[], [name, other]: readonly [string, string], row: Row) {
  const others = costsOf(measured, other, row);
  const ratios = [...costsOf(measured, name, row)].map(
    ([round, cost]) => cost / (others.get(round) ?? Number.NaN),
  );
  return estimateOf(ratios.filter(Number.isFinite));
}

function shown(cost: Estimate | undefined, loadBefore: number): string {
  if (cost === undefined) return '-';
  const { median, low, high } = cost;
  const isWide = Math.max(high - median, median - low) > WIDE * Math.abs(median);
  if (loadBefore >= QUIET || isWide) return 'not shown';
  return `${digits(median)} (${digits(low)} – ${digits(high)})`;
}

/** The table with a line on where it was taken. `reference` has a column if it took part. */
export function addedSection({ version, date, machine, measured, entered }: Report): string {
  const subjects = [
    ['passthrough', 'a bare http-proxy-3'],
    ...(entered.includes('reference') ? [['reference', 'the Go reference']] : []),
    ['ours', 'this program'],
  ] as const;
  const show = (cost: Estimate | undefined): string => shown(cost, machine.loadBefore);
  const compared = entered.includes('reference');
  const rows = ROWS.map((row) => [
    row.title,
    ...subjects.map(([name = '']) => show(estimateOf([...costsOf(measured, name, row).values()]))),
    ...(compared ? [show(ratioOf(measured, ['ours', 'reference'], row))] : []),
  ]);
  return `Version ${version}, ${date}, ${machine.processor} with ${machine.cores} cores, Node ${machine.node}, load average ${machine.loadBefore} before the run.

${table(['added to a request', ...subjects.map(([, title = '']) => title), ...(compared ? ['this program ÷ the Go reference'] : [])], rows)}

First tokens and responses are what is added to the same request without a proxy; the others are the proxy's own. Medians of the rounds, with 95 % intervals;
the last column is the median of the ratios round by round, in which the speed of the machine cancels out.
"Not shown": the interval is wider than ±15 %, or others used the machine. The bare http-proxy-3 verifies and encrypts nothing. The Go reference is
v1.40 of its makers, built with the roots of the simulated hardware. Rows against our own bars: [results/${version}.md](results/${version}.md), and the [time between tokens](results/inter-token.svg) as a chart.`;
}
