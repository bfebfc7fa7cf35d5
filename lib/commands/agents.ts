/** The coding agents that `run` starts: what each is given, so that its prompts go to the proxy and nowhere else. */
import { existsSync } from 'node:fs';
import { delimiter, join } from 'node:path';
import type { Environment } from '../config/environment.ts';
import { invalid } from '../config/values.ts';
import { nearest, printable } from '../text.ts';

/** Where an agent is to send its prompts. */
export interface Place {
  /** http://HOST:PORT, without a slash. */
  readonly url: string;
  /** Empty: those that it asks for by itself, which an alias of the proxy covers. */
  readonly model: string;
  /** The name of the provider in its configuration. */
  readonly provider: string;
  /** The exceptions from an HTTP proxy: those of the caller, which the agent's own tools may need, and the host of `url`. */
  readonly direct: { readonly no_proxy: string; readonly NO_PROXY: string };
}

export interface Agent {
  readonly install: string;
  /** The API without which it can do nothing, as GET /v1 lists it, and the flag that the proxy serves it with. */
  readonly needs?: readonly [endpoint: string, flag: string];
  /** What it is given beside the caller's environment without REMOVED, and in front of ARGS: both win over its files. */
  readonly env: (place: Place) => Readonly<Record<string, string>>;
  readonly args: (place: Place) => readonly string[];
  /** Arguments of its own that would undo them, and what to do instead. */
  readonly refused: readonly (readonly [arguments: RegExp, instead: string])[];
  /** The same of settings that it takes by `-c NAME=VALUE`, by the first part of their dotted names. */
  readonly refusedSettings?: readonly [name: RegExp, instead: string];
  /** A name that it asks for where no model is chosen; only of an agent that can be left its own names. */
  readonly ownModel?: string;
  /** Its arguments that go on with the last conversation, and what it does with that conversation without `run`. */
  readonly goOn: readonly [args: string, alone: string];
}

/** What chooses where clients send prompts, in their telemetry too, and the keys that would go along. */
export const REMOVED = /^(?:ANTHROPIC_|CLAUDE_CODE_USE_|OPENAI_|OTEL_|PRIVATEMODE_)/i;
/** The proxy has the key. */
export const KEY = 'placeholder';
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

/**
 * JSON, and what TOML takes for a string, in which no agent finds anything to replace: opencode puts the variable NAME in the place
 * of `{env:NAME}`, and a file in that of `{file:PATH}`, in the text of its configuration and before it reads that as JSON.
 */
const literal = (value: unknown): string =>
  JSON.stringify(value).replace(/"(?:[^"\\]|\\.)*"/g, (string) => string.replaceAll('{', '\\u007b'));

const AGENTS: Readonly<Record<string, Agent>> = {
  claude: {
    install: 'npm install -g @anthropic-ai/claude-code',
    // The last one makes Claude Code ignore what settings files say about providers, base URLs and keys.
    env: (place) => ({ ...claudeVariables(place), CLAUDE_CODE_PROVIDER_MANAGED_BY_HOST: '1' }),
    // Versions that do not know it let these win over the files.
    args: (place) => [
      '--settings',
      literal({
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
      [/^--(?:cloud|teleport|environment|remote|remote-control|sdk-url)(?:=|$)/, ELSEWHERE],
    ],
    ownModel: 'claude-sonnet-4-5',
    goOn: ['--continue', 'claude alone sends the whole conversation to its own service.'],
  },
  opencode: {
    install: 'npm install -g opencode-ai',
    env: ({ url, model, provider: name }) => {
      const options = { baseURL: `${url}/v1`, apiKey: KEY };
      const provider = { npm: '@ai-sdk/openai-compatible', options, models: { [model]: {} } };
      const models = { model: `${name}/${model}`, small_model: `${name}/${model}` };
      const own = { share: 'disabled', autoupdate: false, experimental: { openTelemetry: false } };
      const config = { ...models, ...own, enabled_providers: [name] };
      return {
        OPENCODE_CONFIG_CONTENT: literal({ ...config, provider: { [name]: provider } }),
        OPENCODE_DISABLE_MODELS_FETCH: '1',
      };
    },
    args: () => [],
    refused: [[/^--attach(?:=|$)/, ELSEWHERE]],
    goOn: [
      '--continue',
      'opencode alone ("opencode -s …") opens the conversation with another provider, without a login with a free one, and sends it there.',
    ],
  },
  codex: {
    install: 'npm install -g @openai/codex',
    needs: ['POST /v1/responses', '--responses-api'],
    env: () => ({ [CODEX_KEY]: KEY }),
    args: ({ url, model, provider: name }) => {
      const api = { name: 'privatemode', base_url: `${url}/v1`, wire_api: 'responses', env_key: CODEX_KEY };
      const provider = Object.entries(api).map(([member, value]) => `${member}=${literal(value)}`);
      const settings = {
        model: literal(model),
        model_provider: literal(name),
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
    ],
    goOn: [
      'resume --last',
      'codex alone does not use the proxy: "codex exec resume --last" begins a new conversation at OpenAI.',
    ],
    refusedSettings: [
      /^(?:model_providers?|profiles?|otel)$/,
      'Leave it out: run sets the provider and switches off telemetry',
    ],
  },
};

export const AGENT_NAMES: readonly string[] = Object.keys(AGENTS);

/** Throws config_invalid for one that is not in the table. */
export function agentOf(name: string, url: string): Agent {
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

/**
 * What of ARGS would undo what `run` sets, and what to do instead. Each argument counts as if it began one, also behind `--`: some
 * agents take that, too, for the value of the option before it.
 */
export function bypassIn(
  { refused, refusedSettings: [setting, leave] = [/^(?!)/, ''] }: Agent,
  args: readonly string[],
): { readonly found: string; readonly instead: string } | undefined {
  for (const [index, argument] of args.entries()) {
    const [, instead] = refused.find(([pattern]) => pattern.test(argument)) ?? [];
    if (instead !== undefined) return { found: argument.split('=', 1)[0] as string, instead };
    const given = /^(?:-c|--config)$/.test(argument)
      ? args[index + 1]
      : /^(?:-c=?|--config=)(.*)$/s.exec(argument)?.[1];
    const name = given === undefined ? '' : settingName(given);
    if (setting.test(name)) return { found: `-c ${name}`, instead: leave };
  }
  return undefined;
}

/** The first part of a setting's name. Codex takes the text before the first `=`, without white space, as names joined by dots. */
function settingName(given: string): string {
  const [name = ''] = given.split('=', 1)[0]?.split('.', 1) ?? [];
  return name.replace(/^[\p{White_Space}"']+|[\p{White_Space}"']+$/gu, '');
}

export const notInstalled = (name: string, install: string): Error =>
  invalid(`${name} is not installed, or not on the PATH: ${install}`);

/** Throws config_invalid for an agent of the table that is not on the PATH. */
export function demandInstalled(name: string, { PATH = '' }: Environment): void {
  const files = PATH.split(delimiter).flatMap((directory) => [
    join(directory, name),
    join(directory, `${name}.exe`),
  ]);
  if (!files.some((file) => existsSync(file))) throw notInstalled(name, agentOf(name, '').install);
}
