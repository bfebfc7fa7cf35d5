/** Parses the texts of settings. Every parser throws config_invalid for an invalid text. */
import { isIP } from 'node:net';
import { type AliasTable, aliasIn } from '../api/model-names.ts';
import { PrivatemodeError } from '../errors.ts';
import { urlHost } from '../network/addresses.ts';

/** Reads the bytes of a file, and throws the errors of the file system. */
export type ReadFile = (path: string) => Uint8Array;

/**
 * Parses `text`, the value of a setting. A file named as `@FILE` is read, too, so that its errors appear at
 * the start. `flag` is the name of the setting in messages. `files` replaces the file system.
 */
export type Parse<Value> = (flag: string, text: string, files?: ReadFile) => Value;

export const invalid = (message: string, cause?: unknown): PrivatemodeError =>
  new PrivatemodeError('config_invalid', message, { cause });

/** The error for an invalid value. The error quotes the value, so it must not be used for keys. */
export function wants(flag: string, wanted: string, text: string): PrivatemodeError {
  const shown = text.replace(/\/\/[^/]*@/, '//…@'); // the text without a password
  const quoted = JSON.stringify(shown.length > 80 ? `${shown.slice(0, 80)}…` : shown);
  return invalid(`${flag} wants ${wanted}, not ${quoted}`);
}

/** Makes a parser from `read`, which returns undefined for a text that does not match `wanted`. */
const parser =
  <Value>(wanted: string, read: (text: string) => Value | undefined): Parse<Value> =>
  (flag, text) => {
    const value = read(text);
    if (value === undefined) throw wants(flag, wanted, text);
    return value;
  };

/** Accepts only texts that match the pattern, and returns these texts unchanged. */
const matching = (pattern: RegExp, wanted: string): Parse<string> =>
  parser(wanted, (text) => (pattern.test(text) ? text : undefined));

export const asWritten: Parse<string> = (_, text) => text;

/** Accepts what Go's strconv.ParseBool accepts, because existing deployments use these spellings. */
export const parseBoolean = parser('true or false', (text) => {
  const [word, no] = /^(?:[1tT]|true|TRUE|True|([0fF]|false|FALSE|False))$/.exec(text) ?? [];
  return word === undefined ? undefined : no === undefined;
});

/** Reads a whole number from `least` to `most`, or returns undefined. Numbers are exact up to 15 digits. */
function wholeNumber(text: string, least: number, most: number): number | undefined {
  const value = /^(?:0|[1-9]\d{0,14})$/.test(text) ? Number(text) : Number.NaN;
  return value >= least && value <= most ? value : undefined;
}

export const wholeFrom = (least: number): Parse<number> =>
  parser(`a whole number of at least ${least}, without a unit`, (text) => wholeNumber(text, least, Infinity));

const portIn = (text: string): number | undefined => wholeNumber(text, 0, 65_535);
export const parsePort = parser('a port number from 0 to 65535', portIn);

export const oneOf = <const Word extends string>(...words: readonly Word[]): Parse<Word> =>
  parser(`one of ${words.join(', ')}`, (text) => words.find((word) => word === text));

/** The items of a comma-separated list, without duplicates and empty items. */
export const listOf =
  (parseItem: Parse<string>): Parse<readonly string[]> =>
  (flag, text) => {
    const items = text.split(',').map((item) => item.trim());
    return [...new Set(items.filter((item) => item !== '').map((item) => parseItem(flag, item)))];
  };

export function parsePath(flag: string, text: string): string {
  if (text.startsWith('~/'))
    throw invalid(`${flag} begins with ~, which the shell replaces only where a word begins: write $HOME`);
  return matching(/^[^\0]+$/, 'a path')(flag, text);
}

/** A protocol version vX.Y.Z. The Privatemode-Version header has this form. */
export const parseProtocolVersion = matching(
  /^v(?:0|[1-9]\d{0,3})(?:\.(?:0|[1-9]\d{0,3})){2}$/,
  'a version of three numbers such as v1.40.0',
);

/** The longest duration, because setTimeout fires at once for more than 2^31-1 ms. */
const MAX_DURATION_MS = 24 * 24 * 3_600_000;
/** The ms of each unit. Two rows look alike: one µ is the micro sign, and the other is the Greek letter. */
const MS = { ns: 1e-6, us: 1e-3, µs: 1e-3, μs: 1e-3, ms: 1, s: 1_000, m: 60_000, h: 3_600_000 };

/** Reads numbers with units in Go's notation: `1h30m`, `1.5s`, or `0`. Returns ms. */
export const durationFrom = (leastMs: number): Parse<number> =>
  parser(`a duration such as 30s, 5m or 1h30m, from ${leastMs}ms to 576h`, (text) => {
    const parts = [...text.matchAll(/(\d+(?:\.\d*)?)(ns|us|µs|μs|ms|s|m|h)/g)];
    if (text === '' || (text !== '0' && parts.map(([part]) => part).join('') !== text)) return undefined;
    const inMs = parts.map(([, count, unit]) => Number(count) * MS[unit as keyof typeof MS]);
    const ms = Math.round(inMs.reduce((sum, part) => sum + part, 0));
    return ms >= leastMs && ms <= MAX_DURATION_MS ? ms : undefined;
  });

/** Log levels, least severe first: -4, 0, 4 and 8 in Go's slog, or 20, 30, 40 and 50 in pino. */
const LEVELS = ['debug', 'info', 'warn', 'error'];

/** Reads a name, or a number of slog. A number above 8 counts as 8. Returns the number of pino. */
export const parseLogLevel = parser('debug, info, warn, error, or a number (-4: debug, 8: error)', (text) => {
  const number = /^[+-]?\d{1,6}$/.test(text) ? Math.min(Number(text), 8) : Number.NaN;
  const level = LEVELS.findIndex((name, k) => name === text.toLowerCase() || number <= 4 * (k - 1));
  return level === -1 ? undefined : 10 * (level + 2);
});

const RFC_3339 =
  /^(\d{4}-\d\d-\d\d)T((?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d)(\.\d{1,9})?(Z|[+-](?:[01]\d|2[0-3]):[0-5]\d)$/i;

/** The time in whole ms of an RFC 3339 text with a time zone, or undefined for any other text. */
export function momentIn(text: string): Date | undefined {
  const [, day = '', time, fraction = '', zone = ''] = RFC_3339.exec(text) ?? [];
  const midnight = new Date(`${day}T00:00:00Z`);
  // `Date` turns 30 February into 2 March, so the day of the result is compared.
  if (Number.isNaN(midnight.getTime()) || !midnight.toISOString().startsWith(day)) return undefined;
  return new Date(`${day}T${time}${fraction.slice(0, 4)}${zone.toUpperCase()}`);
}

export const parseMoment = parser('a moment such as 2026-12-01T00:00:00Z', momentIn);

/** Reads `host`, `host:port`, `[v6]`, `[v6]:port` or a bare IPv6 address. Otherwise, returns undefined. */
function hostIn(text: string): { readonly host: string; readonly port: number | undefined } | undefined {
  const split = /^(?:\[([^\]]+)\]|([^:[\]]+))(?::(\d+))?$/.exec(text);
  const [, ipv6, name = '', digits] = split ?? [text, text];
  const host = (ipv6 ?? name.replace(/\.$/, '')).toLowerCase();
  const isName = host.length <= 253 && /^[a-z0-9_-]+(?:\.[a-z0-9_-]+)*$/.test(host);
  const port = portIn(digits ?? '');
  if (digits !== undefined && port === undefined) return undefined;
  return (ipv6 === undefined ? isName : isIP(host) === 6) ? { host, port } : undefined;
}

export interface HostPort {
  readonly host: string;
  readonly port: number;
}

/**
 * Reads a host and a port. The result is in lower case, has no trailing dot, and has no brackets around an
 * IPv6 address. If there is no default port, the text must contain a port.
 */
export const hostPort = (defaultPort?: number): Parse<HostPort> =>
  parser('HOST:PORT without a scheme, such as 127.0.0.1:9090 or [::1]:9090', (text) => {
    const { host, port = defaultPort } = hostIn(text) ?? {};
    return host === undefined || port === undefined ? undefined : { host, port };
  });

/** Reads an item of --allowed-hosts. Returns the normalised `Host` header, `name` or `name:port`. */
export const parseOwnHost = parser('host names with an optional port', (text) => {
  const { host, port } = hostIn(text) ?? {};
  if (host === undefined || port === 0) return undefined;
  return port === undefined ? urlHost(host) : `${urlHost(host)}:${port}`;
});

/** The socket path in a value of --listen-address, or undefined if the value is a host. */
export const socketPath = (listenAddress: string): string | undefined =>
  /^unix:(.*)$/s.exec(listenAddress)?.[1];

/** Reads a host, or `unix:` and an absolute path. sun_path allows 103 bytes on macOS and 108 on Linux. */
export const parseListenAddress = parser(
  'a host without port, or unix:/PATH of at most 103 bytes',
  (text) => {
    const path = socketPath(text);
    if (path !== undefined)
      return /^\/[^\0]*[^/\0]$/.test(path) && Buffer.byteLength(path) <= 103 ? text : undefined;
    const { host, port } = hostIn(text) ?? {};
    return port === undefined ? host : undefined;
  },
);

/** A model's name as lib/pipeline/plain-values.ts accepts it, but without `,`, `=` and `*`. */
const MODEL_NAME = /^[^\0-\x1f\x7f,=*]{1,256}$/;

/** Reads `NAME=MODEL,…`, where NAME may end in `*`. Each NAME has one MODEL, which is not a NAME itself. */
export function parseAliases(flag: string, text: string): AliasTable {
  const table = new Map<string, string>();
  for (const item of listOf(asWritten)(flag, text)) {
    const [name = '', model = '', more] = item.split('=').map((part) => part.trim());
    const isName = name === '*' || MODEL_NAME.test(name.replace(/\*$/, ''));
    if (!isName || !MODEL_NAME.test(model) || more !== undefined || (table.get(name) ?? model) !== model)
      throw wants(flag, 'NAME=MODEL, where NAME may end in * and has one model', item);
    table.set(name, model);
  }
  for (const [name, model] of table) {
    if (aliasIn(table, model)?.name === model)
      throw wants(flag, 'models of the service, not other aliases', `${name}=${model}`);
  }
  return table;
}

/** Reads a base URL with https, or with http if this machine is the host. Removes slashes at the end. */
export const parseBaseUrl = parser('an https URL without a query', (text) => {
  const { protocol, hostname = '', search, hash, username, href } = URL.parse(text) ?? {};
  const isSafe = protocol === 'https:' || (protocol === 'http:' && isLoopback(hostname));
  return isSafe && `${search}${hash}${username}` === '' ? href?.replace(/\/+$/, '') : undefined;
});

/** Reads * or an origin of any scheme without a path. Removes the scheme's default port, as browsers do. */
export const parseOrigin = parser('origins without a path, such as https://chat.example.com, or *', (text) =>
  /^\*$|^[a-z][a-z0-9+.-]*:\/\/(?:[a-z0-9._~-]+|\[[0-9a-f:.]+\])(?::\d{1,5})?$/i.test(text)
    ? text.toLowerCase().replace(/^(?:(http:.*):80|(https:.*):443)$/, '$1$2')
    : undefined,
);

export const isLoopback = (host: string): boolean =>
  ['localhost', '::1', '[::1]'].includes(host) || (isIP(host) === 4 && host.startsWith('127.'));

/** Whether only this machine can connect to a listener on `host`, which may be `unix:PATH`. */
export const staysHere = (host: string): boolean => socketPath(host) !== undefined || isLoopback(host);
