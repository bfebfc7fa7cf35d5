/**
 * Parses the texts of settings. Each parser takes the name of the setting as it was given, for its error
 * (config_invalid), and the text.
 */
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

/** The texts that Go's strconv.ParseBool accepts; existing deployments use them. */
const TRUE: readonly string[] = ['1', 't', 'T', 'true', 'TRUE', 'True'];
const FALSE: readonly string[] = ['0', 'f', 'F', 'false', 'FALSE', 'False'];

/** Each unit in ms. Two rows look alike: µ is the micro sign in one and the Greek letter in the other. */
const MS = { ns: 1e-6, us: 1e-3, µs: 1e-3, μs: 1e-3, ms: 1, s: 1_000, m: 60_000, h: 3_600_000 };

/** From least to most severe. In Go's slog their numbers are -4, 0, 4 and 8; in pino 20, 30, 40 and 50. */
const LEVELS = ['debug', 'info', 'warn', 'error'];

export function parseBoolean(flag: string, text: string): boolean {
  if (!TRUE.includes(text) && !FALSE.includes(text)) throw wants(flag, 'true or false', text);
  return TRUE.includes(text);
}

/** `unit`: what the number counts, for messages; undefined if the flag says it. */
export function parseInteger(flag: string, text: string, minimum: number, unit?: string): number {
  const value = wholeNumber(text);
  const wanted = `a whole number of at least ${minimum}, without a unit`;
  if (!(value >= minimum)) throw wants(flag, wanted, text, unit && `it is a number of ${unit}`);
  return value;
}

/** NaN if the text is no whole number or has more than 15 digits; up to 15 digits a Number is exact. */
const wholeNumber = (text: string): number =>
  /^(?:0|[1-9]\d{0,14})$/.test(text) ? Number(text) : Number.NaN;

export const asWritten: Parse<string> = (_, text) => text;

export function parsePath(flag: string, text: string): string {
  if (text === '' || text.includes('\0')) throw invalid(`${flag} wants a path, and got none`);
  return text;
}

/** A version in the form of the Privatemode-Version header: vX.Y.Z. */
export function parseProtocolVersion(flag: string, text: string): string {
  const part = String.raw`(?:0|[1-9]\d{0,3})`;
  if (!new RegExp(`^v${part}\\.${part}\\.${part}$`).test(text))
    throw wants(flag, 'a version of three numbers such as v1.40.0', text);
  return text;
}

/** The items of a comma-separated list without duplicates and empty items. */
export function parseList(flag: string, text: string, parseItem: Parse<string>): readonly string[] {
  const items = text.split(',').map((item) => item.trim());
  return [...new Set(items.filter((item) => item !== '').map((item) => parseItem(flag, item)))];
}

export function parsePort(flag: string, text: string): number {
  const value = wholeNumber(text);
  if (!(value <= 65_535)) throw wants(flag, 'a port number from 0 to 65535', text);
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

/**
 * Reads a level: a name in any case, or a slog number. A number above 8 counts as 8, so errors always show.
 * Returns the pino number of the least severe level that the log shows.
 */
export function parseLogLevel(flag: string, text: string): number {
  const number = /^[+-]?\d{1,6}$/.test(text) ? Math.min(Number(text), 8) : Number.NaN;
  const level = LEVELS.findIndex((name, k) => name === text.toLowerCase() || number <= 4 * (k - 1));
  const wanted = 'debug, info, warn, error, or a number (-4 debug, 0 info, 4 warn, 8 error)';
  if (level === -1) throw wants(flag, wanted, text);
  return 10 * (level + 2);
}

const RFC_3339 =
  /^(\d{4}-\d\d-\d\d)T((?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d)(\.\d{1,9})?(Z|[+-](?:[01]\d|2[0-3]):[0-5]\d)$/i;

/**
 * The moment of an RFC 3339 text with a time zone, cut to milliseconds; undefined if the text is no such
 * moment.
 */
export function momentIn(text: string): Date | undefined {
  const [, day = '', time, fraction = '', zone = ''] = RFC_3339.exec(text) ?? [];
  const midnight = new Date(`${day}T00:00:00Z`);
  // Date turns 30 February into 2 March.
  if (Number.isNaN(midnight.getTime()) || !midnight.toISOString().startsWith(day)) return undefined;
  return new Date(`${day}T${time}${fraction.slice(0, 4)}${zone.toUpperCase()}`);
}

/**
 * As `momentIn`, but throws for other texts. `wanted`: the form that the error asks for; `written`: the text
 * that it quotes.
 */
export function parseMoment(
  flag: string,
  text: string,
  wanted = 'a moment such as 2026-12-01T00:00:00Z',
  written = text,
): Date {
  const moment = momentIn(text);
  if (moment === undefined) throw wants(flag, wanted, written, beyondMonth(written));
  return moment;
}

/** How many days the month of a date has, if the date names a later day; otherwise undefined. */
export function beyondMonth(date: string): string | undefined {
  const [, month, day] = /^(\d{4}-(?:0[1-9]|1[0-2]))-(3[01]|29)/.exec(date) ?? [];
  if (month === undefined) return undefined;
  const [year = 0, number = 0] = month.split('-').map(Number);
  const days = new Date(Date.UTC(year, number, 0)).getUTCDate();
  return Number(day) > days ? `${month} has ${days} days` : undefined;
}

/** `host`, `host:port`, `[v6]`, `[v6]:port` or a bare IPv6 address. */
export function parseHostPort(flag: string, text: string, defaultPort: number | undefined): HostPort {
  const wanted = defaultPort === undefined ? 'HOST:PORT' : 'HOST or HOST:PORT';
  const alone = defaultPort === undefined ? /^:?(\d+)$/ : /^:(\d+)$/;
  const [, onlyPort] = alone.exec(text) ?? [];
  if (onlyPort !== undefined) {
    const hint = `write 127.0.0.1:${onlyPort} for this machine alone, 0.0.0.0:${onlyPort} for all`;
    throw wants(flag, wanted, text, defaultPort === undefined ? hint : undefined);
  }
  if (text.includes('/')) throw wants(flag, `${wanted} without a scheme or path`, text);
  const match = isIP(text) === 6 ? [text, text] : /^(?:\[([^\]]+)\]|([^:]+))(?::(.*))?$/.exec(text);
  if (match === null) throw wants(flag, wanted, text);
  const port = match[3] === undefined ? defaultPort : parsePort(`the port of ${flag}`, match[3]);
  if (port === undefined)
    throw wants(flag, wanted, text, `write ${urlHost(match[1] ?? text)}:9090, or another port`);
  if (match[1] !== undefined && isIP(match[1]) !== 6)
    throw wants(flag, 'an IPv6 address between the brackets', text);
  return { host: match[1]?.toLowerCase() ?? parseHost(flag, match[2] as string), port };
}

/** A host name or IP address, normalised. */
export function parseHost(flag: string, text: string): string {
  const bare = text.startsWith('[') && text.endsWith(']') ? text.slice(1, -1) : text;
  if (isIP(bare) === 6) return bare.toLowerCase();
  const name = text.toLowerCase().replace(/\.$/, '');
  if (name.length > 253 || !/^[a-z0-9_-]+(?:\.[a-z0-9_-]+)*$/.test(name)) {
    const port = /^(?:https?:\/\/)?[^:/]*:(\d+)\/?$/i.exec(text)?.[1];
    const hint = port === undefined ? undefined : `the port goes into --port ${port}`;
    throw wants(flag, 'a host name or an IP address', text, flag === '--listen-address' ? hint : undefined);
  }
  return name;
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
  if (text.startsWith('/'))
    throw wants(
      flag,
      'a host name, an IP address or unix:PATH',
      text,
      `a socket file is written unix:${text}`,
    );
  const inUrl = /^[a-z]+:\/\/([^/:]+)\/?$/.exec(text)?.[1];
  if (inUrl !== undefined && !text.startsWith('unix:'))
    throw wants(flag, 'a host name or an IP address', text, `write ${inUrl} alone, without a scheme`);
  if (path === undefined) return parseHost(flag, text);
  if (!path.startsWith('/') || path.endsWith('/') || path.includes('\0'))
    throw wants(
      flag,
      'an absolute path behind unix:',
      text,
      'write it like unix:/run/privatemode/proxy.sock',
    );
  if (Buffer.byteLength(path) > MOST_SOCKET_BYTES)
    throw wants(flag, `a path of at most ${MOST_SOCKET_BYTES} bytes behind unix:`, text);
  return text;
}

/**
 * A model name as lib/pipeline/plain-members.ts accepts it, but without the characters that
 * separate names here.
 */
const MODEL_NAME = /^[^\0-\x1f\x7f,=*]{1,256}$/;

/**
 * Reads `NAME=MODEL,…`, where NAME may end in `*`. Refuses a NAME with two models, a MODEL that is itself a
 * NAME, and loops.
 */
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
    const seen = new Set([name]);
    for (let next = aliasIn(table, model); next !== undefined; next = aliasIn(table, next.model)) {
      if (next.name === model || seen.has(next.name))
        throw wants(flag, 'models of the service, not other aliases', `${name}=${model}`);
      seen.add(next.name);
    }
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

/**
 * One of --cors-allowed-origins, in the form a browser sends it: any scheme, no path, no port if it is the
 * default of the scheme.
 */
export function parseOrigin(flag: string, text: string): string {
  if (text === '*') return text;
  if (text === 'null') throw invalid(`${flag}: "null" matches any sandboxed page; write * if you want that`);
  const match = /^([a-z][a-z0-9+.-]*):\/\/(?:[a-z0-9._~-]+|\[[0-9a-f:.]+\])(?::\d{1,5})?$/i.exec(text);
  if (match === null)
    throw wants(flag, 'exact origins such as https://chat.example.com, without a path, or *', text);
  const ownPort = { http: ':80', https: ':443' }[(match[1] as string).toLowerCase()];
  const origin = text.toLowerCase();
  return ownPort !== undefined && origin.endsWith(ownPort) ? origin.slice(0, -ownPort.length) : origin;
}

const NO_PORT = -1;

/** One of --allowed-hosts, in the form of the `Host` header: `name` or `name:port`, normalised. */
export function parseOwnHost(flag: string, text: string): string {
  const { host, port } = parseHostPort(flag, text, NO_PORT);
  if (port === 0) throw wants(flag, 'host names with an optional port', text);
  return port === NO_PORT ? urlHost(host) : `${urlHost(host)}:${port}`;
}

export const isLoopback = (host: string): boolean =>
  ['localhost', '::1', '[::1]'].includes(host) || (isIP(host) === 4 && host.startsWith('127.'));

/** Whether only this machine can connect to a listener on `host`, which may be `unix:PATH`. */
export const staysHere = (host: string): boolean => socketPath(host) !== undefined || isLoopback(host);

/**
 * The error for a wrong value. It quotes the text: do not use it for flags that may hold a key or a salt.
 * `hint`: how to write the value. Without one, blanks around the text are pointed out.
 */
export function wants(
  flag: string,
  wanted: string,
  text: string,
  hint = blankAround(text),
): PrivatemodeError {
  const quoted = JSON.stringify(text.length > 80 ? `${text.slice(0, 80)}…` : text);
  return invalid(`${flag} wants ${wanted}, not ${quoted}${hint === undefined ? '' : `; ${hint}`}`);
}

const blankAround = (text: string): string | undefined =>
  text.trim() === text ? undefined : 'leave out the blank or line break around it';

export const invalid = (message: string, cause?: unknown): PrivatemodeError =>
  new PrivatemodeError('config_invalid', message, { cause });
