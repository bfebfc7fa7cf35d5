/** `privatemode-proxy run AGENT -- ARGS`: starts a coding agent whose prompts go to the running proxy, whatever its own settings say. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';
import { constants } from 'node:os';
import { aliasIn } from '../api/model-aliases.ts';
import type { Environment } from '../config/environment.ts';
import { FLAGS } from '../config/flags.ts';
import { helpPage, section } from '../config/help.ts';
import { BOOLEAN, type Given, setting, text, valuesOf } from '../config/setting.ts';
import { asWritten, invalid, socketPath } from '../config/values.ts';
import { reachableHost, urlHost } from '../network/addresses.ts';
import { printable, shellWord } from '../text.ts';
import {
  AGENT_NAMES,
  type Agent,
  agentOf,
  bypassIn,
  KEY,
  notInstalled,
  type Place,
  REMOVED,
} from './agents.ts';
import { type Asked, type Command, HELP } from './command.ts';
import { probe } from './healthcheck.ts';
import { providerName } from './provider-name.ts';

const SETTINGS = [
  ...FLAGS.filter((row) => row.name === 'listen-address' || row.name === 'port'),
  setting('model', text('MODEL', asWritten), {
    help: 'The model to use. Not needed where the service lists only one, nor for claude where a --model-alias of the proxy covers its names.',
  }),
  setting('print', BOOLEAN, { help: 'Print the command instead of running it.' }),
] as const;

const LOOPBACK = '127.0.0.1';

export const RUN: Command = {
  flags: [...SETTINGS, HELP],
  takesEnvironment: true,
  words: [['AGENT'], []],
  takesRest: true,
  otherFlags: (words) =>
    words === 'run'
      ? 'the agent comes first, as in run claude --port 8080 -- ARGS'
      : `write arguments for the agent after --, as in ${words} -- ARGS`,
  help: renderHelp,
  run: runAgent,
};

/** Gives the exit code of the agent, or 128 and the number of the signal that ended it. Throws config_invalid. */
async function runAgent({ given, words: [name = ''], rest, env, io }: Asked): Promise<number> {
  const { listenAddress, port, print, ...wanted } = valuesOf(SETTINGS, given);
  if (socketPath(listenAddress) !== undefined)
    throw invalid(
      'run needs a proxy that listens on a port, such as --listen-address 127.0.0.1: agents cannot use a socket file',
    );
  const host = reachableHost(listenAddress);
  const url = `http://${urlHost(host)}:${port}`;
  const agent = agentOf(name, url);
  const bypass = bypassIn(agent, rest);
  if (bypass !== undefined)
    throw invalid(
      `${name} cannot run with ${printable(bypass.found)}: its prompts could bypass the proxy. ${bypass.instead}`,
    );
  const { ready, message, failure } = await probe({ listenAddress, port, tls: false });
  if (failure === 'needs-tls')
    throw invalid(
      `run needs a proxy that serves plain HTTP on this machine, and the one on port ${port} serves HTTPS: start one more without ` +
        `--tls-cert-path, or set the variables of ${name} yourself (docs/agents.md)`,
    );
  if (!ready)
    throw invalid(
      `the proxy on ${url} cannot be used: ${message}` +
        `${failure === 'nothing-listens' ? '. Start it first, in another terminal' : ''}`,
    );
  const aliases = await demand(url, name, agent.needs);
  const listed = await modelsOf(url);
  const model = wanted.model ?? modelFor(agent, aliases, listed);
  const { names } = listed;
  if (names.length > 0 && model !== '' && !names.includes(model) && !isCovered(aliases, model))
    io.stderr.write(`Warning: the service lists no model ${printable(model)}, but ${shown(names)}.\n`);

  const directory = env['INIT_CWD'] || process.cwd(); // npm changes to the directory of the package
  const { name: provider, why } = providerName(env, directory);
  if (why !== undefined)
    io.stderr.write(
      `Warning: ${name} cannot go on with this session in a later run: the key for its provider's name cannot be kept (${printable(why)}).\n`,
    );
  if (print) {
    const { env: given, args } = commandOf(agent, { url, model, provider }, env);
    const unset = Object.keys(env).flatMap((variable) => (REMOVED.test(variable) ? ['-u', variable] : []));
    const set = Object.entries(given).map(([variable, value]) => `${variable}=${value}`);
    io.stdout.write(`${['env', ...unset, ...set, name, ...args, ...rest].map(shellWord).join(' ')}\n`);
    return 0;
  }
  const flags = flagsIn(given);
  const relay = await startRelay({ host, port });
  try {
    const { env: given, args } = commandOf(agent, { url: relay.url, model, provider }, env);
    const kept = Object.entries(env).filter(([variable]) => !REMOVED.test(variable));
    const tell = (text: string): unknown => io.stderr.isTTY && io.stderr.write(`${text}\n`);
    const models =
      model === '' ? 'the aliases of its models (--model-alias)' : `the model ${printable(model)}`;
    tell(`${name} uses the proxy on ${url}, and ${models}.`);
    // opencode believes PWD, and not where it stands.
    const ownEnv = { ...Object.fromEntries(kept), PWD: directory, ...given };
    const code = await runProgram(name, [...args, ...rest], { cwd: directory, env: ownEnv }, agent);
    if (relay.requests() === 0) io.stderr.write(unseen(name));
    const [again, alone] = agent.goOn;
    io.stderr.write(
      `To go on with this conversation: ${[startedAs(env), 'run', name, ...flags].join(' ')} -- ${again}\n${alone}\n`,
    );
    return code;
  } finally {
    relay.close();
  }
}

/** How npm or a shell started this program, for a line to copy. */
function startedAs(env: Environment): string {
  if (env['npm_lifecycle_event'] !== 'start') return 'privatemode-proxy';
  const here = process.cwd();
  return env['INIT_CWD'] === here ? 'npm start --' : `npm --prefix ${shellWord(here)} start --`;
}

/** The flags of the command line, without what variables set. */
const flagsIn = ({ values, label }: Given): readonly string[] =>
  [...values]
    .filter(([name]) => label(name) === `--${name}` && SETTINGS.some((row) => row.name === name))
    .map(([name, value]) => shellWord(`--${name}=${printable(value)}`));

/** What the agent gets: its own variables, with the host of the proxy in no_proxy, and its arguments before ARGS. */
function commandOf(agent: Agent, at: Omit<Place, 'direct'>, env: Environment) {
  const hosts = [env['no_proxy'], env['NO_PROXY'], new URL(at.url).hostname].flatMap(
    (list) => list?.split(',') ?? [],
  );
  const list = [...new Set(hosts.filter(Boolean))].join(',');
  const direct = { no_proxy: list, NO_PROXY: list };
  const place = { ...at, direct };
  return {
    env: { ...direct, ...agent.env(place) } as Readonly<Record<string, string>>,
    args: agent.args(place),
  };
}

const unseen = (name: string): string =>
  `Warning: nothing came from ${name} to the proxy. If it answered a prompt, that prompt went elsewhere (docs/agents.md, "What run cannot prevent"). If you asked nothing, this is expected.\n`;

/** Gives the aliases that the proxy was started with. Throws config_invalid where what listens there is no proxy that the agent could use. */
async function demand(url: string, name: string, needs: Agent['needs']): Promise<readonly string[]> {
  const response = await fetch(`${url}/v1`);
  if (response.status === 401)
    throw invalid(
      `the proxy on ${url} asks for a token of --clients, which run does not have: set the variables of ${name} yourself (docs/agents.md)`,
    );
  const about = (await response.json().catch(() => undefined)) as
    | { name?: string; endpoints?: string[]; model_aliases?: string[] }
    | undefined;
  if (about?.name !== 'privatemode-proxy')
    throw invalid(`the program that listens on ${url} is not privatemode-proxy`);
  if (needs !== undefined && !about.endpoints?.includes(needs[0]))
    throw invalid(`${name} needs ${needs[0]}, which this proxy does not serve: start it with ${needs[1]}`);
  return about.model_aliases ?? [];
}

/** The answer to a GET with the key that the agent will send; `text` is its status and its error in words. */
async function ask(url: string): Promise<{ status: number; body: unknown; text: string }> {
  const response = await fetch(url, { headers: { authorization: `Bearer ${KEY}` } }).catch(() => undefined);
  if (response === undefined) return { status: 0, body: undefined, text: 'no answer' };
  const body = (await response.json().catch(() => undefined)) as
    | { error?: { message?: unknown } }
    | undefined;
  const message = body?.error?.message;
  const words = typeof message === 'string' ? `: ${printable(message)}` : '';
  return { status: response.status, body, text: `status ${response.status}${words}` };
}

interface Listed {
  readonly names: readonly string[];
  /** Why there are none. */
  readonly why: string;
}

/** What the proxy lists. Throws config_invalid where the key of the agent is not accepted: its prompts would not be either. */
async function modelsOf(url: string): Promise<Listed> {
  const { status, body, text } = await ask(`${url}/v1/models`);
  if (status === 401)
    throw invalid(
      `the proxy on ${url} has no API key of its own, or does not use it: the key "${KEY}", which run gives to agents, is rejected. ` +
        'Start the proxy with --api-key, and --api-key-fallback always or if-placeholder',
    );
  const entries: unknown = (body as { data?: unknown } | undefined)?.data;
  const idOf = (entry: { id?: unknown } | null): string => String(entry?.id);
  return { names: Array.isArray(entries) ? entries.map(idOf) : [], why: text };
}

const isCovered = (aliases: readonly string[], model: string): boolean =>
  aliasIn(new Map(aliases.map((name) => [name, ''])), model) !== undefined;

/** Names of the service, for a person to read. */
const shown = (names: readonly string[]): string => names.map((name) => printable(name)).join(', ');

/**
 * A name of the service that may stand in an agent's configuration. Nothing authenticates the list of models, and agents give some
 * texts a meaning: opencode puts the variable NAME in the place of `{env:NAME}`.
 */
const PLAIN_NAME = /^[A-Za-z0-9][\w.:@/+-]{0,255}$/;

/** The only model of the service, or none where an alias covers what the agent asks for. Throws config_invalid with the names of all. */
function modelFor({ ownModel }: Agent, aliases: readonly string[], { names, why }: Listed): string {
  const [only = ''] = names;
  if (names.length === 1 && PLAIN_NAME.test(only)) return only;
  if (ownModel !== undefined && isCovered(aliases, ownModel)) return '';
  throw invalid(
    `choose the model for the agent with --model: ${shown(names) || `the proxy lists none (GET /v1/models: ${why})`}`,
  );
}

const HEAD_OF_A_PROMPT = Buffer.from('POST ');

/**
 * A port on loopback that leads to the proxy and nowhere else. It changes no byte; `requests` counts what connections sent that begins
 * with POST, to know whether the agent used it at all: the proxy cannot tell the requests of one agent from those of others.
 */
async function startRelay(proxy: { readonly host: string; readonly port: number }) {
  let requests = 0;
  const sockets = new Set<Socket>();
  const server = createServer({ noDelay: true }, (client) => {
    const upstream = connect({ ...proxy, noDelay: true });
    for (const [socket, other] of [
      [client, upstream],
      [upstream, client],
    ] as const) {
      sockets.add(socket);
      socket.on('error', () => {}).on('close', () => other.destroy());
      socket.pipe(other);
    }
    client.on('data', (chunk: Buffer) => {
      if (chunk.subarray(0, HEAD_OF_A_PROMPT.length).equals(HEAD_OF_A_PROMPT)) requests += 1;
    });
  });
  server.listen(0, LOOPBACK);
  await once(server, 'listening');
  return {
    url: `http://${LOOPBACK}:${(server.address() as AddressInfo).port}`,
    requests: () => requests,
    close(): void {
      server.close();
      for (const socket of sockets) socket.destroy();
    },
  };
}

const SIGNALS = ['SIGINT', 'SIGTERM', 'SIGHUP', 'SIGQUIT'] as const;

/** Runs it on this terminal and passes signals on; a terminal sends those of its keys to both. Throws config_invalid where it is not installed. */
async function runProgram(
  name: string,
  args: readonly string[],
  at: { readonly cwd: string; readonly env: Record<string, string | undefined> },
  { install }: Agent,
): Promise<number> {
  const child = spawn(name, args, { ...at, stdio: 'inherit' });
  const pass = (signal: NodeJS.Signals): void => {
    if (signal === 'SIGTERM' || signal === 'SIGHUP' || !process.stdin.isTTY) child.kill(signal);
  };
  for (const signal of SIGNALS) process.on(signal, pass);
  try {
    const [code, signal] = (await once(child, 'exit')) as [number | null, NodeJS.Signals | null];
    return code ?? 128 + constants.signals[signal as NodeJS.Signals];
  } catch (thrown) {
    const { code } = thrown as NodeJS.ErrnoException;
    throw code === 'ENOENT' ? notInstalled(name, install) : invalid(`${name} cannot be started: ${code}`);
  } finally {
    for (const signal of SIGNALS) process.off(signal, pass);
  }
}

function renderHelp(): string {
  return helpPage(
    `Starts a coding agent (${AGENT_NAMES.join(', ')}) on this terminal, so that its prompts go to
the running proxy, whatever its files and the environment say. The files stay as they are. ARGS go to the agent.`,
    ['run AGENT [flags] -- ARGS'],
    [
      section('Flags (give --listen-address and --port as you gave them to the proxy)', [...SETTINGS, HELP]),
      section('Exit codes', [
        ['   N', 'That of the agent; 128 and its number where a signal ended it.'],
        ['   1', 'The agent was not started; "Error: …" says what to do.'],
      ]),
    ],
  );
}
