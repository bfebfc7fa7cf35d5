/**
 * How `run` starts Claude Code: with settings on the command line, and with the same settings as variables,
 * the key as a variable only. Settings on the command line win over Claude Code's files.
 */
import { type Agent, literal, type Place } from './agent.ts';

/** The families of models that Claude Code asks for by names of its own (claude-haiku-4-5, for example). */
const FAMILIES = ['fable', 'opus', 'sonnet', 'haiku'] as const;

/** The variables for the model of each family. Families whose names an alias with `*` covers are left out. */
const familyVariables = ({ model, aliases }: Place): Readonly<Record<string, string>> =>
  Object.fromEntries(
    FAMILIES.filter((family) => !aliases.some((alias) => coversAll(alias, `claude-${family}-`))).map(
      (family) => [`ANTHROPIC_DEFAULT_${family.toUpperCase()}_MODEL`, model.name],
    ),
  );

const coversAll = (alias: string, start: string): boolean =>
  alias.endsWith('*') && start.startsWith(alias.slice(0, -1));

const claudeVariables = (place: Place) => ({
  ANTHROPIC_BASE_URL: place.url,
  ANTHROPIC_AUTH_TOKEN: place.key,
  ANTHROPIC_MODEL: place.model.name, // wins over the default model that /model has saved
  ...familyVariables(place),
  CLAUDE_CODE_ENABLE_GATEWAY_MODEL_DISCOVERY: '1', // /model then offers aliases with names like claude-…
  ...(place.model.limits !== undefined && {
    CLAUDE_CODE_MAX_CONTEXT_TOKENS: `${place.model.limits.context}`, // the default is 200,000 or a million
    CLAUDE_CODE_MAX_OUTPUT_TOKENS: `${place.model.limits.output}`,
  }),
  CLAUDE_CODE_ATTRIBUTION_HEADER: '0', // the header differs in each request, which defeats prompt caches
  CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: '1',
  CLAUDE_CODE_ENABLE_TELEMETRY: '0', // telemetry may send prompts to OTEL_EXPORTER_OTLP_ENDPOINT
  OTEL_LOGS_EXPORTER: 'none',
  OTEL_TRACES_EXPORTER: 'none',
  OTEL_METRICS_EXPORTER: 'none',
});

/** Variables that settings files may set, too. `run` sets them to an empty text, which counts as unset. */
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

export const CLAUDE: Agent = {
  install: 'npm install -g @anthropic-ai/claude-code',
  // CLAUDE_CODE_PROVIDER_MANAGED_BY_HOST makes Claude Code ignore what settings files say about providers,
  // base URLs and keys.
  env: (place) => ({ ...claudeVariables(place), CLAUDE_CODE_PROVIDER_MANAGED_BY_HOST: '1' }),
  // In versions without CLAUDE_CODE_PROVIDER_MANAGED_BY_HOST, --settings wins over the settings files.
  args: (place) => [
    '--settings',
    literal({
      apiKeyHelper: '',
      permissions: { deny: ['WebSearch'] }, // the service has no WebSearch, and refuses requests with it
      skipWebFetchPreflight: true, // without this, WebFetch asks api.anthropic.com about each host first
      env: {
        ...claudeVariables(place),
        ANTHROPIC_AUTH_TOKEN: undefined, // other users can read the command line; the variable has the key
        ...Object.fromEntries(CLAUDE_UNSET.map((name) => [name, ''])),
        ...place.direct,
      },
    }),
  ],
  refused: /^--(?:settings|managed-settings|cloud|teleport|environment|remote|remote-control|sdk-url)(?==|$)/,
  ownModel: 'claude-sonnet-4-5',
  goOn: '--continue',
};
