/**
 * Runs everything on one machine: a simulated deployment, the proxy in front of it, and one streamed response
 * through each of the official OpenAI and Anthropic clients. Then it keeps running for you to try.
 *
 * npm run demo [-- [--port PORT] [--once]]
 * npm run demo -- --agent claude [-- ARGS]
 *
 * --port PORT    Port for the proxy (8080, or the next free one; any with --agent and --once).
 * --once         Exit after the answers, with 0 or 1.
 * --agent AGENT  Run a coding agent (claude, opencode, codex, pi) in an empty directory, with ARGS, instead
 *                of the two clients. The model can have it write one file there: "Write hello to note.txt".
 *                The directory is removed at the end; Claude Code leaves an entry about it in ~/.claude.json.
 */
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { type AddressInfo, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import Anthropic from '@anthropic-ai/sdk';
import OpenAI from 'openai';
import { main } from '../lib/cli.ts';
import { systemClock } from '../lib/clock.ts';
import { AGENT_NAMES } from '../lib/commands/run-agents.ts';
import { parseConfig } from '../lib/config/config.ts';
import { asPrivatemodeError } from '../lib/errors.ts';
import { WHO_LISTENS } from '../lib/listener/listen.ts';
import { createLogger } from '../lib/observe/log.ts';
import { type RunningProxy, startProxy } from '../lib/proxy.ts';
import { painter, shellWord } from '../lib/text.ts';
import { chainOfTrust, linkLine } from '../lib/verdict/chain-of-trust.ts';
import { answerTo } from '../simulator/inference/models/person.ts';
import { startSimulator } from '../simulator/simulator.ts';
import { readOptions, refuse } from './options.ts';

const PROMPT = 'Every byte of this sentence crosses the wire encrypted, and comes back token by token.';
/** A member of every message in every API style. If prompts are encrypted, it does not appear on the wire. */
const ROLE = '"role"';
const MODEL = 'sim-chat';
/** Start of a command line to copy, which works in any directory. */
const START = shellWord(join(import.meta.dirname, '../privatemode-proxy'));
const DEFAULT_PORT = 8080;
/** ms in which everything must close. */
const CLEAN_UP = 10_000;
/** Log lines that wait until the response of their request is printed; undefined: lines no longer wait. */
let held: string[] | undefined = [];
const showHeld = (): void => {
  for (const line of held?.splice(0) ?? []) process.stderr.write(line);
};
const stopHolding = (): void => {
  showHeld();
  held = undefined;
};
const say = (text = ''): boolean => process.stdout.write(`${text}\n`);
/** Closes what was opened, last to first, even if one step fails. */
const opened = new AsyncDisposableStack();
const { promise: stopped, resolve: stop } = Promise.withResolvers<number>();
const SIGNALS = ['SIGINT', 'SIGTERM'] as const;
const onSignal = (_: NodeJS.Signals, number: number): void => stop(number);
/** Whether the demo has a result (--once, --agent), so that a signal before it is a failure. */
let hasResult = false;
for (const signal of SIGNALS) process.once(signal, onSignal);
process.stdout.on('error', () => process.exit(1)); // the reader of the output has gone

type Wanted = ReturnType<typeof readFlags>;

/** `port` undefined: the default one, or the next that is free. `rest`: arguments for the agent. */
function readFlags() {
  const { values, positionals: rest } = readOptions(import.meta.filename, {
    options: { port: { type: 'string' }, once: { type: 'boolean' }, agent: { type: 'string' } },
    allowPositionals: true,
  });
  const { port, once = false, agent } = values;
  if (port !== undefined && !/^\d{1,5}$/.test(port)) refuse('--port takes a port, as in --port 9090.');
  if (agent === undefined && rest.length > 0) refuse('Only an agent takes arguments: add --agent claude.');
  if (agent !== undefined && !AGENT_NAMES.includes(agent)) refuse(`--agent takes ${AGENT_NAMES.join(', ')}.`);
  return { port: port === undefined ? undefined : Number(port), once, agent, rest };
}

const finished = demo(readFlags()).then(
  (code) => ({ code, thrown: undefined }),
  (thrown: unknown) => ({ code: 1, thrown }),
);
const interrupted = stopped.then((signal) => ({ code: hasResult ? 128 + signal : 0, thrown: undefined }));
// What fails because of the signal is not said: it is no failure of the demo.
const { code, thrown } = await Promise.race([finished, interrupted]);
stopHolding();
if (thrown !== undefined) process.stderr.write(`\nThe demo failed: ${reasonOf(thrown)}\n`);
setTimeout(() => process.exit(1), CLEAN_UP).unref();
await opened.disposeAsync().catch((thrown) => {
  process.stderr.write(`The demo could not clean up: ${reasonOf(thrown)}\n`);
});
process.exit(code); // needed if a signal came while something was starting

async function demo(wanted: Wanted): Promise<number> {
  hasResult = wanted.once || wanted.agent !== undefined;
  const directory = mkdtempSync(join(tmpdir(), 'privatemode-demo-'));
  process.once('exit', () => rmSync(directory, { recursive: true, force: true, maxRetries: 5 }));
  say('Everything here is simulated: the service, its hardware and its models are programs on this machine.');
  say('Starting them (the hardware makes its own keys, this takes a second) …');
  const scratch = wanted.agent === undefined ? undefined : join(directory, 'scratch');
  const edits = scratch === undefined ? {} : { edits: scratch };
  const simulator = await open(() => startSimulator({ directory, anyName: false, ...edits }));
  const admin = wanted.once ? undefined : await freePort();
  const flags = [
    ...['--api-endpoint', `localhost:${simulator.port}`],
    ...['--manifest-path', join(directory, 'manifest.json')],
    ...['--unsafe-trust-roots', join(directory, 'roots')],
    ...['--api-key', 'demo', '--listen-address', '127.0.0.1', '--responses-api'],
    ...['--workspace', join(directory, 'workspace')],
    ...(admin === undefined ? [] : ['--admin-address', `127.0.0.1:${admin}`]),
  ];
  const proxy = await open(() => startOnFreePort(wanted, flags, join(directory, 'ca.pem')));

  await proxy.session.acquire({ timeoutMs: 30_000 });
  showVerdict(proxy);
  if (admin !== undefined) say(`\nThe status page: http://127.0.0.1:${admin}/`);
  if (wanted.agent !== undefined && scratch !== undefined) {
    const code = await runAgent(wanted.agent, proxy.port, scratch, wanted.rest);
    const { recorder, exchanges } = simulator;
    const requests = exchanges.all().filter(({ method }) => method === 'POST').length;
    const leaked = recorder.containing(ROLE).length;
    say(`\n${readable('conversation', leaked, requests)}`);
    return leaked > 0 ? 1 : code;
  }
  const texts = [await showCompletion(proxy.url), await showMessage(proxy.url)];
  const leaked = simulator.recorder.containing(PROMPT.slice(0, 24)).length;
  say(`\n${readable('prompt', leaked, texts.length)}`);
  if (texts.some((text) => text.trim() !== answerTo(PROMPT)) || leaked > 0) return 1;
  if (wanted.once) return 0;
  stopHolding();
  showHints(proxy.url, directory, simulator.port);
  await stopped;
  return 0;
}

/**
 * Starts something that is closed at the end. If a signal comes meanwhile, the end waits for the start, which
 * would go on writing its files. Nothing is started after a signal.
 */
function open<T extends { close(): Promise<void> }>(start: () => Promise<T>): Promise<T> {
  let started: Promise<T> | undefined;
  opened.defer(() =>
    started?.then(
      (running) => running.close(),
      () => {},
    ),
  ); // throws after a signal
  started = start();
  return started;
}

/** Says in how many requests the text was readable on the wire of the simulated service. */
function readable(what: string, count: number, requests: number): string {
  return `We watched the wire of the simulated service: your ${what} was readable in ${count} of ${requests} requests.`;
}

/**
 * Runs the agent and returns its exit code; log lines wait until then. The agent gets the terminal and its
 * signals; the status page shows the requests.
 */
function runAgent(agent: string, port: number, scratch: string, rest: readonly string[]): Promise<number> {
  mkdirSync(scratch);
  process.chdir(scratch);
  for (const signal of SIGNALS) process.off(signal, onSignal);
  say(
    `\nThe model is ${MODEL}, which only says back what you say. It can also have the agent make one kind of edit: ask it to`,
  );
  say('"Write hello to note.txt", and it has the agent write that file in the directory below.');
  say(`Starting ${agent} in ${scratch}, which is removed at its end …\n`);
  const flags = ['--listen-address', '127.0.0.1', '--port', `${port}`, '--model', MODEL, '--', ...rest];
  return main(['run', agent, ...flags], process.env, {
    stdout: process.stdout,
    stderr: process.stderr,
    clock: systemClock,
  });
}

async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  server.close();
  await once(server, 'close');
  return port;
}

/**
 * Starts the proxy. A port that the user chose is used or the start fails; the default port gives way to the
 * next free one, and the demo says so.
 */
async function startOnFreePort(wanted: Wanted, flags: string[], authority: string): Promise<RunningProxy> {
  // Show warnings, errors and one line per request, which states its outcome. An agent has the terminal to
  // itself: then, and with --once, show errors only.
  const isQuiet = wanted.once || wanted.agent !== undefined;
  const shown = isQuiet ? /level=ERROR/ : /level=(?:ERROR|WARN)|outcome=/;
  const write = (line: string): unknown =>
    shown.test(line) && (held?.push(line) ?? process.stderr.write(line));
  const output = { write, isTTY: process.stderr.isTTY };
  const start = (port: number): Promise<RunningProxy> =>
    startProxy(parseConfig([...flags, '--port', String(port)], {}).config, {
      env: { SSL_CERT_FILE: authority },
      log: createLogger({ format: 'text', level: 30, output }),
    });
  if (wanted.port !== undefined || isQuiet) return start(wanted.port ?? 0);
  for (let port = DEFAULT_PORT; ; port++) {
    try {
      const proxy = await start(port);
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

function reasonOf(thrown: unknown): string {
  const { message, code, remedy } = asPrivatemodeError(thrown);
  if (code === 'config_invalid') return `${message}\nnpm run demo -- --help lists the flags.`;
  return code === 'internal' ? (thrown as Error).message : `${message}\n${remedy}`;
}

function showVerdict(proxy: RunningProxy): void {
  const verdict = proxy.session.lastVerdict();
  if (verdict === undefined) return;
  const passed = verdict.checks.filter(({ outcome }) => outcome === 'pass');
  say(
    `\nThe remote was ${verdict.outcome}: ${passed.length} checks of its evidence passed. What they establish:`,
  );
  for (const link of chainOfTrust(verdict)) say(`  ${linkLine(link, verdict.roots, painter(false))}`);
}

async function showCompletion(url: string): Promise<string> {
  say('\nOne streamed completion through the official OpenAI client:\n');
  const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: 'placeholder', maxRetries: 0 });
  const stream = await client.chat.completions.create({
    model: MODEL,
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
  showHeld();
  return text;
}

async function showMessage(url: string): Promise<string> {
  say('\nAnd one streamed message through the official Anthropic client:\n');
  const client = new Anthropic({ baseURL: url, authToken: 'placeholder', apiKey: null, maxRetries: 0 });
  const stream = client.messages.stream({
    model: MODEL,
    max_tokens: 1000,
    messages: [{ role: 'user', content: PROMPT }],
  });
  process.stdout.write('  ');
  stream.on('text', (token) => process.stdout.write(token));
  const text = await stream.finalText();
  say();
  showHeld();
  return text;
}

function showHints(url: string, directory: string, remote: number): void {
  const { port } = new URL(url);
  say(`
The proxy listens on ${url} until you press Ctrl-C. Try it, in another terminal:

  curl -N ${url}/v1/chat/completions -H 'content-type: application/json' \\
    -d '{"model":"${MODEL}","stream":true,"messages":[{"role":"user","content":"hello"}]}'

  OpenAI SDKs      OPENAI_BASE_URL=${url}/v1 OPENAI_API_KEY=placeholder
  Anthropic SDKs   ANTHROPIC_BASE_URL=${url} ANTHROPIC_API_KEY=placeholder

An agent, in the directory of your project:

  Claude Code      ${START} run claude --port ${port} --model ${MODEL}
  opencode         ${START} run opencode --port ${port} --model ${MODEL}
  Codex            ${START} run codex --port ${port} --model ${MODEL}
  pi               ${START} run pi --port ${port} --model ${MODEL}

The model ${MODEL} only says back what you say. To verify the simulated service yourself, with every check:

  SSL_CERT_FILE=${directory}/ca.pem ${START} verify --api-endpoint localhost:${remote} --api-key demo \\
    --manifest-path ${directory}/manifest.json --unsafe-trust-roots ${directory}/roots

Each request is one line here, and on the status page:
`);
}
