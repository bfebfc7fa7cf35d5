/** `privatemode-proxy run AGENT -- ARGS`: starts a coding agent whose prompts go to the running proxy, whatever its own settings say. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';
import { constants } from 'node:os';
import { delimiter, join } from 'node:path';
import type { Environment } from '../config/environment.ts';
import { FLAGS } from '../config/flags.ts';
import { helpPage, section } from '../config/help.ts';
import { BOOLEAN, type Given, setting, text, valuesOf } from '../config/setting.ts';
import { asWritten, invalid, socketPath } from '../config/values.ts';
import { urlHost } from '../network/addresses.ts';
import { nearest, printable, shellWord } from '../text.ts';
import { type Asked, type Command, HELP } from './command.ts';
import { NEEDS_TLS, probe } from './healthcheck.ts';

const SETTINGS = [
  ...FLAGS.filter((row) => row.name === 'listen-address' || row.name === 'port'),
  setting('model', text('MODEL', asWritten), {
    help: 'The model to use. Not needed where the service lists only one, nor for claude where a --model-alias of the proxy covers its names.',
  }),
  setting('print', BOOLEAN, { help: 'Print the command instead of running it.' }),
] as const;

/** Where an agent is to send its prompts. */
interface Place {
  /** http://HOST:PORT, without a slash. */
  readonly url: string;
  /** Empty: those that it asks for by itself, which an alias of the proxy covers. */
  readonly model: string;
  /** The exceptions from an HTTP proxy: those of the caller, which the agent's own tools may need, and the host of `url`. */
  readonly direct: { readonly no_proxy: string; readonly NO_PROXY: string };
}

interface Agent {
  readonly install: string;
  /** The API without which it can do nothing, as GET /v1 lists it, and the flag that the proxy serves it with. */
  readonly needs?: readonly [endpoint: string, flag: string];
  /** What it is given beside the caller's environment without REMOVED, and in front of ARGS: both win over its files. */
  readonly env: (place: Place) => Readonly<Record<string, string>>;
  readonly args: (place: Place) => readonly string[];
  /** Arguments of its own that would undo them, and what to do instead. */
  readonly refused: readonly (readonly [arguments: RegExp, instead: string])[];
  /** A name that it asks for where no model is chosen; only of an agent that can be left its own names. */
  readonly ownModel?: string;
  /** Its argument that goes on with the last conversation, where that can be done without going past the proxy. */
  readonly goOn?: string;
}

/** What chooses where clients send prompts, in their telemetry too, and the keys that would go along. */
const REMOVED = /^(?:ANTHROPIC_|CLAUDE_CODE_USE_|OPENAI_|OTEL_|PRIVATEMODE_)/i;
/** The proxy has the key. */
const KEY = 'placeholder';
const LOOPBACK = '127.0.0.1';
const ELSEWHERE = 'Leave it out: such a session has its own way to a model';

const claudeVariables = ({ url, model }: Place) => ({
  ANTHROPIC_BASE_URL: url,
  ANTHROPIC_AUTH_TOKEN: KEY,
  ...(model !== '' && {
    ANTHROPIC_MODEL: model,
    ANTHROPIC_DEFAULT_FABLE_MODEL: model,
    ANTHROPIC_DEFAULT_OPUS_MODEL: model,
    ANTHROPIC_DEFAULT_SONNET_MODEL: model,
    ANTHROPIC_DEFAULT_HAIKU_MODEL: model,
  }),
  CLAUDE_CODE_ATTRIBUTION_HEADER: '0', // it differs in each request and would spoil a shared prompt cache
  CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: '1',
  CLAUDE_CODE_ENABLE_TELEMETRY: '0', // it may send prompts to wherever OTEL_EXPORTER_OTLP_ENDPOINT says
  ...{ OTEL_LOGS_EXPORTER: 'none', OTEL_TRACES_EXPORTER: 'none', OTEL_METRICS_EXPORTER: 'none' },
});

/** Settings files may set these too; an empty one counts as unset. */
const CLAUDE_UNSET = [
  ...['ANTHROPIC_API_KEY', 'ANTHROPIC_CUSTOM_HEADERS', 'ANTHROPIC_UNIX_SOCKET'],
  ...[
    'ENABLE_BETA_TRACING_DETAILED',
    'BETA_TRACING_ENDPOINT',
    'OTEL_LOG_USER_PROMPTS',
    'OTEL_LOG_RAW_API_BODIES',
  ],
  ...['BEDROCK', 'VERTEX', 'FOUNDRY', 'MANTLE', 'GATEWAY', 'ANTHROPIC_AWS', 'ANTHROPIC_GOOGLE_CLOUD'].map(
    (provider) => `CLAUDE_CODE_USE_${provider}`,
  ),
];

const CODEX_KEY = 'LOCAL_PROXY_KEY';

/** A name that no file of the user or of a repository can have prepared settings for. */
const providerName = (): string => `privatemode-${crypto.randomUUID().slice(0, 8)}`;

const AGENTS: Readonly<Record<string, Agent>> = {
  claude: {
    install: 'npm install -g @anthropic-ai/claude-code',
    // The last one makes Claude Code ignore what settings files say about providers, base URLs and keys.
    env: (place) => ({ ...claudeVariables(place), CLAUDE_CODE_PROVIDER_MANAGED_BY_HOST: '1' }),
    // Versions that do not know it let these win over the files.
    args: (place) => [
      '--settings',
      JSON.stringify({
        apiKeyHelper: '',
        env: {
          ...claudeVariables(place),
          ...Object.fromEntries(CLAUDE_UNSET.map((name) => [name, ''])),
          ...place.direct,
        },
      }),
    ],
    refused: [
      [/^--(?:settings|managed-settings)(?:=|$)/, 'Write them to .claude/settings.json of the project'],
      [/^--(?:cloud|teleport|environment|remote-control)(?:=|$)/, ELSEWHERE],
    ],
    ownModel: 'claude-sonnet-4-5',
    goOn: '--continue',
  },
  opencode: {
    install: 'npm install -g opencode-ai',
    env: ({ url, model }) => {
      const name = providerName();
      const options = { baseURL: `${url}/v1`, apiKey: KEY };
      const provider = { npm: '@ai-sdk/openai-compatible', options, models: { [model]: {} } };
      const models = { model: `${name}/${model}`, small_model: `${name}/${model}` };
      const own = { share: 'disabled', autoupdate: false, experimental: { openTelemetry: false } };
      const config = { ...models, ...own, enabled_providers: [name] };
      return {
        OPENCODE_CONFIG_CONTENT: JSON.stringify({ ...config, provider: { [name]: provider } }),
        OPENCODE_DISABLE_MODELS_FETCH: '1',
      };
    },
    args: () => [],
    refused: [[/^--attach(?:=|$)/, ELSEWHERE]],
  },
  codex: {
    install: 'npm install -g @openai/codex',
    needs: ['POST /v1/responses', '--responses-api'],
    env: () => ({ [CODEX_KEY]: KEY }),
    args: ({ url, model }) => {
      const name = providerName();
      const api = { name: 'privatemode', base_url: `${url}/v1`, wire_api: 'responses', env_key: CODEX_KEY };
      const provider = Object.entries(api).map(([member, value]) => `${member}=${JSON.stringify(value)}`);
      const settings = {
        model: JSON.stringify(model),
        model_provider: JSON.stringify(name),
        [`model_providers.${name}`]: `{${provider.join(',')}}`,
        'analytics.enabled': 'false',
        check_for_update_on_startup: 'false',
        // Telemetry may be told to send prompts.
        'otel.log_user_prompt': 'false',
        ...{ 'otel.exporter': '"none"', 'otel.trace_exporter': '"none"', 'otel.metrics_exporter': '"none"' },
      };
      return Object.entries(settings).flatMap(([setting, value]) => ['-c', `${setting}=${value}`]);
    },
    refused: [
      [/^--(?:oss|local-provider)(?:=|$)/, 'Choose the model in front of --, with --model'],
      [/^--remote(?:=|$)/, ELSEWHERE],
      [
        /^(?:-c=?|--config=)?(?:model_providers?|otel)[.=]/,
        'Leave it out: run sets the provider and switches off telemetry',
      ],
    ],
  },
};

export const AGENT_NAMES: readonly string[] = Object.keys(AGENTS);

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
  const host = { '0.0.0.0': LOOPBACK, '::': '::1' }[listenAddress] ?? listenAddress;
  const url = `http://${urlHost(host)}:${port}`;
  const agent = agentOf(name, url);
  for (const [refused, instead] of agent.refused) {
    const found = rest.find((argument) => refused.test(argument))?.split('=', 1)[0];
    if (found !== undefined)
      throw invalid(`${name} cannot run with ${found}: its prompts could bypass the proxy. ${instead}`);
  }
  const { ready, message } = await probe({ listenAddress, port, tls: false });
  if (message === NEEDS_TLS)
    throw invalid(
      `run needs a proxy that serves plain HTTP on this machine, and the one on port ${port} serves HTTPS: start one more without ` +
        `--tls-cert-path, or set the variables of ${name} yourself (docs/agents.md)`,
    );
  if (!ready)
    throw invalid(
      `the proxy on ${url} cannot be used: ${message}` +
        `${message.startsWith('nothing listens') ? '. Start it first, in another terminal' : ''}`,
    );
  await demand(url, name, agent.needs);
  const listed = await modelsOf(url);
  const model = wanted.model ?? (await modelFor(agent, url, listed));
  const { names } = listed;
  if (
    names.length > 0 &&
    model !== '' &&
    !names.includes(model) &&
    (await entryOf(url, model)).status === 404
  )
    io.stderr.write(`Warning: the service lists no model ${printable(model)}, but ${names.join(', ')}.\n`);

  if (print) {
    const { env: given, args } = commandOf(agent, { url, model }, env);
    const unset = Object.keys(env).flatMap((variable) => (REMOVED.test(variable) ? ['-u', variable] : []));
    const set = Object.entries(given).map(([variable, value]) => `${variable}=${value}`);
    io.stdout.write(`${['env', ...unset, ...set, name, ...args, ...rest].map(shellWord).join(' ')}\n`);
    return 0;
  }
  const flags = flagsIn(given);
  const relay = await startRelay({ host, port });
  try {
    const { env: given, args } = commandOf(agent, { url: relay.url, model }, env);
    const kept = Object.entries(env).filter(([variable]) => !REMOVED.test(variable));
    const tell = (text: string): unknown => io.stderr.isTTY && io.stderr.write(`${text}\n`);
    const models =
      model === '' ? 'the aliases of its models (--model-alias)' : `the model ${printable(model)}`;
    tell(`${name} uses the proxy on ${url}, and ${models}.`);
    const code = await runProgram(name, [...args, ...rest], { ...Object.fromEntries(kept), ...given }, agent);
    if (relay.requests() === 0) io.stderr.write(unseen(name));
    else if (agent.goOn !== undefined)
      tell(
        `To go on with this conversation: ${[startedAs(env), 'run', name, ...flags].join(' ')} -- ${agent.goOn}\n` +
          `${name} alone would not use the proxy.`,
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

/** Throws config_invalid for one that is not in the table. */
function agentOf(name: string, url: string): Agent {
  if (Object.hasOwn(AGENTS, name)) return AGENTS[name] as Agent;
  const lower = name.toLowerCase();
  const meant = nearest(lower, AGENT_NAMES) ?? AGENT_NAMES.find((agent) => lower.startsWith(agent));
  if (meant !== undefined) throw invalid(`run knows no agent ${printable(name)}. Did you mean ${meant}?`);
  throw invalid(
    `run starts ${AGENT_NAMES.join(', ')}. Any other client needs a base URL and a key: OPENAI_BASE_URL=${url}/v1 OPENAI_API_KEY=${KEY}, ` +
      `or ANTHROPIC_BASE_URL=${url} ANTHROPIC_API_KEY=${KEY}; its own settings may override them (docs/agents.md). ` +
      'To start the proxy itself, give no command',
  );
}

const unseen = (name: string): string =>
  `Warning: nothing came from ${name} to the proxy. If it answered a prompt, that prompt went elsewhere (docs/agents.md, "What run cannot prevent").\n`;

/** Throws config_invalid where what listens there is no proxy that the agent could use. */
async function demand(url: string, name: string, needs: Agent['needs']): Promise<void> {
  const response = await fetch(`${url}/v1`);
  if (response.status === 401)
    throw invalid(
      `the proxy on ${url} asks for a token of --clients, which run does not have: set the variables of ${name} yourself (docs/agents.md)`,
    );
  const about = (await response.json().catch(() => undefined)) as
    | { name?: string; endpoints?: string[] }
    | undefined;
  if (about?.name !== 'privatemode-proxy')
    throw invalid(`the program that listens on ${url} is not privatemode-proxy`);
  if (needs !== undefined && !about.endpoints?.includes(needs[0]))
    throw invalid(`${name} needs ${needs[0]}, which this proxy does not serve: start it with ${needs[1]}`);
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
  const idOf = (entry: { id?: unknown } | null): string => printable(String(entry?.id));
  return { names: Array.isArray(entries) ? entries.map(idOf) : [], why: text };
}

/** One model: its status is 404 where neither the service nor an alias has that name. */
async function entryOf(url: string, model: string): Promise<{ status: number; isAlias: boolean }> {
  const { status, body } = await ask(`${url}/v1/models/${encodeURIComponent(model)}`);
  const owner = String((body as { owned_by?: unknown } | undefined)?.owned_by);
  return { status, isAlias: status === 200 && owner.startsWith('privatemode-proxy: alias of ') };
}

/** The only model of the service, or none where an alias covers what the agent asks for. Throws config_invalid with the names of all. */
async function modelFor({ ownModel }: Agent, url: string, { names, why }: Listed): Promise<string> {
  if (names.length === 1) return names[0] as string;
  if (ownModel !== undefined && (await entryOf(url, ownModel)).isAlias) return '';
  throw invalid(
    `choose the model for the agent with --model: ${names.join(', ') || `the proxy lists none (GET /v1/models: ${why})`}`,
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
  env: Record<string, string | undefined>,
  { install }: Agent,
): Promise<number> {
  // npm changes the directory to that of the package, and says where the caller stood.
  const child = spawn(name, args, { env, stdio: 'inherit', cwd: env['INIT_CWD'] || process.cwd() });
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

const notInstalled = (name: string, install: string): Error =>
  invalid(`${name} is not installed, or not on the PATH: ${install}`);

/** Throws config_invalid for an agent of the table that is not on the PATH. */
export function demandInstalled(name: string, { PATH = '' }: Environment): void {
  const files = PATH.split(delimiter).flatMap((directory) => [
    join(directory, name),
    join(directory, `${name}.exe`),
  ]);
  if (!files.some((file) => existsSync(file))) throw notInstalled(name, agentOf(name, '').install);
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
