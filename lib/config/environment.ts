import { plainHost, urlHost } from '../network/addresses.ts';
import { nearest } from '../text.ts';
import { peekFlag } from './argv.ts';
import { FLAGS, type Settings } from './flags.ts';
import type { Flag, Given } from './setting.ts';
import { invalid, isLoopback, parseBoolean } from './values.ts';

export type Environment = Readonly<Record<string, string | undefined>>;

const PREFIX = 'PRIVATEMODE_PROXY_';
/** The key under the name that lists of providers and the client library use. */
const API_KEY = 'PRIVATEMODE_API_KEY';
/** What Kubernetes puts into every container beside a Service named privatemode-proxy. */
const SERVICE_LINK =
  /^PRIVATEMODE_PROXY_(?:SERVICE_HOST|SERVICE_PORT(?:_\w+)?|PORT_\d+_(?:TCP|UDP)(?:_\w+)?)$/;
/** Variables that other programs and older compose files set: they set nothing here. With what to set instead, where there is such. */
const OF_OTHERS: Readonly<Record<string, string | undefined>> = {
  PRIVATEMODE_PROXY_URL: undefined, // where applications find the proxy
  PRIVATEMODE_ENDPOINT: undefined, // the same, by lists of providers
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

/** As `peekFlag`, with the flag's variable where the command line does not have it. */
export const peekSetting = (argv: readonly string[], env: Environment, name: string): string | undefined =>
  peekFlag(argv, name) ?? (env[variableOf(name)] || undefined);

/**
 * Adds to the command line what the environment sets: a flag wins over its variable, and a variable over the default. An
 * empty variable counts as unset. Where two settings compete, a warning says which is used. Throws config_invalid for a
 * variable that almost has the name of a setting, and for one that may only be a flag. Never quotes a value.
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

/** The variables that set something, the more specific name first. */
function variablesIn(env: Environment, warnings: string[]): [variable: string, flag: Flag][] {
  const found: [string, Flag][] = [];
  for (const [variable, text] of Object.entries(env)) {
    if (text === undefined || text === '' || SERVICE_LINK.test(variable)) continue;
    if (Object.hasOwn(OF_OTHERS, variable)) {
      const instead = OF_OTHERS[variable];
      if (instead !== undefined && text !== 'none')
        warnings.push(`${variable} is ignored: there is no such setting any more. Set ${instead}`);
      continue;
    }
    if (!variable.startsWith(PREFIX)) {
      if (isAlmostApiKey(variable))
        warnings.push(`${variable} is ignored: there is no such setting. Did you mean ${API_KEY}?`);
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
 * What to know of PRIVATEMODE_ENDPOINT, which lists of providers name for applications; undefined where it is not set, or names this
 * proxy or the service that it asks. Quotes nothing.
 */
export function endpointNote(
  env: Environment,
  { apiEndpoint: { host, port }, port: own }: Pick<Settings, 'apiEndpoint' | 'port'>,
): string | undefined {
  const text = env['PRIVATEMODE_ENDPOINT'] ?? '';
  const url = URL.parse(text.includes('://') ? text : `https://${text}`);
  const at =
    url === null ? '' : `${plainHost(url.hostname)}:${url.port || (url.protocol === 'http:' ? 80 : 443)}`;
  const isOurs = at.endsWith(`:${own}`) && url !== null && isLoopback(plainHost(url.hostname));
  if (text === '' || isOurs || at === `${host}:${port}`) return undefined;
  return `PRIVATEMODE_ENDPOINT is for applications and sets nothing here: this proxy asks ${urlHost(host)}:${port} (--api-endpoint)`;
}

/** No error: a variable outside our prefix may be another program's. */
const isAlmostApiKey = (variable: string): boolean =>
  variable !== API_KEY &&
  /^PRIVATEMODE_/i.test(variable) &&
  (/^PRIVATEMODE_KEY$/i.test(variable) || nearest(variable.toUpperCase(), [API_KEY]) !== undefined);

/** The warning about a variable that sets nothing. Throws config_invalid where its name is almost that of a setting. */
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
 * The setting that a variable was probably meant for: at most two typing mistakes away, or one of two that begin so; case, dashes and
 * underscores do not count. This looks further than other suggestions, because it decides whether the proxy starts: a pin that is
 * ignored is worse than none.
 */
function almostSetting(variable: string): string | undefined {
  const plain = (name: string): string => name.toUpperCase().replace(/[-_]/g, '');
  const settings = new Map([...FLAG_OF.keys()].map((name) => [plain(name), name]));
  const [word, names] = [plain(variable), [...settings.keys()]];
  const begun = names.filter((name) => name.startsWith(word));
  const meant = nearest(word, names) ?? nearest(word, names, 2) ?? (begun.length <= 2 ? begun[0] : undefined);
  return meant === undefined ? undefined : settings.get(meant);
}
