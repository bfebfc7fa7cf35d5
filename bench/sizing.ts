/**
 * npm run bench -- --sizing [--quick]
 *
 * How many coding agents a proxy carries: agents at their work, more of them at each level, through one
 * process, and two replicas that count in one Redis. A level lasts a minute, a piece of the busiest hour of
 * a day; nothing in it is sped up.
 *
 * An agent asks, reads the stream, runs its tools, asks again with a longer conversation, and waits for its
 * user after some turns:
 *
 * - prompts begin with 12,400 tokens (Claude Code's first request), grow by 1,500 a turn (median,
 *   log-normal), and begin anew at 110,000, where an agent with a window of 131,072 compacts; agents are met
 *   anywhere between. Four bytes a token: 50 to 440 KB.
 * - the model takes 0.5 to 2 s to its first token, and then gives 20 to 60 tokens/s, one event each: 150 of
 *   them (median, log-normal), 2,000 at most.
 * - tools run for 4 s (median, log-normal); after a tenth of the turns the user is waited for, for a minute
 *   on average.
 *
 * First requests, the point of compaction and the rate of tokens were observed; lengths and waits are
 * assumptions, to be replaced by one's own. Each request has a connection of its own. Beside the agents, a
 * tenth as many ask the service directly: what first tokens took there is subtracted, so that a slow
 * generator or upstream is not counted as the proxy's.
 *
 * A level counts while generator and upstream are each below 70 % of a core, and together below 90 % where
 * they share one, and while the event loop of each is idle for 30 % of the time. A busy loop accepts one
 * connection per turn, so connections wait at the upstream until the proxy gives them up.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { chatBody, modelOf, type Plan, sealedChatBody } from './fixtures.ts';
import { warmUp } from './fresh.ts';
import { gapsOf, openStream, type Target } from './load.ts';
import type { Machine } from './machine.ts';
import { cpuMicroseconds, family, message, monotonicMs, residentBytes } from './processes.ts';
import { table } from './report.ts';
import { quantile, slope } from './stats.ts';
import type { Subject, Subjects } from './subjects.ts';
import type { UpstreamNote } from './upstream.ts';

const PROMPT = { first: 12_400, growth: 1_500, compacted: 110_000, bytesPerToken: 4 };
/** Prompts are rounded to so many tokens: their texts are made once. */
const GRAIN = 2_000;
const OUTPUT = { tokens: 150, most: 2_000, slowest: 20, fastest: 60 };
const THINK = { shortest: 500, longest: 2_000 };
const TOOLS = 4_000;
const USER = { share: 0.1, mean: 60_000 };
/** Of the logarithm of what is log-normal. */
const SPREAD = 0.9;

const LEVELS = { full: [50, 100, 200, 400, 800, 1_600], quick: [50] };
/** ms over which the agents of a level begin, and ms that count after that. */
const SETTLE = { full: 20_000, quick: 4_000 };
const MEASURED = { full: 60_000, quick: 10_000 };
const BUSY = { each: 0.7, together: 0.9, loop: 0.7 };
const STORE_PORT = 16_379;

/** What nobody would accept, in the order in which it is looked for. */
const BREAKS: readonly (readonly [what: string, broken: (level: Level) => boolean])[] = [
  ['requests fail', ({ errors }) => errors > 0],
  ['the median first token comes more than 100 ms late', ({ added }) => added.p50 > 100],
  ['one first token in a hundred comes more than 500 ms late', ({ added }) => added.p99 > 500],
  ['one token in a hundred comes later by the time between two', ({ gap }) => gap > 1],
];

/** Each with how many of a subject stand beside each other. */
const SETUPS = [
  { title: 'one process', name: 'ours', replicas: 1 },
  { title: 'two replicas, one Redis', name: 'ours, clients, store', replicas: 2 },
];
const PARTS = ['proxy', 'generator', 'upstream'] as const;
type Level = Awaited<ReturnType<typeof levelOf>>;

/** What agents have seen: ms to first tokens, and gaps between tokens as parts of the pace. */
const newBook = () => ({
  firstTokens: [] as number[],
  gaps: [] as number[],
  tokens: 0,
  failures: [] as string[],
});
type Book = ReturnType<typeof newBook>;

const between = (low: number, high: number): number => low + Math.random() * (high - low);
const logNormal = (middle: number): number => {
  const normal = Math.sqrt(-2 * Math.log(1 - Math.random())) * Math.cos(2 * Math.PI * Math.random());
  return middle * Math.exp(SPREAD * normal);
};

const headOf = (plan: Partial<Plan>): Buffer => Buffer.from(`{"model":"${modelOf(plan)}"`);
const prompts = new Map<string, Buffer>();

/** The body of a request with a conversation of that many tokens; all but its model is made once. */
function bodyOf(plan: Partial<Plan>, tokens: number, sealed: boolean): Buffer {
  const bytes = PROMPT.bytesPerToken * GRAIN * Math.max(1, Math.round(tokens / GRAIN));
  const key = `${bytes} ${sealed}`;
  const make = sealed ? sealedChatBody : chatBody;
  const rest = prompts.get(key) ?? make({}, bytes).subarray(headOf({}).length);
  prompts.set(key, rest);
  return Buffer.concat([headOf(plan), rest]);
}

/** One agent, from some moment before `from` on; what it sees counts from then `until` its end. */
async function work(target: Target, settle: number, from: number, until: number, book: Book) {
  const left = (): number => Math.max(0, until - monotonicMs());
  let context = between(PROMPT.first, PROMPT.compacted);
  await delay(between(0, settle));
  while (left() > 0) {
    const events = Math.max(1, Math.min(OUTPUT.most, Math.round(logNormal(OUTPUT.tokens))));
    const pace = Math.round(1_000 / between(OUTPUT.slowest, OUTPUT.fastest));
    const plan = { events, pace, think: Math.round(between(THINK.shortest, THINK.longest)) };
    try {
      const stream = await openStream(target, plan, bodyOf(plan, context, target.sealed));
      await Promise.race([stream.finished, delay(left())]);
      const { arrivals, askedAt } = stream;
      book.tokens += arrivals.filter((at) => at >= from && at <= until).length;
      if (askedAt >= from && arrivals[0] !== undefined)
        book.firstTokens.push(arrivals[0] - askedAt - plan.think);
      if (askedAt >= from)
        book.gaps.push(
          ...gapsOf(stream)
            .slice(0, events - 1)
            .map((gap) => gap / pace),
        );
      stream.socket.destroy();
    } catch (error) {
      book.failures.push((error as Error).message);
    }
    context += events + logNormal(PROMPT.growth);
    if (context > PROMPT.compacted) context = PROMPT.first;
    await delay(
      Math.min(
        left(),
        Math.random() < USER.share ? -USER.mean * Math.log(1 - Math.random()) : logNormal(TOOLS),
      ),
    );
  }
}

async function levelOf(all: Subjects, proxies: readonly Subject[], agents: number, kind: 'quick' | 'full') {
  const [settle, measured] = [SETTLE[kind], MEASURED[kind]];
  const from = monotonicMs() + settle;
  const until = from + measured;
  const [through, directly] = [newBook(), newBook()];
  const { target } = await all.get('direct');
  const targets = Array.from({ length: agents }, (_, i) => proxies[i % proxies.length]!.target);
  const working = targets.map((each) => work(each, settle, from, until, through));
  for (let i = 0; i < Math.max(5, agents / 10); i++)
    working.push(work(target, settle, from, until, directly));
  const pids = proxies.map(({ pid }) => pid as number);
  /** ms in which the event loops of generator and upstream had something to do. */
  const active = async () => {
    const told = message<Extract<UpstreamNote, { type: 'loop' }>>(all.upstream, 'loop');
    all.upstream.send('loop');
    return [performance.eventLoopUtilization().active, (await told).active] as const;
  };
  const spent = () => {
    const { user, system } = process.cpuUsage();
    const proxy = pids.reduce((sum, pid) => sum + cpuMicroseconds(pid), 0);
    return { proxy, generator: user + system, upstream: cpuMicroseconds(all.upstream.pid as number) };
  };
  await delay(from - monotonicMs());
  const looped = await active();
  const [begin, before] = [monotonicMs(), spent()];
  await delay(until - begin - 100);
  const [end, after] = [monotonicMs(), spent()];
  const loops = (await active()).map((ms, i) => (ms - looped[i]!) / (end - begin));
  const megabytes = pids.flatMap(family).reduce((sum, pid) => sum + residentBytes(pid), 0) / 1e6;
  await Promise.all(working);
  const shares = PARTS.map((who) => [who, (after[who] - before[who]) / (1e3 * (end - begin))] as const);
  const at = (values: number[], q: number): number => (values.length > 0 ? quantile(values, q) : Number.NaN);
  const added = (q: number): number => at(through.firstTokens, q) - at(directly.firstTokens, q);
  return {
    ...{ agents, errors: through.failures.length, failure: through.failures[0], megabytes, loops },
    gap: at(through.gaps, 0.99) - at(directly.gaps, 0.99),
    requestsPerSecond: (1e3 * through.firstTokens.length) / measured,
    tokensPerSecond: (1e3 * through.tokens) / measured,
    added: { p50: added(0.5), p99: added(0.99) },
    cpu: Object.fromEntries(shares) as Record<(typeof PARTS)[number], number>, // shares of a core
  };
}

/** Whether the level says something about the proxy. `shared`: generator and upstream have one core. */
const counts = ({ loops, cpu: { generator, upstream } }: Level, shared: boolean): boolean =>
  Math.max(generator, upstream) < BUSY.each &&
  Math.max(...loops) < BUSY.loop &&
  (!shared || generator + upstream < BUSY.together);

const percent = (share: number): string => (100 * share).toFixed(0);

/** What was seen, and what follows from it. `beyond`: the level that does not count. */
function toText(title: string, levels: readonly Level[], beyond: Level | undefined): string {
  const isWhole = (level: Level): boolean => BREAKS.every(([, is]) => !is(level));
  const whole = levels.filter(isWhole);
  const broken = levels.find((level) => !isWhole(level));
  const [what] = BREAKS.find(([, is]) => broken !== undefined && is(broken)) ?? [];
  const seen = `nothing broke with up to ${whole.at(-1)?.agents ?? 0} agents${broken ? `; at ${broken.agents} ${what}` : ''}`;
  const end = beyond
    ? `; at ${beyond.agents} generator or upstream had too little of a core or no idle event loop, and the level does not count`
    : '';
  const text = `**${title}.** Measured: ${seen}${end}.`;
  if (whole.length < 2) return text;
  const cpu = 100 * slope(whole.map((level) => [level.agents, level.cpu.proxy]));
  const memory = 100 * slope(whole.map((level) => [level.agents, level.megabytes]));
  return `${text} Computed from the levels at which nothing broke: 100 more agents take ${cpu.toFixed(2)} of a core and ${memory.toFixed(0)} MB, so that some ${percent(0.7 / cpu)} use 70 % of one core.`;
}

async function startStore(directory: string): Promise<ChildProcess> {
  const line = `--bind 127.0.0.1 --port ${STORE_PORT} --appendonly no --dir ${directory}`.split(' ');
  const store = spawn('redis-server', [...line, '--save', ''], { stdio: 'ignore' });
  writeFileSync(join(directory, 'store'), `redis://127.0.0.1:${STORE_PORT}\n`);
  await delay(1_000);
  return store;
}

/**
 * Runs all setups through their levels; gives a Markdown table, and what it means. Needs `redis-server` for
 * the last.
 */
export async function sizing(all: Subjects, directory: string, quick: boolean, machine: Machine) {
  const kind = quick ? 'quick' : 'full';
  const rows: string[][] = [];
  const texts: string[] = [];
  for (const { title, name, replicas } of quick ? SETUPS.slice(0, 1) : SETUPS) {
    const store = replicas > 1 ? await startStore(directory) : undefined;
    const place = name === 'ours' ? 'subject' : 'anywhere';
    const proxies = await Promise.all(Array.from({ length: replicas }, () => all.fresh(name, { place })));
    for (const proxy of proxies) await warmUp(proxy, true);
    const levels: Level[] = [];
    let beyond: Level | undefined;
    for (const agents of LEVELS[kind]) {
      const level = await levelOf(all, proxies, agents, kind);
      process.stderr.write(`${title}: ${JSON.stringify(level)}\n`);
      if (!counts(level, machine.pinned)) beyond = level;
      if (beyond !== undefined) break;
      levels.push(level);
      const { added, cpu } = level;
      rows.push([
        ...[title, String(agents), level.requestsPerSecond.toFixed(1), level.tokensPerSecond.toFixed(0)],
        ...[added.p50.toFixed(1), added.p99.toFixed(1), level.gap.toFixed(2), percent(cpu.proxy)],
        ...[
          level.megabytes.toFixed(0),
          String(level.errors),
          `${percent(cpu.generator)} + ${percent(cpu.upstream)}`,
          level.loops.map(percent).join(' and '),
        ],
      ]);
      if (BREAKS.some(([, is]) => is(level))) break;
    }
    texts.push(toText(title, levels, beyond));
    await Promise.all(proxies.map(({ stop }) => stop()));
    store?.kill();
  }
  const heads = [
    'proxy',
    'agents',
    'requests/s',
    'tokens/s',
    'first token, added p50: ms',
    'p99: ms',
    'gap p99, added: ÷ pace',
  ];
  const more = [
    ...['CPU: % of a core', 'memory: MB', 'errors', 'generator + upstream: % of a core'],
    'their event loops: % busy',
  ];
  const { processor, cores, node, loadBefore, commit } = machine;
  const where = `${processor}, ${cores} cores, Node ${node}, load average ${loadBefore} before the run${loadBefore < 0.2 ? '' : ', so others used it, too'}, commit ${commit}`;
  return `Measured on ${where}${quick ? ', in seconds: nothing to rely on' : ''}.\n\n${table([...heads, ...more], rows)}\n\n${texts.join('\n\n')}\n`;
}
