/**
 * `privatemode-proxy run AGENT -- ARGS`: starts a coding agent and sends its prompts to the running proxy.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { constants, userInfo } from 'node:os';
import { isAbsolute, join } from 'node:path';
import { parseApiKey } from '../config/api-key.ts';
import type { Environment } from '../config/environment.ts';
import { FLAGS } from '../config/flags.ts';
import { helpPage, section } from '../config/help.ts';
import { BOOLEAN, type Given, integer, setting, text, type ValuesOf, valuesOf } from '../config/setting.ts';
import { asWritten, invalid, socketPath } from '../config/values.ts';
import { makeDirectorySync, replace } from '../files/durable-file.ts';
import { reachableHost, urlHost } from '../network/addresses.ts';
import { loadTrustStore } from '../network/outbound.ts';
import { plural, printable, shellWord } from '../text.ts';
import { type Agent, KEY, type Model, type Place } from './agents/agent.ts';
import * as agents from './agents.ts';
import { type Command, HELP, type Invocation } from './command.ts';
import { isCovered, modelOf, nameFor, offered, offerOf, SHORTEST_OUTPUT, shown } from './run-models.ts';
import { type Reached, startRelay } from './run-relay.ts';

const SETTINGS = [
  ...FLAGS.filter((row) => row.name === 'listen-address' || row.name === 'port'),
  setting('url', text('URL', parseGateway), {
    help: 'A gateway in place of --listen-address and --port, as https://HOST:PORT. SSL_CERT_FILE names its CA if that is your own.',
  }),
  setting('token', text('@FILE', parseTokenFile), {
    secret: true,
    help: 'With --url: a file with your token of its --clients, which run adds to the requests of the agent.',
  }),
  setting('model', text('MODEL', asWritten), {
    help: 'The model to use. Not needed where the service lists only one, nor for claude where a --model-alias of the proxy covers its names.',
  }),
  setting('context-window', integer('TOKENS', 1_000), {
    help: 'Tokens that a request and its response may have together. Not needed where GET /v1/models says it (max_model_len).',
  }),
  setting('max-output', integer('TOKENS', 1), {
    help: 'Tokens that a response may have. If unset, a quarter of the context window, at most 32000, and fewer for claude in a window below 40000. Codex has no such setting.',
  }),
  setting('print', BOOLEAN, { help: 'Print the command instead of running it.' }),
] as const;

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

/** An https URL without a path: what comes behind the host is the agent's. */
function parseGateway(flag: string, given: string): string {
  const { protocol, origin, href } = URL.parse(given) ?? {};
  if (protocol === 'https:' && href === `${origin}/`) return origin as string;
  throw invalid(`${flag} wants https://HOST:PORT; a proxy on this machine is named by --port`);
}

/** The path of a file. What has no @ may be the token itself, so it is not quoted. */
function parseTokenFile(flag: string, given: string): string {
  if (/^@./.test(given)) return given.slice(1);
  throw invalid(`${flag} wants @FILE, the file that holds the token`);
}

/** Where the proxy is, and with which key it is asked. Throws config_invalid. */
function reached(
  { listenAddress, port, url, token }: ValuesOf<(typeof SETTINGS)[number]>,
  env: Environment,
): Reached {
  if (url === undefined && socketPath(listenAddress) !== undefined)
    throw invalid(
      'run needs a proxy that listens on a port, such as --listen-address 127.0.0.1: agents cannot use a socket file',
    );
  if (url === undefined && token !== undefined)
    throw invalid('--token goes with --url: without TLS, whatever has the port would get the token');
  const key = token === undefined ? KEY : parseApiKey('--token', `@${token}`).key;
  return {
    url: url ?? `http://${urlHost(reachableHost(listenAddress))}:${port}`,
    headers: { authorization: `Bearer ${key}` },
    ca: url === undefined ? undefined : loadTrustStore(env),
  };
}

/**
 * Returns the exit code of the agent, or 128 plus the number of the signal that ended it. Throws
 * config_invalid.
 */
async function runAgent({ given, words: [name = ''], rest, env, io }: Invocation): Promise<number> {
  const values = valuesOf(SETTINGS, given);
  const { print, contextWindow, maxOutput, model: chosen } = values;
  const proxy = reached(values, env);
  const { url } = proxy;
  const agent = agents.agentOf(name, url);
  agents.refuseBypass(name, agent, rest);
  if (maxOutput !== undefined && agent.hasNoOutputLimit)
    throw invalid(`${name} has no setting for the longest response: leave out --max-output`);
  if (print && values.url !== undefined)
    throw invalid('--print does not go with --url: the agent alone would have no token');
  const offer = await offerOf(proxy, name, agent, io.clock);
  const { names, aliases } = offer;
  const wanted = chosen ?? nameFor(agent, offer);
  const model = modelOf(wanted, offer, agent, contextWindow, maxOutput);
  if (names.length > 0 && !names.includes(wanted) && !isCovered(aliases, wanted))
    io.stderr.write(
      `Warning: the service lists no model ${printable(wanted)}, so requests will probably fail: end ${name}, and give --model one of ${shown(names)}.\n`,
    );
  else io.stderr.write(aboutWindow(name, agent, model));

  await agents.demandVersion(name, agent, env, io.clock.times);
  const file = await keptFile(agent, env);
  const hasOwnNames = chosen === undefined && wanted === agent.ownModel;
  const place = { model, models: offered(model, agent, offer), aliases: hasOwnNames ? aliases : [], file };
  if (print) {
    const { added, args } = commandOf(agent, { ...place, url, key: KEY }, env);
    const unset = Object.keys(env).flatMap((variable) =>
      agents.REMOVED.test(variable) ? ['-u', variable] : [],
    );
    const set = Object.entries(added).map(([variable, value]) => `${variable}=${value}`);
    io.stdout.write(`${['env', ...unset, ...set, name, ...args, ...rest].map(shellWord).join(' ')}\n`);
    return 0;
  }
  if (io.stderr.isTTY)
    io.stderr.write(`${name} uses the proxy on ${url}, and the model ${printable(wanted)}.\n`);
  const relay = await startRelay(proxy, io.clock);
  try {
    const { added, args } = commandOf(agent, { ...place, url: relay.url, key: relay.key }, env);
    // opencode takes PWD for its working directory.
    const cwd = process.cwd();
    const ownEnv = { ...agents.withoutKeys(env), PWD: cwd, ...added };
    const code = await runProgram(name, [...args, ...rest], { cwd, env: ownEnv }, agent);
    if (relay.prompts() === 0) io.stderr.write(unseen(name));
    if (relay.failed() > 0)
      io.stderr.write(
        `The proxy on ${url} did not answer ${plural(relay.failed(), 'request')} of ${name}.\n`,
      );
    const [again, alone] = agent.goOn;
    const words = ['run', name, ...flagsIn(given), '--', again];
    const next =
      io.program === undefined
        ? 'This conversation ends here: its proxy ends now.'
        : `To go on with this conversation: ${[shellWord(io.program), ...words].join(' ')}`;
    io.stderr.write(`${next}\n${alone}\n`);
    return code;
  } finally {
    relay.close();
  }
}

/**
 * Writes the file that the agent reads, into the user's state directory (XDG Base Directory Specification, by
 * which a relative path counts as unset), and returns its path; empty if the agent reads none. Throws
 * config_invalid if the file cannot be written.
 */
async function keptFile({ file }: Agent, { XDG_STATE_HOME = '', HOME = '' }: Environment): Promise<string> {
  if (file === undefined) return '';
  const home = isAbsolute(HOME) ? HOME : userInfo().homedir; // a relative one would lie in the project
  const state = isAbsolute(XDG_STATE_HOME) ? XDG_STATE_HOME : join(home, '.local/state');
  const directory = join(state, 'privatemode-proxy');
  const path = join(directory, file.name);
  try {
    makeDirectorySync(directory, 0o700);
    await replace(path, file.text, 0o600);
    return path;
  } catch (thrown) {
    const { code, message } = thrown as NodeJS.ErrnoException;
    throw invalid(
      `${path} cannot be written (${code ?? message}): set XDG_STATE_HOME to a directory of yours`,
    );
  }
}

/** The flags given on the command line, without those set by variables. */
const flagsIn = ({ values, label }: Given): readonly string[] =>
  [...values]
    .filter(([name]) => label(name) === `--${name}` && SETTINGS.some((row) => row.name === name))
    .map(([name, value]) => shellWord(`--${name}=${printable(value)}`));

/**
 * What the agent is started with: its variables, including no_proxy with the host of the proxy, and its
 * arguments before ARGS.
 */
function commandOf(agent: Agent, at: Omit<Place, 'direct'>, env: Environment) {
  const lists = [env['no_proxy'], env['NO_PROXY'], new URL(at.url).hostname];
  const hosts = new Set(lists.flatMap((list) => list?.split(',') ?? []).filter(Boolean));
  const direct = { no_proxy: [...hosts].join(','), NO_PROXY: [...hosts].join(',') };
  const added: Readonly<Record<string, string>> = { ...direct, ...agent.env({ ...at, direct }) };
  return { added, args: agent.args({ ...at, direct }) };
}

/** A warning about the context window; empty if there is none. */
function aboutWindow(name: string, { leastWindow }: Agent, { name: model, limits }: Model): string {
  const which = printable(model);
  if (limits === undefined)
    return `Warning: the context window of ${which} is not known, so ${name} assumes one. If you know it, add --context-window TOKENS.\n`;
  const { context, output } = limits;
  if (leastWindow === undefined || context >= leastWindow(output)) return '';
  const least = leastWindow(Math.max(output, SHORTEST_OUTPUT));
  return `Warning: the context window of ${which} has ${context} tokens, in which ${name} cannot work. Choose a model with at least ${least}.\n`;
}

const unseen = (name: string): string =>
  `Warning: nothing came from ${name} to the proxy. If it answered a prompt, that prompt went elsewhere. If you asked nothing, this is expected.\n`;

const SIGNALS = ['SIGINT', 'SIGTERM', 'SIGHUP', 'SIGQUIT'] as const;

/**
 * Runs the agent on this terminal and passes signals on. SIGINT and SIGQUIT are passed on only without a
 * terminal, since a terminal sends those of its keys to both programs. Throws config_invalid if the agent is
 * not installed.
 */
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
    throw code === 'ENOENT'
      ? agents.notInstalled(name, install)
      : invalid(`${name} cannot be started: ${code}`);
  } finally {
    for (const signal of SIGNALS) process.off(signal, pass);
  }
}

function renderHelp(): string {
  return helpPage(
    `Starts a coding agent (${agents.AGENT_NAMES.join(', ')}) on this terminal, so that its prompts go to
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
