/**
 * `privatemode-proxy run` between programs in the place of the agents and a server in the place of the proxy.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { createServer, type RequestListener } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { after, before, beforeEach } from 'node:test';
import { cleanEnvironment } from './program.ts';
import { temporaryDirectory } from './temporary-directory.ts';
import { ROOT } from './tools.ts';

const AGENTS = ['claude', 'opencode', 'codex', 'pi'];

/** Notes how it was started, then does what WHAT says. */
const STAND_IN = `#!${process.execPath}
const { writeFileSync } = require('node:fs');
if (process.argv[2] === '--version') {
  if (process.env.OPENAI_API_KEY !== undefined) throw new Error('a key of the caller');
  if (process.env.npm_lifecycle_script === 'x') throw new Error('a variable of npm'); // as a test sets it
  console.log(process.env.PI_VERSION ?? '0.87.1');
  process.exit(0);
}
writeFileSync(process.env.NOTES, JSON.stringify({ args: process.argv.slice(2), env: process.env, cwd: process.cwd() }));
const post = (url) => fetch(url, { method: 'POST', body: '{}' }).then((response) => response.text());
const config = JSON.parse(process.env.OPENCODE_CONFIG_CONTENT ?? '{}');
const codex = /base_url="([^"]+)"/.exec(process.argv.join(' '))?.[1];
const pi = JSON.parse(process.env.LOCAL_PROXY_PROVIDER ?? '{}').config?.baseUrl;
const url = process.env.ANTHROPIC_BASE_URL ?? codex ?? pi ?? Object.values(config.provider)[0].options.baseURL;
(async () => {
  switch (process.env.WHAT) {
    case 'ask': process.stdout.write(await post(url + '/messages')); break;
    case 'fail': await post(url); process.exit(7);
    case 'die': await post(url); process.kill(process.pid, 'SIGKILL'); break;
    case 'wait': process.on('SIGTERM', () => process.exit(9)); setInterval(() => {}, 1000); process.stdout.write('waiting'); break;
    case 'whole': await post(url).catch(() => process.exit(8)); break;
    case 'lose': for (let i = 0; i < process.env.REQUESTS; i++) await post(url); break;
    case 'look': await fetch(url + '/v1/models'); break;
  }
})();
`;

/** The last lines after each agent, which one test reads. */
const GO_ON = /^To go on with this conversation: .*\n.* alone .*\n$/m;

/** How an agent was started. */
export interface Started {
  readonly args: string[];
  readonly env: Record<string, string>;
  readonly cwd: string;
}

/**
 * Registers hooks in the suite that calls it. Each test begins with a proxy that serves model-a and model-b,
 * and with no agent started.
 */
export function standInAgents() {
  const directory = temporaryDirectory('run-test-');
  const programs = join(directory, 'bin');
  const notes = join(directory, 'notes.json');
  const server = createServer((req, res) => {
    proxy.asked.push(`${req.method} ${req.url}`);
    proxy.answer(req, res);
  });
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
    for (const name of AGENTS) writeFileSync(join(programs, name), STAND_IN, { mode: 0o755 });
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    proxy.port = (server.address() as AddressInfo).port;
  });
  after(() => {
    server.closeAllConnections();
    server.close();
  });
  beforeEach(() => {
    proxy.asked.length = 0;
    proxy.aliases = [];
    proxy.endpoints = ['POST /v1/messages', 'POST /v1/responses'];
    proxy.models = { data: ['model-a', 'model-b'].map((id) => ({ id, max_model_len: 131_072 })) };
    proxy.answer = (req, res) => {
      if (proxy.own(req, res)) return;
      if (req.url === '/v1/models') res.end(JSON.stringify(proxy.models));
      else if (!req.url?.startsWith('/v1/models/')) res.end('answered');
      else if (proxy.aliases.length > 0) res.end('{"max_model_len":131072}');
      else res.writeHead(404).end('{}');
    };
    writeFileSync(notes, '{}');
  });

  const environment = (env: Readonly<Record<string, string>>): Record<string, string> =>
    cleanEnvironment({
      NOTES: notes,
      PATH: `${programs}:/usr/bin:/bin`,
      XDG_STATE_HOME: join(directory, 'state'),
      PRIVATEMODE_PROXY_PORT: String(proxy.port),
      ...env,
    });

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
    /** Starts `run`; `ended` gives its exit code and what it wrote, without its last lines. */
    start,
    run: (args: readonly string[], env?: Readonly<Record<string, string>>) => start(args, env).ended,
    /** How the agent was started last; an empty object: it was not. */
    started: (): Started => JSON.parse(readFileSync(notes, 'utf8')),
  };
}
