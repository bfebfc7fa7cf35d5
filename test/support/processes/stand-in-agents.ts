/**
 * `privatemode-proxy run` between programs in the place of the agents and a server in the place of the proxy.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdirSync, readFileSync, rmSync, symlinkSync } from 'node:fs';
import { createServer, type RequestListener } from 'node:http';
import { join } from 'node:path';
import { after, before, beforeEach } from 'node:test';
import { type Listening, opened } from '../remote/loopback.ts';
import { type Ran, runCommand } from './command.ts';
import { cleanEnvironment } from './program.ts';
import { temporaryDirectory } from './temporary-directory.ts';
import { ROOT } from './tools.ts';

const AGENTS = ['claude', 'opencode', 'codex', 'pi'];

const STAND_IN = join(import.meta.dirname, 'stand-in-agent.sh');

/** The last lines after each agent, which one test reads. */
const GO_ON = /^To go on with this conversation: .*\nWithout run, .*\n$/m;

/** How an agent was started. */
export interface Started {
  readonly args: string[];
  readonly env: Record<string, string>;
  readonly cwd: string;
  /** What it was answered, where it asked. */
  readonly answer: string;
}

/**
 * Registers hooks in the suite that calls it. Each test begins with a proxy that serves model-a and model-b,
 * and with no agent started.
 */
export function standInAgents() {
  const directory = temporaryDirectory('run-test-');
  const programs = join(directory, 'bin');
  const notes = join(directory, 'notes');
  const server = createServer((req, res) => {
    proxy.asked.push(`${req.method} ${req.url}`);
    proxy.answer(req, res);
  });
  let listener: Listening;
  const proxy = {
    port: 0,
    asked: [] as string[],
    endpoints: [] as readonly string[],
    aliases: [] as readonly string[],
    /** What GET /v1/models says. */
    models: {} as unknown,
    answer: ((_, res) => res.destroy()) as RequestListener,
    /** Answers what `run` asks about the proxy itself; gives whether it was that. */
    own: (...[req, res]: Parameters<RequestListener>): boolean => {
      if (req.url === '/readyz') res.writeHead(204).end();
      else if (req.url === '/v1') {
        const { endpoints, aliases } = proxy;
        res.end(JSON.stringify({ name: 'privatemode-proxy', endpoints, model_aliases: aliases }));
      } else return false;
      return true;
    },
  };
  before(async () => {
    mkdirSync(programs);
    for (const name of AGENTS) symlinkSync(STAND_IN, join(programs, name));
    listener = await opened(server);
    proxy.port = listener.port;
  });
  after(() => listener.close());
  beforeEach(() => {
    proxy.asked.length = 0;
    proxy.aliases = [];
    proxy.endpoints = ['POST /v1/messages', 'POST /v1/responses'];
    proxy.models = { data: ['model-a', 'model-b'].map((id) => ({ id, max_model_len: 131_072 })) };
    proxy.answer = (req, res) => {
      if (proxy.own(req, res)) return;
      if (req.url === '/v1/models') res.end(JSON.stringify(proxy.models));
      else res.end('answered');
    };
    rmSync(notes, { recursive: true, force: true });
    mkdirSync(notes);
  });

  const environment = (env: Readonly<Record<string, string>>): Record<string, string> =>
    cleanEnvironment({
      NOTES: notes,
      PWD: process.cwd(), // a shell adds what it does not find there
      PATH: `${programs}:/usr/bin:/bin`,
      XDG_STATE_HOME: join(directory, 'state'),
      PRIVATEMODE_PROXY_PORT: String(proxy.port),
      ...env,
    });

  /** Notes of the agent; none: it was not started. */
  const noted = (what: string): string | undefined => {
    const file = join(notes, what);
    return existsSync(file) ? readFileSync(file, 'utf8') : undefined;
  };
  const strings = (what: string): string[] => noted(what)?.split('\0').slice(0, -1) ?? [];

  function started(): Started {
    const cwd = noted('cwd');
    if (cwd === undefined) return {} as Started;
    const variables = strings('env').map((line) => {
      const end = line.indexOf('=');
      return [line.slice(0, end), line.slice(end + 1)];
    });
    return {
      args: strings('args').slice(2),
      env: Object.fromEntries(variables),
      cwd: cwd.trimEnd(),
      answer: noted('answer') ?? '',
    };
  }

  function start(args: readonly string[], env: Readonly<Record<string, string>> = {}) {
    const child = spawn(process.execPath, [join(ROOT, 'bin/privatemode-proxy.ts'), 'run', ...args], {
      env: environment(env),
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    const written = { stdout: '', stderr: '' };
    child.stdout.setEncoding('utf8').on('data', (text) => (written.stdout += text));
    child.stderr.setEncoding('utf8').on('data', (text) => (written.stderr += text));
    const ended = once(child, 'close').then(([code]) => ({
      ...{ code, stdout: written.stdout },
      stderr: written.stderr.replace(GO_ON, ''),
    }));
    return { child, ended };
  }

  return {
    directory,
    programs,
    proxy,
    environment,
    /** Starts `run` as a program; `ended` gives its exit code and what it wrote, without its last lines. */
    start,
    /** `run` in this process. */
    async run(args: readonly string[], env: Readonly<Record<string, string>> = {}): Promise<Ran> {
      const { stderr, ...ran } = await runCommand(['run', ...args], { env: environment(env) });
      return { ...ran, stderr: stderr.replace(GO_ON, '') };
    },
    /** How the agent was started last; an empty object: it was not. */
    started,
  };
}
