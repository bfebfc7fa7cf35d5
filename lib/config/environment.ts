/** Reads settings from environment variables, and refuses variables with our prefix that set nothing. */
import type { Environment } from '../network/outbound-proxy.ts';
import { nearest } from '../text.ts';
import { FLAGS } from './flags.ts';
import type { Flag, Given } from './setting.ts';
import { invalid, parseBoolean } from './values.ts';

export type { Environment };

const PREFIX = 'PRIVATEMODE_PROXY_';
/** The API key's variable has a special name, which lists of providers and the client library use. */
const API_KEY = 'PRIVATEMODE_API_KEY';

/**
 * Whether a variable with our prefix is no setting. PRIVATEMODE_PROXY_URL tells applications where the proxy
 * is. For a Service whose name begins like our prefix, Kubernetes sets variables in each container.
 */
const isOfOthers = (variable: string, text: string): boolean =>
  variable === 'PRIVATEMODE_PROXY_URL' ||
  /_SERVICE_(?:HOST|PORT(?:_\w+)?)$|_PORT_\d+_(?:TCP|UDP|SCTP)(?:_\w+)?$/.test(variable) ||
  (variable.endsWith('_PORT') && /^(?:tcp|udp|sctp):\/\//.test(text));

/** The variable of a flag: `--listen-address` → `PRIVATEMODE_PROXY_LISTEN_ADDRESS`. */
export const variableOf = (flag: string): string => `${PREFIX}${flag.toUpperCase().replaceAll('-', '_')}`;

/** Variable → its flag. If a flag has several variables, the first one that is set is used. */
const VARIABLES: ReadonlyMap<string, Flag> = new Map([
  ...FLAGS.filter((flag) => !flag.retired && !flag.commandLineOnly).flatMap((flag) => {
    const aliases = (flag.aliases ?? []).filter(({ deprecated, inverted }) => !deprecated && !inverted);
    return [flag, ...aliases].map(({ name }) => [variableOf(name), flag] as const);
  }),
  [API_KEY, FLAGS.find(({ name }) => name === 'api-key') as Flag] as const,
]);

/** Whether to log in JSON. Also works for an invalid command line, whose error is logged in JSON, too. */
export function wantsJson(argv: readonly string[], env: Environment): boolean {
  const [, format] = /.*\0--log-format[=\0]([^\0]*)/s.exec(`\0${argv.join('\0')}`) ?? [];
  return (format ?? env[variableOf('log-format')]) === 'json';
}

/**
 * Adds the settings of the environment to those of the command line. A flag wins over its variable, and a
 * variable over the default. An empty variable counts as unset. If two settings conflict, a warning says
 * which one is used. Throws config_invalid for a variable with our prefix that sets nothing, because a
 * mistyped and ignored manifest pin would be worse than no pin. No message quotes a value.
 */
export function withEnvironment(argv: Given, env: Environment): Given {
  const values = new Map(argv.values);
  const labels = new Map<string, string>();
  const label = (name: string): string => labels.get(name) ?? argv.label(name);
  const warnings = [...argv.warnings];
  const texts = new Map(Object.entries(env).filter(([name, text]) => text && !isOfOthers(name, text)));
  for (const variable of texts.keys()) {
    if (!variable.toUpperCase().startsWith(PREFIX) || VARIABLES.has(variable)) continue;
    const meant = nearest(variable.toUpperCase().replaceAll('-', '_'), [...VARIABLES.keys()], 2);
    const hint = meant === undefined ? '; --help lists all settings' : `. Did you mean ${meant}?`;
    throw invalid(`unknown setting in the environment: ${variable}${hint}`);
  }
  for (const [variable, { name, type }] of VARIABLES) {
    const text = texts.get(variable);
    if (text === undefined) continue;
    if (values.has(name)) {
      warnings.push(`${label(name)} and ${variable} are both set; ${label(name)} is used`);
      continue;
    }
    labels.set(name, variable);
    values.set(name, type === 'boolean' ? String(parseBoolean(variable, text)) : text);
  }
  return { values, warnings, label };
}
