/** The subjects: what stands between the generator and the upstream. Each is started when it is first asked for. */
import { type ChildProcess, spawn } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { get } from 'node:http';
import { connect, createServer } from 'node:net';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { clientsFile } from './fixtures.ts';
import type { LimitAnswer, LimitRequest } from './limit.ts';
import type { LinkProfile } from './link.ts';
import type { Target } from './load.ts';
import { cleanEnvironment, listenerOn, message, type Place, pin, start, stop } from './processes.ts';
import type { UpstreamNote } from './upstream.ts';

export interface Subject {
  readonly name: string;
  readonly target: Target;
  /** Undefined for what runs elsewhere: its CPU time is not known. */
  readonly pid: number | undefined;
}

export interface Subjects {
  readonly upstream: ChildProcess;
  /** Names given with --subject. */
  readonly external: readonly string[];
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
  /** What lies between the subject and the upstream; undefined: loopback alone. */
  readonly link?: LinkProfile;
}

const HERE = import.meta.dirname;
const PROXY = join(HERE, '../dist/bin/privatemode-proxy.js');

/** In the directory of the run. */
const CLIENTS_FILE = 'clients.json';
const clientsFlag = (directory: string): string => `--clients=${join(directory, CLIENTS_FILE)}`;

/** Our own program in its variants: the flags beyond those that all have. */
const oursIn = (directory: string): Readonly<Record<string, readonly string[]>> => ({
  ours: [],
  'ours, shared salt': ['--disable-prompt-cache=false'],
  'ours, receipts': ['--receipts'],
  'ours, 1 worker': ['--workers=1'],
  'ours, 2 workers': ['--workers=2'],
  'ours, clients': [clientsFlag(directory)],
  'ours, clients, 2 workers': [clientsFlag(directory), '--workers=2'],
  'ours, clients, 16 places': [clientsFlag(directory), '--max-in-flight=16'],
  'ours, clients, 17 places': [clientsFlag(directory), '--max-in-flight=17'],
});

export async function startSubjects(
  directory: string,
  externals: Readonly<Record<string, URL>>,
  {
    profile,
    upstreamPort = 0,
  }: { readonly profile?: string | undefined; readonly upstreamPort?: number } = {},
): Promise<Subjects> {
  const upstream = start(join(HERE, 'upstream.ts'), [directory, String(upstreamPort)]);
  const ready = await message<Extract<UpstreamNote, { type: 'ready' }>>(upstream, 'ready');
  pin(upstream.pid as number, 'others');
  pin(process.pid, 'others');
  writeFileSync(join(directory, CLIENTS_FILE), clientsFile());
  const caFile = join(directory, 'ca.pem');
  const profiling = profile === undefined ? [] : ['--cpu-prof', `--cpu-prof-dir=${profile}`];
  const children: ChildProcess[] = [];
  process.once('exit', () => {
    for (const child of children) child.kill(); // where the run is interrupted; otherwise they have ended before
  });
  const started = new Map<string, Promise<Subject>>();
  const links = new Map<LinkProfile, Promise<number>>();
  let limitProcess: Promise<ChildProcess> | undefined;

  /** The port at which the upstream is reached over that link. */
  function portOver(link: LinkProfile | undefined): Promise<number> {
    if (link === undefined) return Promise.resolve(ready.port);
    const port = links.get(link) ?? startLink(link);
    links.set(link, port);
    return port;
  }

  async function startLink(link: LinkProfile): Promise<number> {
    const child = start(join(HERE, 'link.ts'), [String(ready.port), JSON.stringify(link)]);
    children.push(child);
    const { port } = await message<{ type: 'ready'; port: number }>(child, 'ready');
    pin(child.pid as number, 'others');
    return port;
  }

  async function launchPassthrough({ execArgv = [], place = 'subject' }: LaunchOptions) {
    const child = start(join(HERE, 'passthrough.ts'), [String(ready.port), caFile], {
      execArgv: [...execArgv, ...profiling],
    });
    children.push(child);
    const { port } = await message<{ type: 'ready'; port: number }>(child, 'ready');
    pin(child.pid as number, place);
    return { child, target: { port, host: '127.0.0.1', sealed: true } };
  }

  async function launchOurs(
    name: string,
    { execArgv = [], place = 'subject', unready = false, link }: LaunchOptions,
  ) {
    const [port, upstreamAt] = await Promise.all([freePort(), portOver(link)]);
    const child = spawn(
      process.execPath,
      [
        ...execArgv,
        ...profiling,
        PROXY,
        `--api-endpoint=localhost:${upstreamAt}`,
        `--manifest-path=${join(directory, 'manifest.json')}`,
        `--unsafe-trust-roots=${join(directory, 'roots')}`,
        `--workspace=${join(directory, 'workspace')}`,
        '--listen-address=127.0.0.1',
        `--port=${port}`,
        '--api-key=bench',
        ...(oursIn(directory)[name] as readonly string[]),
      ],
      {
        env: cleanEnvironment({ SSL_CERT_FILE: caFile }),
        stdio: 'ignore',
      },
    );
    children.push(child);
    if (!unready) await untilReady(port);
    pin(child.pid as number, place);
    return { child, target: { port, host: '127.0.0.1', sealed: false } };
  }

  const directTarget = (port: number): Target => ({
    ...{ port, host: '127.0.0.1', sealed: true },
    ca: readFileSync(caFile, 'utf8'),
  });

  async function launch(name: string, options: LaunchOptions): Promise<Subject & { stop(): Promise<void> }> {
    if (name === 'direct') {
      const target = directTarget(await portOver(options.link));
      return { name, target, pid: undefined, stop: async () => {} };
    }
    const { child, target } =
      name === 'passthrough' ? await launchPassthrough(options) : await launchOurs(name, options);
    return { name, target, pid: child.pid, stop: () => stop(child) };
  }

  async function find(name: string): Promise<Subject> {
    const url = externals[name];
    if (url !== undefined) return findExternal(name, url);
    return launch(name, name.endsWith('workers') || name.endsWith('worker') ? { place: 'anywhere' } : {});
  }

  async function startLimit(): Promise<ChildProcess> {
    const child = start(join(HERE, 'limit.ts'), [String(ready.port), caFile]);
    children.push(child);
    await message(child, 'ready');
    pin(child.pid as number, 'subject');
    return child;
  }

  return {
    upstream,
    external: Object.keys(externals),
    get(name) {
      let subject = started.get(name);
      if (subject === undefined) {
        subject = find(name);
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

/** Something that listens already, or will within a minute: its operator may have to wait for the upstream. */
async function findExternal(name: string, url: URL): Promise<Subject> {
  const [host, port] = [url.hostname, Number(url.port)];
  for (let waited = 0; !(await accepts(host, port)); waited += 1) {
    if (waited === 0) process.stderr.write(`${name}: waiting for ${url.host}\n`);
    if (waited === 60) throw new Error(`${name}: nothing listens on ${url.host}`);
    await delay(1_000);
  }
  const pid = listenerOn(port);
  if (pid !== undefined) pin(pid, 'subject');
  return { name, target: { port, host, sealed: false }, pid };
}

function accepts(host: string, port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect({ host, port }, () => resolve(true));
    socket.on('error', () => resolve(false)).on('connect', () => socket.destroy());
  });
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
