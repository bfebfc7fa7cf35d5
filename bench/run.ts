/**
 * Measures the built program (dist/) against its bars. `--help` lists the options, and bench/README.md tells
 * what each does.
 */
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { parseArgs } from 'node:util';
import { VERSION } from '../lib/version.ts';
import { replaceSection } from '../scripts/marked-section.ts';
import { entryOf, referenceEntry } from './entries.ts';
import { chatBody } from './fixtures.ts';
import { warmUp } from './fresh.ts';
import { checkAnswers } from './gate.ts';
import { openStream } from './load.ts';
import { describeMachine } from './machine.ts';
import type { Metric, Round } from './metric.ts';
import { saturate } from './metrics/stream-saturated.ts';
import { bare } from './metrics/upload.ts';
import { METRICS } from './metrics.ts';
import { PINNABLE, raisePriority } from './processes.ts';
import {
  barTable,
  farBeyond,
  type Measured,
  type Report,
  summarise,
  toMarkdown,
  valuesOf,
} from './report.ts';
import { type Subjects, startSubjects } from './subjects.ts';

const USAGE = `Usage: node bench/run.ts [--quick] [--only NAME,...] [--rounds N] [--save] [--fail-above FACTOR]
                         [--profile DIR] [--reference FILE] [--subject NAME=WHAT]... [--pin on|off]

bench/README.md tells what each option does.`;

const { values: options } = parseArgs({
  options: {
    help: { type: 'boolean', short: 'h', default: false },
    quick: { type: 'boolean', default: false },
    only: { type: 'string' },
    rounds: { type: 'string' },
    reference: { type: 'string' },
    subject: { type: 'string', multiple: true, default: [] },
    pin: { type: 'string', default: 'on' },
    profile: { type: 'string' },
    save: { type: 'boolean', default: false },
    'fail-above': { type: 'string' },
  },
});
if (options.help) {
  console.log(USAGE);
  process.exit();
}
const { quick } = options;
const wanted = options.only?.split(',');
const unknown = wanted?.filter((name) => METRICS.every((metric) => metric.name !== name)) ?? [];
if (unknown.length > 0) throw new Error(`no metric ${unknown}; there are ${METRICS.map(({ name }) => name)}`);
if (options.save && options.only !== undefined) throw new Error('a table of some metrics is not saved');
const metrics = METRICS.filter(({ name }) => wanted === undefined || wanted.includes(name));
const roundsOf = ({ rounds }: Metric): number =>
  Number(options.rounds ?? (quick ? rounds.quick : rounds.full));
/** Bursts of 16 000 events for each subject before anything counts. */
const WARM_UP = quick ? 2 : 6;
const say = (text: string): boolean => process.stderr.write(`${text}\n`);

const directory = mkdtempSync(join(tmpdir(), 'privatemode-bench-'));
const entries = options.subject.map(entryOf);
if (options.reference !== undefined) {
  const file = resolve(options.reference);
  // The roots that it was built with, and the hardware whose evidence they vouch for. Copied, since the run
  // writes there.
  cpSync(join(dirname(file), 'directory'), directory, { recursive: true });
  entries.push(['reference', referenceEntry(file)]);
}
const restorePriority = raisePriority();
process.once('exit', () => restorePriority?.());
for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => process.exit(1));
const pinned = options.pin !== 'off' && PINNABLE;
const machine = describeMachine(restorePriority !== undefined, pinned);
let subjects: Subjects | undefined;
try {
  subjects = await startSubjects(directory, Object.fromEntries(entries), {
    profile: options.profile,
    pinned,
  });
  await measureAll(subjects);
} finally {
  await subjects?.close();
  rmSync(directory, { recursive: true, force: true });
}
process.exit();

async function measureAll(all: Subjects): Promise<void> {
  await prepare(all);
  const date = new Date().toISOString().slice(0, 10);
  finish({ version: VERSION, date, quick, machine, measured: await measure(all), entered: all.entered });
}

/** The gate, then enough load for the compilers to have done their work. */
async function prepare(all: Subjects): Promise<void> {
  for (const name of ['direct', 'passthrough', 'ours', 'ours, shared salt', ...all.entered]) {
    const subject = await all.get(name);
    const { target, pid } = subject;
    await checkAnswers(subject);
    say(`${name}: answers are right`);
    if (name === 'direct') continue;
    for (let i = 0; i < WARM_UP; i++) await saturate(target, pid, 1_000);
    await warmUp(subject, quick);
    const prompt = target.sealed ? undefined : chatBody({}, 2_000_000);
    for (let i = 0; i < 2 * WARM_UP; i++) await (await openStream(target, {}, prompt)).finished;
  }
  await all.limit({ type: 'open', events: 20_000 });
  for (let i = 0; i < WARM_UP; i++) await bare(all, 2_000_000);
}

/**
 * The rounds of each metric are spread over the whole run, so that a minute of noise spoils a few of each and
 * all of none.
 */
async function measure(all: Subjects): Promise<Measured[]> {
  const rounds = new Map<Metric, Round[]>(metrics.map((metric) => [metric, []]));
  const steps = Math.max(...metrics.map(roundsOf));
  const from = performance.now();
  for (let step = 1; step <= steps; step++) {
    for (const [metric, done] of rounds) {
      const due = Math.floor((step * roundsOf(metric)) / steps);
      while (done.length < due) done.push(await metric.round(all, quick));
    }
    say(`${step} of ${steps} rounds after ${((performance.now() - from) / 1000).toFixed(0)} s`);
  }
  const measured = [...rounds].filter(([, { length }]) => length > 0).map((entry) => summarise(...entry));
  for (const found of measured) tell(found);
  return measured;
}

function tell(found: Measured): void {
  for (const { id, median, low, high, bar, verdict } of found.rows) {
    const interval = `${low.toFixed(2)} – ${high.toFixed(2)}`;
    const held = bar === undefined ? 'no bar' : `bar ${bar.kind} ${bar.limit}: ${verdict}`;
    say(`${id}: ${median.toFixed(3)} (${interval}), ${held}`);
  }
  for (const [name, value] of Object.entries(valuesOf(found))) say(`    ${name}: ${value.toFixed(2)}`);
}

function finish(report: Report): void {
  const section = toMarkdown(report);
  process.stdout.write(section + barTable(report.measured));
  if (options.save) {
    const readme = join(import.meta.dirname, 'README.md');
    writeFileSync(readme, replaceSection(readFileSync(readme, 'utf8'), 'bench', section));
  }
  const failures = farBeyond(report.measured, Number(options['fail-above'] ?? Number.POSITIVE_INFINITY));
  for (const { id, median, bar } of failures)
    say(`${id} is ${median.toFixed(2)}, the bar is ${bar?.kind} ${bar?.limit}`);
  if (failures.length > 0) process.exitCode = 1;
}
