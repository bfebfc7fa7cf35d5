/** Parses the texts of settings. Each parser throws config_invalid. */
import { isIP } from 'node:net';
import { type AliasTable, aliasIn } from '../api/model-aliases.ts';
import { PrivatemodeError } from '../errors.ts';
import { urlHost } from '../network/addresses.ts';

/** Parses `text`, the value of a setting. `flag`: the name of the setting, for messages. */
export type Parse<Value> = (flag: string, text: string) => Value;

export interface HostPort {
  /** Lower case, no trailing dot; IPv6 without brackets. */
  readonly host: string;
  readonly port: number;
}

/** setTimeout fires at once beyond 2^31-1 ms. */
const MAX_DURATION_MS = 24 * 24 * 3_600_000;
const MAX_PORT = 65_535;

/** What Go's strconv.ParseBool accepts; existing deployments use it. */
const TRUE = /^(?:1|[tT]|true|TRUE|True)$/;
const FALSE = /^(?:0|[fF]|false|FALSE|False)$/;

/** Each unit in ms. Two rows look alike: µ is the micro sign in one and the Greek letter in the other. */
const MS = { ns: 1e-6, us: 1e-3, µs: 1e-3, μs: 1e-3, ms: 1, s: 1_000, m: 60_000, h: 3_600_000 };

/** From least to most severe. In Go's slog their numbers are -4, 0, 4 and 8; in pino 20, 30, 40 and 50. */
const LEVELS = ['debug', 'info', 'warn', 'error'];

export function parseBoolean(flag: string, text: string): boolean {
  if (!TRUE.test(text) && !FALSE.test(text)) throw wants(flag, 'true or false', text);
  return TRUE.test(text);
}

export function parseInteger(flag: string, text: string, minimum: number): number {
  const value = wholeNumber(text);
  if (!(value >= minimum)) throw wants(flag, `a whole number of at least ${minimum}, without a unit`, text);
  return value;
}

/** NaN if the text is no whole number or has more than 15 digits; up to 15 digits a Number is exact. */
const wholeNumber = (text: string): number =>
  /^(?:0|[1-9]\d{0,14})$/.test(text) ? Number(text) : Number.NaN;

export const asWritten: Parse<string> = (_, text) => text;

/** Texts of this pattern, unchanged. */
const matching =
  (pattern: RegExp, wanted: string): Parse<string> =>
  (flag, text) => {
    if (!pattern.test(text)) throw wants(flag, wanted, text);
    return text;
  };

export const parsePath = matching(/^[^\0]+$/, 'a path');

/** A version in the form of the Privatemode-Version header: vX.Y.Z. */
export const parseProtocolVersion = matching(
  /^v(?:0|[1-9]\d{0,3})(?:\.(?:0|[1-9]\d{0,3})){2}$/,
  'a version of three numbers such as v1.40.0',
);

/** The items of a comma-separated list without duplicates and empty items. */
export function parseList(flag: string, text: string, parseItem: Parse<string>): readonly string[] {
  const items = text.split(',').map((item) => item.trim());
  return [...new Set(items.filter((item) => item !== '').map((item) => parseItem(flag, item)))];
}

export function parsePort(flag: string, text: string): number {
  const value = wholeNumber(text);
  if (!(value <= MAX_PORT)) throw wants(flag, `a port number from 0 to ${MAX_PORT}`, text);
  return value;
}

/** Go's notation: a sequence of numbers with units, `1h30m`, `1.5s`, or `0`. Returns ms. */
export function parseDuration(flag: string, text: string, minimumMs: number): number {
  const wanted = 'a duration such as 30s, 5m or 1h30m';
  if (text !== '0' && !/^(?:\d+(?:\.\d*)?(?:ns|us|µs|μs|ms|s|m|h))+$/.test(text))
    throw wants(flag, wanted, text);
  const parts = [...text.matchAll(/(\d+(?:\.\d*)?)([a-zµμ]+)/g)];
  const total = parts.reduce((sum, [, count, unit]) => sum + Number(count) * MS[unit as keyof typeof MS], 0);
  const ms = Math.round(total);
  if (ms < minimumMs) throw wants(flag, `${wanted} of at least ${minimumMs}ms`, text);
  if (ms > MAX_DURATION_MS) throw wants(flag, `${wanted}, at most 576h`, text);
  return ms;
}

export function parseChoice<T extends string>(flag: string, text: string, choices: readonly T[]): T {
  const found = choices.find((choice) => choice === text);
  if (found === undefined) throw wants(flag, `one of ${choices.join(', ')}`, text);
  return found;
}

/** Reads a level: a name, or a slog number, of which the highest is 8. Returns the number of pino. */
export function parseLogLevel(flag: string, text: string): number {
  const number = /^[+-]?\d{1,6}$/.test(text) ? Math.min(Number(text), 8) : Number.NaN;
  const level = LEVELS.findIndex((name, k) => name === text.toLowerCase() || number <= 4 * (k - 1));
  const wanted = 'debug, info, warn, error, or a number (-4 debug, 0 info, 4 warn, 8 error)';
  if (level === -1) throw wants(flag, wanted, text);
  return 10 * (level + 2);
}

const RFC_3339 =
  /^(\d{4}-\d\d-\d\d)T((?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d)(\.\d{1,9})?(Z|[+-](?:[01]\d|2[0-3]):[0-5]\d)$/i;

/** The moment of an RFC 3339 text with a time zone, cut to ms; undefined if the text is no such moment. */
export function momentIn(text: string): Date | undefined {
  const [, day = '', time, fraction = '', zone = ''] = RFC_3339.exec(text) ?? [];
  const midnight = new Date(`${day}T00:00:00Z`);
  // Date turns 30 February into 2 March.
  if (Number.isNaN(midnight.getTime()) || !midnight.toISOString().startsWith(day)) return undefined;
  return new Date(`${day}T${time}${fraction.slice(0, 4)}${zone.toUpperCase()}`);
}

/** As `momentIn`, but throws. `wanted`: the form to ask for; `written`: the text that the error quotes. */
export function parseMoment(
  flag: string,
  text: string,
  wanted = 'a moment such as 2026-12-01T00:00:00Z',
  written = text,
): Date {
  const moment = momentIn(text);
  if (moment === undefined) throw wants(flag, wanted, written);
  return moment;
}

/** Reads `host`, `host:port`, `[v6]`, `[v6]:port` or a bare IPv6 address; undefined for any other text. */
function hostIn(text: string): { readonly host: string; readonly port: number | undefined } | undefined {
  const split = /^(?:\[([^\]]+)\]|([^:[\]]+))(?::(\d+))?$/.exec(text) ?? [];
  const [, bracketed, name = '', digits] = isIP(text) === 6 ? [text, text] : split;
  const host = (bracketed ?? name.replace(/\.$/, '')).toLowerCase();
  const isName = host.length <= 253 && /^[a-z0-9_-]+(?:\.[a-z0-9_-]+)*$/.test(host);
  const port = digits === undefined ? undefined : wholeNumber(digits);
  if (!(bracketed === undefined ? isName : isIP(host) === 6)) return undefined;
  return port === undefined || port <= MAX_PORT ? { host, port } : undefined;
}

/** If `defaultPort` is undefined, the text must name a port. */
export function parseHostPort(flag: string, text: string, defaultPort: number | undefined): HostPort {
  const { host, port = defaultPort } = hostIn(text) ?? {};
  const wanted =
    defaultPort === undefined
      ? 'HOST:PORT, such as 127.0.0.1:9090 or [::1]:9090'
      : 'HOST or HOST:PORT, without a scheme or path';
  if (host === undefined || port === undefined) throw wants(flag, wanted, text);
  return { host, port };
}

/** One of --allowed-hosts, in the form of the `Host` header: `name` or `name:port`, normalised. */
export function parseOwnHost(flag: string, text: string): string {
  const { host, port } = hostIn(text) ?? {};
  if (host === undefined || port === 0) throw wants(flag, 'host names with an optional port', text);
  return port === undefined ? urlHost(host) : `${urlHost(host)}:${port}`;
}

/** Prefix of the path of a socket in the file system, in --listen-address. */
const SOCKET = 'unix:';
/** Longest socket path that every system accepts, in bytes (sun_path of macOS; Linux accepts 108). */
const MOST_SOCKET_BYTES = 103;

/** The socket path in a value of --listen-address; undefined if the value is a host. */
export const socketPath = (listenAddress: string): string | undefined =>
  listenAddress.startsWith(SOCKET) ? listenAddress.slice(SOCKET.length) : undefined;

/** A host, or `unix:` and the absolute path of a socket. */
export function parseListenAddress(flag: string, text: string): string {
  const path = socketPath(text);
  if (path === undefined) {
    const { host, port } = hostIn(text) ?? {};
    if (host !== undefined && port === undefined) return host;
    const digits = /:(\d+)\/?$/.exec(text)?.[1];
    const hint = digits === undefined ? '' : `; the port goes into --port ${digits}`;
    throw wants(flag, 'a host name, an IP address or unix:PATH', text, hint);
  }
  if (!/^\/[^\0]*[^/\0]$/.test(path) || Buffer.byteLength(path) > MOST_SOCKET_BYTES)
    throw wants(flag, `an absolute path of at most ${MOST_SOCKET_BYTES} bytes behind unix:`, text);
  return text;
}

/** As lib/pipeline/plain-members.ts accepts it, but without the characters that separate names here. */
const MODEL_NAME = /^[^\0-\x1f\x7f,=*]{1,256}$/;

/** Reads `NAME=MODEL,…`, where NAME may end in `*`. A NAME has one model, which is not another NAME. */
export function parseAliases(flag: string, text: string): AliasTable {
  const table = new Map<string, string>();
  for (const item of parseList(flag, text, asWritten)) {
    const [name = '', model = '', more] = item.split('=').map((part) => part.trim());
    const isName = name === '*' || MODEL_NAME.test(name.replace(/\*$/, ''));
    if (!isName || !MODEL_NAME.test(model) || more !== undefined)
      throw wants(flag, 'NAME=MODEL, where NAME may end in *', item);
    if ((table.get(name) ?? model) !== model) throw wants(flag, 'one model for each name', item);
    table.set(name, model);
  }
  for (const [name, model] of table) {
    if (aliasIn(table, model)?.name === model)
      throw wants(flag, 'models of the service, not other aliases', `${name}=${model}`);
  }
  return table;
}

/** A base URL without its trailing slash: https, or http if the host is this machine. */
export function parseBaseUrl(flag: string, text: string): string {
  const url = URL.parse(text);
  const safe = url?.protocol === 'https:' || (url?.protocol === 'http:' && isLoopback(url.hostname));
  if (url === null || !safe || url.search !== '' || url.hash !== '' || url.username !== '') {
    throw wants(flag, 'an https URL without a query', text);
  }
  return url.href.replace(/\/+$/, '');
}

/** An origin as a browser sends it: any scheme, no path, not the default port of the scheme; or *. */
export function parseOrigin(flag: string, text: string): string {
  if (text === 'null') throw invalid(`${flag}: "null" matches any sandboxed page; write * if you want that`);
  if (text !== '*' && !/^[a-z][a-z0-9+.-]*:\/\/(?:[a-z0-9._~-]+|\[[0-9a-f:.]+\])(?::\d{1,5})?$/i.test(text))
    throw wants(flag, 'exact origins such as https://chat.example.com, without a path, or *', text);
  return text.toLowerCase().replace(/^(?:(http:.*):80|(https:.*):443)$/, '$1$2');
}

export const isLoopback = (host: string): boolean =>
  ['localhost', '::1', '[::1]'].includes(host) || (isIP(host) === 4 && host.startsWith('127.'));

/** Whether only this machine can connect to a listener on `host`, which may be `unix:PATH`. */
export const staysHere = (host: string): boolean => socketPath(host) !== undefined || isLoopback(host);

/** The error for a wrong value, which it quotes: not for flags that may hold a key. `hint`: its end. */
export function wants(flag: string, wanted: string, text: string, hint = ''): PrivatemodeError {
  const quoted = JSON.stringify(text.length > 80 ? `${text.slice(0, 80)}…` : text);
  return invalid(`${flag} wants ${wanted}, not ${quoted}${hint}`);
}

export const invalid = (message: string, cause?: unknown): PrivatemodeError =>
  new PrivatemodeError('config_invalid', message, { cause });
