#!/usr/bin/env node
/**
 * The whole thing on one machine: a simulated deployment, the proxy in front of it, and one streamed completion through
 * the official OpenAI client. With --once it exits with 0 or 1; otherwise it stays up for you to try.
 */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import OpenAI from 'openai';
import { parseArgv } from '../lib/config/argv.ts';
import { parseConfig } from '../lib/config/config.ts';
import { parsePort } from '../lib/config/values.ts';
import { asPrivatemodeError, PrivatemodeError, WHO_LISTENS } from '../lib/errors.ts';
import { createLogger } from '../lib/observe/log.ts';
import { type RunningProxy, startProxy } from '../lib/proxy.ts';
import { startSimulator } from '../simulator/simulator.ts';

const PROMPT = 'Every byte of this sentence crosses the wire encrypted, and comes back token by token.';
const DEFAULT_PORT = 8080;
/** ms for everything to close. */
const CLEAN_UP = 10_000;
const HELP = `Starts a simulated deployment and the proxy in front of it, and streams one completion through both.

Usage:
  npm run demo [-- flags]

Flags:
  --port PORT   Port for the proxy (default ${DEFAULT_PORT}, or the next free one; 0 takes any).
  --once        Exit after the completion, with 0 or 1.
  --help        Print this help.
`;

const say = (text = ''): boolean => process.stdout.write(`${text}\n`);
/** Runs last to first, whatever fails. */
const opened = new AsyncDisposableStack();
const stopped = new Promise<number>((resolve) => {
  for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => resolve(0));
});
process.stdout.on('error', () => process.exit(1)); // whoever read it has gone

const finished = demo(process.argv.slice(2)).catch((thrown) => {
  process.stderr.write(`\nThe demo failed: ${reasonOf(thrown)}\n`);
  return 1;
});
const code = await Promise.race([finished, stopped]);
setTimeout(() => process.exit(1), CLEAN_UP).unref();
await opened.disposeAsync().catch((thrown) => {
  process.stderr.write(`The demo could not clean up: ${reasonOf(thrown)}\n`);
});
process.exit(code); // also where something was stopped in the middle of its start

async function demo(argv: readonly string[]): Promise<number> {
  refuseSwallowedFlags();
  const wanted = parseFlags(argv);
  if (wanted.help) {
    say(HELP.trimEnd());
    return 0;
  }
  const directory = mkdtempSync(join(tmpdir(), 'privatemode-demo-'));
  opened.defer(() => rmSync(directory, { recursive: true, force: true }));
  say('Starting a simulated deployment (it makes its own hardware keys, this takes a second) …');
  const simulator = await startSimulator({ directory });
  opened.defer(() => simulator.close());
  const proxy = await startOnFreePort(directory, simulator.port, wanted);
  opened.defer(() => proxy.close());

  await proxy.session.acquire({ timeoutMs: 30_000 });
  showVerdict(proxy);
  const text = await showCompletion(proxy.url);
  const leaked = simulator.recorder.containing(PROMPT.slice(0, 24)).length;
  say(`\nRequests in which the remote's wire saw the prompt in clear: ${leaked}.`);
  if (text.trim() !== PROMPT || leaked > 0) return 1;
  if (!wanted.once) {
    showHints(proxy.url);
    return await stopped;
  }
  return 0;
}

interface Wanted {
  readonly help: boolean;
  readonly once: boolean;
  /** Undefined: the default, or the next free one. */
  readonly port: number | undefined;
}

/** npm keeps flags before `--` for itself, as variables. Throws config_invalid. */
function refuseSwallowedFlags(): void {
  const swallowed = ['port', 'once'].find((name) => process.env[`npm_config_${name}`] !== undefined);
  if (swallowed === undefined) return;
  const words = `npm took --${swallowed} for a flag of its own: put -- in front, as in npm run demo -- --${swallowed}`;
  throw new PrivatemodeError('config_invalid', words);
}

/** Throws config_invalid. */
function parseFlags(argv: readonly string[]): Wanted {
  const word = argv[0];
  if (word !== undefined && !word.startsWith('-'))
    throw new PrivatemodeError('config_invalid', 'the demo takes flags only, such as --port 9090');
  const { values } = parseArgv(argv, [
    { name: 'port', type: 'string', help: '' },
    { name: 'once', type: 'boolean', help: '' },
    { name: 'help', short: 'h', type: 'boolean', help: '' },
  ]);
  const port = values.get('port');
  return {
    help: values.get('help') === 'true',
    once: values.get('once') === 'true',
    port: port === undefined ? undefined : parsePort('--port', port),
  };
}

/** A port that was asked for is that one or none; the default gives way to the next free one, and says so. */
async function startOnFreePort(directory: string, remote: number, wanted: Wanted): Promise<RunningProxy> {
  if (wanted.port !== undefined) return start(directory, remote, wanted.port);
  if (wanted.once) return start(directory, remote, 0);
  for (let port = DEFAULT_PORT; ; port++) {
    try {
      const proxy = await start(directory, remote, port);
      if (port !== DEFAULT_PORT) {
        say(`\n!! Port ${DEFAULT_PORT} is taken by another program, so the proxy listens on port ${port}.`);
        say(`!! To see which program it is: ${WHO_LISTENS(DEFAULT_PORT)}`);
      }
      return proxy;
    } catch (thrown) {
      const isTaken = ((thrown as Error).cause as NodeJS.ErrnoException | undefined)?.code === 'EADDRINUSE';
      if (!isTaken || port === DEFAULT_PORT + 20) throw thrown;
    }
  }
}

function start(directory: string, remote: number, port: number): Promise<RunningProxy> {
  const { config } = parseConfig(
    [
      ['--api-endpoint', `localhost:${remote}`],
      ['--manifest-path', join(directory, 'manifest.json')],
      ['--unsafe-trust-roots', join(directory, 'roots')],
      ['--api-key', 'demo'],
      ['--listen-address', '127.0.0.1'],
      ['--port', String(port)],
      ['--workspace', join(directory, 'workspace')],
    ].flat(),
    {},
  );
  return startProxy(config, {
    env: { SSL_CERT_FILE: join(directory, 'ca.pem') },
    log: createLogger({ format: 'text', level: 50 }),
  });
}

function reasonOf(thrown: unknown): string {
  const { message, code, remedy } = asPrivatemodeError(thrown);
  if (code === 'config_invalid') return `${message}\nnpm run demo -- --help lists the flags.`;
  return code === 'internal' ? (thrown as Error).message : `${message}\n${remedy}`;
}

function showVerdict(proxy: RunningProxy): void {
  const verdict = proxy.session.lastVerdict();
  const passed = verdict?.checks.filter(({ outcome }) => outcome === 'pass') ?? [];
  say(`\nThe remote was ${verdict?.outcome}: ${passed.length} checks of its evidence passed, among them`);
  const telling = /chain|signature|report_data|measurement|host_data|debug|crl|tcb/;
  for (const { id, found } of passed.filter((check) => telling.test(check.id)).slice(0, 12)) {
    say(`  ✓ ${id.padEnd(32)} ${found.slice(0, 60)}`);
  }
  const epoch = proxy.session.current();
  say(`  manifest ${epoch?.manifestSha256}`);
  say(`  secret   ${epoch?.secretId}`);
}

async function showCompletion(url: string): Promise<string> {
  say('\nOne streamed completion through the official OpenAI client:\n');
  const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: 'placeholder', maxRetries: 0 });
  const stream = await client.chat.completions.create({
    model: 'sim-echo',
    messages: [{ role: 'user', content: PROMPT }],
    stream: true,
  });
  let text = '';
  process.stdout.write('  ');
  for await (const chunk of stream) {
    const token = chunk.choices[0]?.delta.content ?? '';
    text += token;
    process.stdout.write(token);
  }
  say();
  return text;
}

function showHints(url: string): void {
  say(`
The proxy listens on ${url} until you press Ctrl-C. Try it:

  curl -N ${url}/v1/chat/completions -H 'content-type: application/json' \\
    -d '{"model":"sim-20x100","stream":true,"messages":[{"role":"user","content":"hello"}]}'

  OpenAI SDKs      OPENAI_BASE_URL=${url}/v1 OPENAI_API_KEY=placeholder
  Anthropic SDKs   ANTHROPIC_BASE_URL=${url} ANTHROPIC_API_KEY=placeholder
  Claude Code      ANTHROPIC_BASE_URL=${url} ANTHROPIC_AUTH_TOKEN=placeholder ANTHROPIC_MODEL=sim-echo claude
`);
}
