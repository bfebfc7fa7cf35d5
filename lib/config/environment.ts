/**
 * Settings from environment variables: which variable sets which flag, which variables are ignored with a
 * warning, and which are refused.
 */
import type { Environment } from '../network/outbound-proxy.ts';
import { nearest } from '../text.ts';
import { peekFlag } from './argv.ts';
import { FLAGS } from './flags.ts';
import type { Flag, Given } from './setting.ts';
import { invalid, parseBoolean } from './values.ts';

export type { Environment };

const PREFIX = 'PRIVATEMODE_PROXY_';
/** The variable for the key, with the name that lists of providers and the client library use. */
const API_KEY = 'PRIVATEMODE_API_KEY';
/** Variables that Kubernetes sets in every container if there is a Service named privatemode-proxy. */
const SERVICE_LINK =
  /^PRIVATEMODE_PROXY_(?:SERVICE_HOST|SERVICE_PORT(?:_\w+)?|PORT_\d+_(?:TCP|UDP)(?:_\w+)?)$/;
/**
 * Variables that other programs and older compose files set and that set nothing here. The value says what to
 * set instead; undefined: nothing.
 */
const OF_OTHERS: Readonly<Record<string, string | undefined>> = {
  PRIVATEMODE_PROXY_URL: undefined, // where applications find the proxy
  PRIVATEMODE_ENDPOINT: undefined, // the same, by lists of providers
  PRIVATEMODE_API_KEY_FILE: 'PRIVATEMODE_API_KEY=@FILE',
  PRIVATEMODE_PROXY_API_KEY_FILE: 'PRIVATEMODE_API_KEY=@FILE',
  PRIVATEMODE_CACHE_MODE:
    'PRIVATEMODE_PROXY_DISABLE_PROMPT_CACHE=false, where requests should share a prompt cache',
  PRIVATEMODE_CACHE_SALT:
    'PRIVATEMODE_PROXY_PROMPT_CACHE_SALT, beside PRIVATEMODE_PROXY_DISABLE_PROMPT_CACHE=false',
};
const SERVICE_ADDRESS = /^(?:tcp|udp):\/\//;

/** `--listen-address` → `PRIVATEMODE_PROXY_LISTEN_ADDRESS`. */
export const variableOf = (flag: string): string => `${PREFIX}${flag.toUpperCase().replaceAll('-', '_')}`;

const FLAG_OF: ReadonlyMap<string, Flag> = new Map(
  FLAGS.filter((flag) => !flag.retired && !flag.commandLineOnly).flatMap((flag) => {
    const aliases = (flag.aliases ?? []).filter(({ deprecated, inverted }) => !deprecated && !inverted);
    return [flag, ...aliases].map(({ name }) => [variableOf(name), flag] as const);
  }),
);

/** As `peekFlag`; reads the flag's variable if the command line does not give the flag. */
export const peekSetting = (argv: readonly string[], env: Environment, name: string): string | undefined =>
  peekFlag(argv, name) ?? (env[variableOf(name)] || undefined);

/**
 * Adds the settings of the environment to those of the command line. A flag wins over its variable, and a
 * variable over the default; an empty variable counts as unset. If two settings compete, a warning says which
 * one is used. Throws config_invalid for a variable whose name is almost that of a setting, and for a setting
 * that may only be a flag. No message quotes a value.
 */
export function withEnvironment(argv: Given, env: Environment): Given {
  const values = new Map(argv.values);
  const labels = new Map<string, string>();
  const label = (name: string): string => labels.get(name) ?? argv.label(name);
  const warnings = [...argv.warnings];
  for (const [variable, { name, type }] of variablesIn(env, warnings)) {
    if (values.has(name)) {
      warnings.push(`${label(name)} and ${variable} are both set; ${label(name)} is used`);
      continue;
    }
    const text = env[variable] as string;
    labels.set(name, variable);
    values.set(name, type === 'boolean' ? String(parseBoolean(variable, text)) : text);
  }
  return { values, warnings, label };
}

/**
 * The variables that set something. PRIVATEMODE_PROXY_API_KEY comes before PRIVATEMODE_API_KEY, so that it
 * wins.
 */
function variablesIn(env: Environment, warnings: string[]): [variable: string, flag: Flag][] {
  const found: [string, Flag][] = [];
  for (const [variable, text] of Object.entries(env)) {
    if (text === undefined || text === '' || SERVICE_LINK.test(variable)) continue;
    if (Object.hasOwn(OF_OTHERS, variable)) {
      const instead = OF_OTHERS[variable];
      if (instead !== undefined && text !== 'none')
        warnings.push(`${variable} is ignored: there is no such setting. Set ${instead}`);
      continue;
    }
    if (!variable.startsWith(PREFIX)) {
      if (isAlmostApiKey(variable))
        warnings.push(`${variable} is ignored: there is no such setting. Did you mean ${API_KEY}?`);
      else if (isWithoutProxy(variable, text)) {
        const meant = variable.replace('PRIVATEMODE_', PREFIX);
        warnings.push(`${variable} is ignored: there is no such setting. Did you mean ${meant}?`);
      }
      continue;
    }
    const flag = FLAG_OF.get(variable);
    if (flag === undefined) warnings.push(unknown(variable));
    else if (flag.name !== 'port' || !SERVICE_ADDRESS.test(text)) found.push([variable, flag]);
    else
      warnings.push(`${variable} is ignored: Kubernetes has set it for a Service of that name; use --port`);
  }
  if ((env[API_KEY] ?? '') !== '') found.push([API_KEY, FLAG_OF.get(variableOf('api-key')) as Flag]);
  return found;
}

/**
 * Whether a variable's name is almost PRIVATEMODE_API_KEY. The caller only warns: a variable without our
 * prefix may belong to another program.
 */
const isAlmostApiKey = (variable: string): boolean =>
  variable !== API_KEY &&
  /^PRIVATEMODE_/i.test(variable) &&
  (/^PRIVATEMODE_KEY$/i.test(variable) || nearest(variable.toUpperCase(), [API_KEY]) !== undefined);

/**
 * Whether a variable is one of our settings without `PROXY_` in its name. Addresses are excluded: Kubernetes
 * sets variables of such names for a Service that is called privatemode.
 */
const isWithoutProxy = (variable: string, text: string): boolean =>
  variable !== API_KEY &&
  FLAG_OF.has(variable.replace(/^PRIVATEMODE_/, PREFIX)) &&
  !SERVICE_ADDRESS.test(text);

/**
 * The warning about a variable that sets nothing. Throws config_invalid if its name is almost that of a
 * setting, or if the setting may only be a flag.
 */
function unknown(variable: string): string {
  const flag = FLAGS.find(({ name }) => variableOf(name) === variable);
  if (flag !== undefined)
    throw invalid(`${variable} is refused: give --${flag.name} on the command line only`);
  const meant = almostSetting(variable);
  if (meant !== undefined)
    throw invalid(`unknown setting in the environment: ${variable}. Did you mean ${meant}?`);
  return `${variable} is ignored: there is no such setting`;
}

/**
 * The setting that a variable was probably meant for: one at most two typing mistakes away, or one that
 * begins with the variable's name if at most two settings do. Case, dashes and underscores do not count. This
 * search accepts more than other suggestions do, because it decides whether the proxy starts: a pin that is
 * silently ignored is worse than no pin.
 */
function almostSetting(variable: string): string | undefined {
  const plain = (name: string): string => name.toUpperCase().replace(/[-_]/g, '');
  const settings = new Map([...FLAG_OF.keys()].map((name) => [plain(name), name]));
  const [word, names] = [plain(variable), [...settings.keys()]];
  const begun = names.filter((name) => name.startsWith(word));
  const meant = nearest(word, names) ?? nearest(word, names, 2) ?? (begun.length <= 2 ? begun[0] : undefined);
  return meant === undefined ? undefined : settings.get(meant);
}
