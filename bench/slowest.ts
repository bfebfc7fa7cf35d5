/**
 * node bench/slowest.ts [--subject NAME=WHAT]... [--count N] [--own]
 *
 * Where the time of the slowest first tokens goes, beside 50 streams: of each step, and what held it up. For
 * the pass-through, ours, and what is entered (a build). --own: the slowest by what is left without the waits
 * for a processor, the generator and the upstream, which on a machine with other work are nearly all.
 */
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { constants } from 'node:perf_hooks';
import { setTimeout as delay } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { entryOf } from './entries.ts';
import { modelOf } from './fixtures.ts';
import { warmUp } from './fresh.ts';
import { openStream } from './load.ts';
import { besideStreams } from './metrics/first-token.ts';
import { importing, PINNABLE, raisePriority } from './processes.ts';
import { table } from './report.ts';
import { median, quantile } from './stats.ts';
import { type Subjects, startSubjects } from './subjects.ts';
import { ANSWERED, BEGUN, READ, SENT, startTrace, type Trace } from './trace.ts';
import type { UpstreamNote } from './upstream.ts';

const { values: options } = parseArgs({
  options: {
    subject: { type: 'string', multiple: true, default: [] },
    count: { type: 'string', default: '1000' },
    own: { type: 'boolean', default: false },
  },
});
const SHOWN = 10;
/** ms after which a timer that is due each ms was late because the loop was held. */
const HELD = 3;

/**
 * From the client's write to its first token: each with whether the subject, the generator or the upstream
 * has to do it.
 */
const STEPS = {
  'to the subject, head read': ['subject', 'generator'],
  'upstream request begun': ['subject'],
  'body sealed and sent': ['subject'],
  'at the upstream': ['upstream'],
  answered: ['subject', 'upstream'],
  'opened, at the client': ['subject', 'generator'],
} as const;
const CAUSES = [
  'collection',
  'not scheduled',
  'loop held otherwise',
  'generator',
  'upstream',
  'usual work',
] as const;
/** Nothing of the subject's. */
const OTHERS = ['not scheduled', 'generator', 'upstream'] as const;
type Causes = Record<(typeof CAUSES)[number], number>;
type Interval = readonly [from: number, to: number, kind?: number];

interface Request {
  /** The moments between which the steps lie. */
  readonly moments: readonly number[];
  readonly took: number;
}

const overlap = ([a, b]: Interval, [c, d]: Interval): number => Math.max(0, Math.min(b, d) - Math.max(a, c));
const within = (window: Interval, intervals: readonly Interval[]): number =>
  intervals.reduce((sum, interval) => sum + overlap(window, interval), 0);
/** Between two ticks that are too far from each other. */
const holdsIn = ({ ticks }: Trace): Interval[] =>
  ticks.flatMap(([at], i) =>
    i > 0 && at - ticks[i - 1]![0] > HELD ? [[ticks[i - 1]![0], at] as const] : [],
  );
/** The last of each interval between ticks in which the main thread was ready and had no processor. */
const waitsIn = ({ ticks }: Trace): Interval[] =>
  ticks.flatMap(([at, waited], i) => (i > 0 ? [[at - (waited - ticks[i - 1]![1]), at] as const] : []));

interface Lateness {
  readonly collections: readonly Interval[];
  readonly holds: readonly Interval[];
  readonly waits: readonly Interval[];
  /** Holds of the generator. */
  readonly generator: readonly Interval[];
}

/** What held a request up, in ms: of each step that which is longer than usual. */
function causesOf(
  { moments }: Request,
  usual: readonly number[],
  { collections, holds, waits, generator }: Lateness,
): Causes {
  const causes = Object.fromEntries(CAUSES.map((cause) => [cause, 0])) as Causes;
  Object.values(STEPS).forEach((who: readonly string[], i) => {
    const step = [moments[i]!, moments[i + 1]!] as const;
    let left = step[1] - step[0];
    const take = (cause: (typeof CAUSES)[number], ms: number): void => {
      const taken = Math.max(0, Math.min(left, ms));
      causes[cause] += taken;
      left -= taken;
    };
    if (who.includes('subject')) {
      take('collection', within(step, collections));
      take('not scheduled', within(step, waits));
      take('loop held otherwise', within(step, holds) - within(step, collections) - within(step, waits));
    }
    if (who.includes('generator')) take('generator', within(step, generator));
    take('usual work', usual[i]!);
    take(
      who.includes('upstream') ? 'upstream' : who.includes('generator') ? 'generator' : 'loop held otherwise',
      left,
    );
  });
  return causes;
}

async function trace(all: Subjects, name: string, directory: string, generator: () => Trace): Promise<void> {
  const file = join(directory, `${name}.json`);
  const subject = await all.fresh(name, { execArgv: [importing('trace.ts', file)] });
  await warmUp(subject, false);
  const uploaded = new Map<string, number>();
  const noted = (note: UpstreamNote): void => {
    if (note.type === 'uploaded') uploaded.set(note.model, note.at);
  };
  all.upstream.on('message', noted);
  const asked = await besideStreams(subject.target, Number(options.count), async (index) => {
    const plan = { events: 3, start: index + 1 }; // long past, and tells the requests apart
    const stream = await openStream(subject.target, plan);
    const { localPort } = stream.socket;
    await stream.finished;
    return { plan, port: localPort, from: stream.askedAt, to: stream.arrivals[0]! };
  });
  all.upstream.off('message', noted);
  process.kill(subject.pid as number, 'SIGUSR2');
  const found = await traceIn(file);
  await subject.stop();

  const steps = new Map(found.steps.map(([step, key, at]) => [`${step} ${key}`, at]));
  const requests = asked.map(({ plan, port, from, to }): Request => {
    const at = (step: number, key: number | undefined): number => steps.get(`${step} ${key}`) ?? Number.NaN;
    const [begun, sent, answered] = [BEGUN, SENT, ANSWERED].map((step) => at(step, plan.start));
    const moments = [
      from,
      at(READ, port),
      begun!,
      sent!,
      uploaded.get(modelOf(plan)) ?? Number.NaN,
      answered!,
      to,
    ];
    return { moments, took: to - from };
  });
  print(name, requests, found, generator());
}

async function traceIn(file: string): Promise<Trace> {
  for (;;) {
    await delay(100);
    try {
      return JSON.parse(readFileSync(file, 'utf8'));
    } catch {} // not written yet
  }
}

function print(name: string, requests: readonly Request[], subject: Trace, generator: Trace): void {
  const stepsOf = ({ moments }: Request): number[] => moments.slice(1).map((at, i) => at - moments[i]!);
  const names = Object.keys(STEPS);
  const whole = requests.filter(({ moments }) => !moments.some(Number.isNaN));
  const usual = names.map((_, i) => median(whole.map((request) => stepsOf(request)[i]!)));
  const ms = (values: readonly number[]): string[] => values.map((value) => value.toFixed(2));
  const sum = (values: readonly number[]): number => values.reduce((all, value) => all + value, 0);
  const [begin, end] = [requests[0]!.moments[0]!, requests.at(-1)!.moments.at(-1)!];
  const meanwhile = (intervals: readonly Interval[]): Interval[] =>
    intervals.filter((interval) => overlap(interval, [begin, end]) > 0);
  const late = {
    collections: meanwhile(subject.collections),
    holds: meanwhile(holdsIn(subject)),
    waits: meanwhile(waitsIn(subject)),
    generator: meanwhile(holdsIn(generator)),
  };
  const { collections, holds, waits } = late;
  const found = whole.map((request) => {
    const causes = causesOf(request, usual, late);
    const others = options.own ? OTHERS.reduce((all, cause) => all + causes[cause], 0) : 0;
    return { ...request, causes, counted: request.took - others };
  });
  const slowest = found.toSorted((a, b) => b.counted - a.counted).slice(0, SHOWN);
  const percentiles = (values: readonly number[]): string =>
    [0.5, 0.99, 0.999].map((q) => `p${100 * q} ${quantile(values, q).toFixed(2)}`).join(', ');
  const share = (cause: keyof Causes): number =>
    sum(slowest.map(({ causes }) => causes[cause])) / sum(slowest.map(({ took }) => took));
  process.stdout.write(`
## ${name}

${whole.length} of ${requests.length} first tokens have all steps. ms: ${percentiles(requests.map(({ took }) => took))}${
    options.own ? `; of which its own ${percentiles(found.map(({ counted }) => counted))}` : ''
  }.

${table(
  [
    `in ${(end - begin).toFixed(0)} ms`,
    'times',
    'ms',
    'longest',
    'of it collections',
    'of it without a processor',
  ],
  Object.entries({
    ...Object.fromEntries(Map.groupBy(collections, ([, , kind]) => `collection, ${KINDS[kind!]}`)),
    [`loop held for more than ${HELD} ms`]: holds,
    'ready, but without a processor': waits.filter(([from, to]) => to > from),
  }).map(([what, intervals]) => {
    const lengths = intervals.map(([from, to]) => to - from);
    const of = (others: readonly Interval[]): number => sum(intervals.map((each) => within(each, others)));
    return [
      ...[what, String(intervals.length)],
      ...ms([sum(lengths), Math.max(0, ...lengths), of(collections), of(waits)]),
    ];
  }),
)}

${table(
  ['first token', ...names, 'mostly'],
  [
    [`median ${median(whole.map(({ took }) => took)).toFixed(2)}`, ...ms(usual), ''],
    ...slowest.map((request) => [...ms([request.took, ...stepsOf(request)]), mostly(request.causes)]),
  ],
)}

Of the time of the ${SHOWN} slowest: ${CAUSES.map((cause) => `${cause} ${(100 * share(cause)).toFixed(0)} %`).join(', ')}.
`);
}

const KINDS: Readonly<Record<number, string>> = {
  [constants.NODE_PERFORMANCE_GC_MINOR]: 'minor',
  [constants.NODE_PERFORMANCE_GC_MAJOR]: 'major',
  [constants.NODE_PERFORMANCE_GC_INCREMENTAL]: 'incremental',
  [constants.NODE_PERFORMANCE_GC_WEAKCB]: 'weak callbacks',
};

function mostly(causes: Causes): string {
  const [cause, ms] = Object.entries(causes).toSorted(([, a], [, b]) => b - a)[0]!;
  return `${cause} ${ms.toFixed(1)}`;
}

const directory = mkdtempSync(join(tmpdir(), 'privatemode-slowest-'));
const restorePriority = raisePriority();
process.once('exit', () => restorePriority?.());
const generator = startTrace();
const all = await startSubjects(directory, Object.fromEntries(options.subject.map(entryOf)), {
  profile: undefined,
  upstreamPort: 0,
  pinned: PINNABLE,
});
try {
  await warmUp(await all.get('ours'), false); // the generator and the upstream as well
  for (const name of ['passthrough', 'ours', ...all.entered]) await trace(all, name, directory, generator);
} finally {
  await all.close();
  rmSync(directory, { recursive: true, force: true });
}
process.exit();
