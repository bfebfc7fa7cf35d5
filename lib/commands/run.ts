/** `privatemode-proxy run AGENT -- ARGS`: starts a coding agent whose prompts go to the running proxy. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { constants, homedir } from 'node:os';
import { dirname, resolve } from 'node:path';
import { parseApiKey } from '../config/api-key.ts';
import type { Environment } from '../config/environment.ts';
import { FLAGS } from '../config/flags.ts';
import { helpPage, section } from '../config/help.ts';
import { BOOLEAN, integer, setting, text, type ValuesOf, valuesOf } from '../config/setting.ts';
import { asWritten, invalid, parseBaseUrl, socketPath } from '../config/values.ts';
import { makeDirectory, replace } from '../files/durable-file.ts';
import { reachableHost, urlHost } from '../network/addresses.ts';
import { loadTrustStore } from '../network/trust-store.ts';
import { plural, printable, shellWord } from '../text.ts';
import { type Agent, KEY, type Model, type Place } from './agents/agent.ts';
import type { Reached } from './ask-proxy.ts';
import { type Command, HELP, type Invocation } from './command.ts';
import * as agents from './run-agents.ts';
import { isCovered, limitsOf, nameFor, type Offer, offerOf, shown } from './run-models.ts';
import { startRelay } from './run-relay.ts';

const SETTINGS = [
  ...FLAGS.filter((row) => row.name === 'listen-address' || row.name === 'port'),
  setting('url', text('URL', parseBaseUrl), {
    help: 'A gateway in place of --listen-address and --port, as https://HOST:PORT. SSL_CERT_FILE names its CA if that is your own.',
  }),
  setting('token', text('@FILE', parseTokenFile), {
    help: 'With --url: a file with your token of its --clients, which run adds to the requests of the agent.',
  }),
  setting('model', text('MODEL', asWritten), {
    help: 'The model to use. Not needed where the service lists only one, nor for claude where a --model-alias of the proxy covers its names.',
  }),
  setting('context-window', integer('TOKENS', 1_000), {
    help: 'Tokens that a request and its response may have together. Not needed where GET /v1/models says it (max_model_len).',
  }),
  setting('print', BOOLEAN, { help: 'Print the command instead of running it.' }),
] as const;
type Values = ValuesOf<(typeof SETTINGS)[number]>;

export const RUN: Command = {
  flags: [...SETTINGS, HELP],
  takesEnvironment: true,
  words: [['AGENT']],
  takesRest: true,
  otherFlags: (words) => `write arguments for the agent after --, as in ${words} -- ARGS`,
  help: () =>
    helpPage(
      `Starts a coding agent (${agents.AGENT_NAMES.join(', ')}) on this terminal, so that its prompts go to
the running proxy, whatever its files and the environment say. The files stay as they are. ARGS go to the agent.
The exit code is that of the agent, or 1 if it was not started.`,
      ['run AGENT [flags] -- ARGS'],
      [section('Flags (--listen-address and --port as you gave them to the proxy)', [...SETTINGS, HELP])],
    ),
  run: runAgent,
};

/** The path of a file, given as @FILE. No error quotes a text without @, which may be the token itself. */
function parseTokenFile(flag: string, given: string): string {
  if (/^@./.test(given)) return given.slice(1);
  throw invalid(`${flag} wants @FILE, the file that holds the token`);
}

/** The URL of the proxy, and the headers and authorities for requests to it. Throws config_invalid. */
function reached({ listenAddress, port, url, token, print }: Values, env: Environment): Reached {
  if (url === undefined && socketPath(listenAddress) !== undefined)
    throw invalid(
      'agents cannot use a socket file: give the --listen-address and --port of a proxy with a port',
    );
  const at = url ?? `http://${urlHost(reachableHost(listenAddress))}:${port}`;
  const isTls = at.startsWith('https:');
  if (token !== undefined && (print || !isTls))
    throw invalid('--token goes with an https --url, and not with --print: nobody else may get the token');
  const key = token === undefined ? KEY : parseApiKey('--token', `@${token}`).key;
  const ca = isTls ? loadTrustStore(env) : undefined;
  return { url: at, headers: { authorization: `Bearer ${key}` }, ca };
}

/**
 * Returns the exit code of the agent. If a signal ended the agent, returns 128 plus the signal's number.
 * Throws config_invalid.
 */
async function runAgent({ given, words: [name = ''], rest, env, io }: Invocation): Promise<number> {
  const { stdout, stderr, clock, program } = io;
  const values = valuesOf(SETTINGS, given);
  const proxy = reached(values, env);
  const agent = agents.agentOf(name, proxy.url);
  agents.refuseBypass(name, agent, rest);
  const offer = await offerOf(proxy, name, agent, clock);
  const wanted = values.model ?? nameFor(agent, offer);
  const listed = offer.models.find((model) => model.name === wanted);
  const limits = values.contextWindow === undefined ? listed?.limits : limitsOf(values.contextWindow);
  const model = { name: wanted, limits };
  stderr.write(warning(name, model, offer));
  await agents.demandVersion(name, agent, env, clock.times);
  const models = [model, ...offer.models.filter((other) => other !== listed)];
  const aliases = values.model === undefined ? offer.aliases : [];
  const file = await keptFile(agent, env);
  /** The variables and the arguments with which the agent is started. */
  function command(url: string, key: string) {
    const hosts = [env['no_proxy'], env['NO_PROXY'], new URL(url).hostname].filter(Boolean).join(',');
    const direct = { no_proxy: hosts, NO_PROXY: hosts };
    const place: Place = { url, key, model, models, aliases, file, direct };
    return { added: { ...direct, ...agent.env(place) }, args: [...agent.args(place), ...rest] };
  }

  if (values.print) {
    const { added, args } = command(proxy.url, KEY);
    const removed = Object.keys(env).filter((variable) => agents.REMOVED.test(variable));
    const unset = removed.flatMap((variable) => ['-u', variable]);
    const set = Object.entries(added).map(([variable, value]) => `${variable}=${value}`);
    stdout.write(`${['env', ...unset, ...set, name, ...args].map(shellWord).join(' ')}\n`);
    return 0;
  }
  const relay = await startRelay(proxy, clock);
  try {
    const { added, args } = command(relay.url, relay.key);
    const ownEnv = { ...agents.withoutKeys(env), PWD: process.cwd(), ...added }; // opencode works in PWD
    const code = await runProgram(name, args, ownEnv, agent);
    if (relay.prompts() === 0)
      stderr.write(
        `Warning: nothing came from ${name} to the proxy. If it answered a prompt, that prompt went elsewhere. If you asked nothing, this is expected.\n`,
      );
    const failed = plural(relay.failed(), 'request');
    if (relay.failed() > 0) stderr.write(`The proxy on ${proxy.url} did not answer ${failed} of ${name}.\n`);
    const flags = [...given.values]
      .filter(([flag]) => given.label(flag) === `--${flag}`) // leaves out what variables set
      .map(([flag, value]) => `--${flag}=${printable(value)}`);
    const again = `run ${[name, ...flags].map(shellWord).join(' ')} -- ${agent.goOn}`;
    if (program !== undefined)
      stderr.write(`To go on with this conversation: ${shellWord(program)} ${again}\n`);
    stderr.write(`Without run, ${name} would use another service.\n`);
    return code;
  } finally {
    relay.close();
  }
}

/** A warning if the model is unlisted or has unknown limits, else an empty text. `name`: the agent's name. */
function warning(name: string, { name: model, limits }: Model, { models, aliases }: Offer): string {
  const which = printable(model);
  const isKnown = models.some((listed) => listed.name === model) || isCovered(aliases, model);
  if (models.length > 0 && !isKnown)
    return `Warning: the service lists no model ${which}, so requests will probably fail: end ${name}, and give --model one of ${shown(models)}.\n`;
  if (limits !== undefined) return '';
  return `Warning: the context window of ${which} is not known, so ${name} may send more than fits. If you know it, add --context-window TOKENS.\n`;
}

/**
 * Writes the file that the agent reads into the user's state directory (XDG Base Directory Specification).
 * Returns the path of the file. If the agent reads no file, returns an empty text. Throws config_invalid if
 * writing fails.
 */
async function keptFile({ file }: Agent, { XDG_STATE_HOME = '' }: Environment): Promise<string> {
  if (file === undefined) return '';
  // A relative path in XDG_STATE_HOME must not lead into the project.
  const path = resolve('/', homedir(), '.local/state', XDG_STATE_HOME, 'privatemode-proxy', file.name);
  await makeDirectory(dirname(path), 0o700)
    .then(() => replace(path, file.text, 0o600))
    .catch(({ message }: Error) => {
      throw invalid(`${path} cannot be written (${message}): set XDG_STATE_HOME to a directory of yours`);
    });
  return path;
}

const SIGNALS = ['SIGINT', 'SIGTERM', 'SIGHUP', 'SIGQUIT'] as const;

/**
 * Runs the agent on this terminal and passes signals on. SIGINT and SIGQUIT are passed on only without a
 * terminal, because a terminal sends the signals of its keys to both programs. Throws config_invalid if the
 * agent is not installed.
 */
async function runProgram(
  name: string,
  args: readonly string[],
  env: Environment,
  agent: Agent,
): Promise<number> {
  const child = spawn(name, args, { env, stdio: 'inherit' });
  const pass = (signal: NodeJS.Signals): void => {
    if (signal === 'SIGTERM' || signal === 'SIGHUP' || !process.stdin.isTTY) child.kill(signal);
  };
  for (const signal of SIGNALS) process.on(signal, pass);
  try {
    const [code, signal] = (await once(child, 'exit')) as [number | null, NodeJS.Signals | null];
    return code ?? 128 + constants.signals[signal as NodeJS.Signals];
  } catch (thrown) {
    throw agents.cannotStart(name, agent, thrown as NodeJS.ErrnoException);
  } finally {
    for (const signal of SIGNALS) process.off(signal, pass);
  }
}
