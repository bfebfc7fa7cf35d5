/**
 * The subjects: what stands between the generator and the upstream. Each is started when it is first asked
 * for.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { get } from 'node:http';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { commandLine, type Entry, variantOf } from './entries.ts';
import type { LimitAnswer, LimitRequest } from './limit.ts';
import { openStream, type Target } from './load.ts';
import { cleanEnvironment, message, type Place, pin, start, stop } from './processes.ts';
import type { UpstreamNote } from './upstream.ts';

export interface Subject {
  readonly name: string;
  readonly target: Target;
  /** Undefined for `direct`, which is no process. */
  readonly pid: number | undefined;
}

export interface Subjects {
  readonly upstream: ChildProcess;
  /** Names given with --subject. */
  readonly entered: readonly string[];
  /** `ours`, and other builds of this program: they have its variants and its flags. */
  readonly builds: readonly string[];
  /**
   * Whether it is a program of Node's, which collects its garbage on SIGUSR2 if it was started to do so;
   * others end on it.
   */
  collects(name: string): boolean;
  get(name: string): Promise<Subject>;
  /** Starts one more of its kind, for measurements that need it fresh; the caller stops it. */
  fresh(name: string, options?: LaunchOptions): Promise<Subject & { stop(): Promise<void> }>;
  limit<T extends LimitAnswer>(request: LimitRequest): Promise<T>;
  close(): Promise<void>;
}

export interface LaunchOptions {
  readonly execArgv?: readonly string[];
  readonly place?: Place;
  /** Return as soon as it is started, before it is ready. */
  readonly unready?: boolean;
}

const HERE = import.meta.dirname;
const PROXY = join(HERE, '../dist/bin/privatemode-proxy.js');

export interface SubjectsOptions {
  /** A directory for the CPU profiles of what is started. */
  readonly profile: string | undefined;
  /** Whether each process is kept to a processor. */
  readonly pinned: boolean;
}

export async function startSubjects(
  directory: string,
  entered: Readonly<Record<string, Entry>>,
  { profile, pinned }: SubjectsOptions,
): Promise<Subjects> {
  const entries: Readonly<Record<string, Entry>> = { ours: { kind: 'build', file: PROXY }, ...entered };
  const keepTo = (pid: number, place: Place): void => {
    if (pinned) pin(pid, place);
  };
  const upstream = start(join(HERE, 'upstream.ts'), [directory]);
  const ready = await message<Extract<UpstreamNote, { type: 'ready' }>>(upstream, 'ready');
  keepTo(upstream.pid as number, 'others');
  keepTo(process.pid, 'others');
  const caFile = join(directory, 'ca.pem');
  const profiling = profile === undefined ? [] : ['--cpu-prof', `--cpu-prof-dir=${profile}`];
  const children: ChildProcess[] = [];
  process.once('exit', () => {
    // where the run is interrupted; otherwise they have ended before
    for (const child of children) child.kill();
  });
  const started = new Map<string, Promise<Subject>>();
  let limitProcess: Promise<ChildProcess> | undefined;

  async function launchPassthrough({ execArgv = [], place = 'subject' }: LaunchOptions) {
    const child = start(join(HERE, 'passthrough.ts'), [String(ready.port), caFile], {
      execArgv: [...execArgv, ...profiling],
    });
    children.push(child);
    const { port } = await message<{ type: 'ready'; port: number }>(child, 'ready');
    keepTo(child.pid as number, place);
    return { child, target: { port, host: '127.0.0.1', sealed: true } };
  }

  async function launchEntry(
    name: string,
    { execArgv = [], place = 'subject', unready = false }: LaunchOptions,
  ) {
    const { entry: by, variant } = variantOf(name);
    const entry = entries[by];
    if (entry === undefined) throw new Error(`${name} was not entered`);
    const port = await freePort();
    const places = { port, upstream: ready.port, directory, workspace: join(directory, `workspace-${by}`) };
    const [command, ...args] = commandLine(entry, variant, places, [...execArgv, ...profiling]);
    const child = spawn(command as string, args, {
      env: cleanEnvironment({ SSL_CERT_FILE: caFile }),
      stdio: 'ignore',
    });
    children.push(child);
    const target = { port, host: '127.0.0.1', sealed: false };
    if (!unready) await (entry.kind === 'build' ? untilReady(port) : untilItAnswers(name, target));
    keepTo(child.pid as number, place);
    return { child, target };
  }

  async function launch(name: string, options: LaunchOptions): Promise<Subject & { stop(): Promise<void> }> {
    if (name === 'direct') {
      const ca = readFileSync(caFile, 'utf8');
      const target = { port: ready.port, host: '127.0.0.1', sealed: true, ca };
      return { name, target, pid: undefined, stop: async () => {} };
    }
    const { child, target } =
      name === 'passthrough' ? await launchPassthrough(options) : await launchEntry(name, options);
    return { name, target, pid: child.pid, stop: () => stop(child) };
  }

  async function startLimit(): Promise<ChildProcess> {
    const child = start(join(HERE, 'limit.ts'), [String(ready.port), caFile]);
    children.push(child);
    await message(child, 'ready');
    keepTo(child.pid as number, 'subject');
    return child;
  }

  return {
    upstream,
    entered: Object.keys(entered),
    builds: Object.keys(entries).filter((name) => entries[name]?.kind === 'build'),
    collects: (name) => name === 'passthrough' || entries[name]?.kind === 'build',
    get(name) {
      let subject = started.get(name);
      if (subject === undefined) {
        subject = launch(name, {});
        started.set(name, subject);
      }
      return subject;
    },
    fresh: (name, options = {}) => launch(name, options),
    async limit<T extends LimitAnswer>(request: LimitRequest) {
      limitProcess ??= startLimit();
      const child = await limitProcess;
      const answer = message<T>(child, request.type === 'open' ? 'opened' : 'sent');
      child.send(request);
      return answer;
    },
    async close() {
      await Promise.all(children.map(stop));
      await stop(upstream);
    },
  };
}

/** Asks for a short stream until there is one. Rejects after 20 s. */
async function untilItAnswers(name: string, target: Target): Promise<void> {
  const deadline = Date.now() + PATIENCE;
  for (;;) {
    try {
      return await (await openStream(target, { events: 1 })).finished;
    } catch (error) {
      if (Date.now() > deadline) throw new Error(`${name} did not begin to answer`, { cause: error });
      await delay(100);
    }
  }
}

function freePort(): Promise<number> {
  return new Promise((resolve) => {
    const server = createServer().listen(0, '127.0.0.1', () => {
      const { port } = server.address() as { port: number };
      server.close(() => resolve(port));
    });
  });
}

const PATIENCE = 20_000;

/** Asks for /readyz every few ms until it answers 204. Rejects after 20 s. */
export async function untilReady(port: number): Promise<void> {
  const deadline = Date.now() + PATIENCE;
  while ((await statusOf(port)) !== 204) {
    if (Date.now() > deadline) throw new Error('the proxy did not become ready');
    await delay(3);
  }
}

function statusOf(port: number): Promise<number | undefined> {
  return new Promise((resolve) => {
    const request = get({ port, host: '127.0.0.1', path: '/readyz', agent: false }, (response) => {
      response.resume();
      resolve(response.statusCode);
    });
    request.on('error', () => resolve(undefined));
  });
}
