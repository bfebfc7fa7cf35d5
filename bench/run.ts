/**
 * node bench/run.ts [--quick] [--only NAME,...] [--rounds N] [--subject NAME=URL]... [--save] [--fail-above FACTOR] [--profile DIR]
 *
 * Measures the built program (dist/) against its bars. --save commits nothing, but writes bench/results and the README's
 * part; otherwise everything goes to bench/out. --fail-above exits with 1 where a ratio is more than FACTOR times its bar.
 * --profile writes CPU profiles of the subjects. A URL may carry ?pid=N, the process whose CPU time counts.
 */
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { VERSION } from '../lib/version.ts';
import { replaceSection } from '../scripts/marked-section.ts';
import { interTokenChart } from './chart.ts';
import { chatBody } from './fixtures.ts';
import { checkAnswers } from './gate.ts';
import { openStream } from './load.ts';
import { describeMachine } from './machine.ts';
import type { Metric, Round } from './metric.ts';
import { PERCENTILES } from './metrics/inter-token.ts';
import { saturate } from './metrics/stream-saturated.ts';
import { METRICS } from './metrics.ts';
import { type Measured, type Report, type Result, summarise, toMarkdown, valuesOf } from './report.ts';
import { excess } from './stats.ts';
import { type Subjects, startSubjects } from './subjects.ts';

const { values: options } = parseArgs({
  options: {
    quick: { type: 'boolean', default: false },
    only: { type: 'string' },
    rounds: { type: 'string' },
    subject: { type: 'string', multiple: true, default: [] },
    profile: { type: 'string' },
    save: { type: 'boolean', default: false },
    'fail-above': { type: 'string' },
  },
});
const { quick } = options;
const wanted = options.only?.split(',');
const metrics = METRICS.filter(({ name }) => wanted === undefined || wanted.includes(name));
const roundsOf = ({ rounds }: Metric): number =>
  Number(options.rounds ?? (quick ? rounds.quick : rounds.full));
/** Bursts of 16 000 events for each subject before anything counts. */
const WARM_UP = quick ? 3 : 6;
const say = (text: string): boolean => process.stderr.write(`${text}\n`);

const directory = mkdtempSync(join(tmpdir(), 'privatemode-bench-'));
const machine = describeMachine();
let subjects: Subjects | undefined;
try {
  subjects = await startSubjects(directory, Object.fromEntries(options.subject.map(named)), options);
  await prepare(subjects);
  const measured: Measured[] = [];
  for (const metric of metrics) measured.push(...(await measure(metric, subjects)));
  finish({
    version: VERSION,
    date: new Date().toISOString().slice(0, 10),
    quick,
    machine,
    measured,
  });
} finally {
  await subjects?.close();
  rmSync(directory, { recursive: true, force: true });
}
process.exit();

function named(argument: string): [string, URL] {
  const at = argument.indexOf('=');
  return [argument.slice(0, at), new URL(argument.slice(at + 1))];
}

/** The gate, then enough load for the compilers to have done their work. */
async function prepare(all: Subjects): Promise<void> {
  for (const name of ['direct', 'passthrough', 'ours', 'ours, shared salt', ...all.external]) {
    const subject = await all.get(name);
    await checkAnswers(subject);
    if (subject.pid !== undefined) {
      for (let i = 0; i < WARM_UP; i++) await saturate(subject.target, subject.pid, 1_000);
      const prompt = subject.target.sealed ? undefined : chatBody({}, 2_000_000);
      for (let i = 0; i < 2 * WARM_UP; i++) await (await openStream(subject.target, {}, prompt)).finished;
    }
    say(`${name}: answers are right`);
  }
}

async function measure(metric: Metric, all: Subjects): Promise<Measured[]> {
  const rounds: Round[] = [];
  const from = performance.now();
  for (let i = 0; i < roundsOf(metric); i++) rounds.push(await metric.round(all, quick));
  if (rounds.length === 0) return [];
  const measured = summarise(metric, rounds);
  const seconds = ((performance.now() - from) / 1000).toFixed(0);
  for (const { id, median, low, high, bar, verdict } of measured.rows) {
    const interval = `${low.toFixed(2)} – ${high.toFixed(2)}`;
    say(`${id}: ${median.toFixed(3)} (${interval}), bar ${bar.kind} ${bar.limit}: ${verdict} [${seconds} s]`);
  }
  for (const [name, value] of Object.entries(valuesOf(measured))) say(`    ${name}: ${value.toFixed(2)}`);
  return [measured];
}

function finish(report: Report): void {
  const target = join(import.meta.dirname, options.save ? 'results' : 'out');
  mkdirSync(target, { recursive: true });
  const markdown = toMarkdown(report);
  writeFileSync(join(target, `${report.version}.json`), `${JSON.stringify(report, undefined, 1)}\n`);
  writeFileSync(join(target, `${report.version}.md`), markdown);
  const gaps = report.measured.find(({ metric }) => metric === 'inter_token');
  if (gaps !== undefined) writeFileSync(join(target, 'inter-token.svg'), chartOf(gaps));
  if (options.save) updateReadme(report);
  process.stdout.write(markdown);

  const factor = Number(options['fail-above'] ?? Number.POSITIVE_INFINITY);
  const failures = report.measured.flatMap(({ rows }) => rows).filter((row) => isBeyond(row, factor));
  for (const { id, median, bar } of failures)
    say(`${id} is ${median.toFixed(2)}, the bar is ${bar.kind} ${bar.limit}`);
  if (failures.length > 0) process.exitCode = 1;
}

/** Of ratios only, and only where even the kinder end of the interval is that many times the bar: noise must not block. */
function isBeyond({ figure, low, high, bar }: Result, factor: number): boolean {
  return figure.startsWith('÷') && excess(bar.kind === 'at most' ? low : high, bar) > factor;
}

function chartOf(gaps: Measured): string {
  const values = valuesOf(gaps);
  return interTokenChart(
    ['direct', 'passthrough', 'ours'].map((name) => ({
      name,
      points: PERCENTILES.map((p) => [p, values[`${name}, p${100 * p} ms`] as number] as const),
    })),
  );
}

function updateReadme({ version }: Report): void {
  const path = join(import.meta.dirname, '../README.md');
  const section = `![Time between tokens with and without the proxy](bench/results/inter-token.svg)

The whole table, what it was taken on and which bars are not met yet:
[bench/results/${version}.md](bench/results/${version}.md); \`npm run bench\` measures again.`;
  writeFileSync(path, replaceSection(readFileSync(path, 'utf8'), 'bench', section));
}
