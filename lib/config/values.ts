import { PrivatemodeError } from '../errors.ts';

/** setTimeout fires at once beyond 2^31-1 ms. */
const MAX_DURATION_MS = 24 * 24 * 3_600_000;

/** Words of Go's strconv.ParseBool, which deployments already use. */
const BOOLEANS: Readonly<Record<string, boolean>> = {
  '1': true,
  t: true,
  T: true,
  true: true,
  TRUE: true,
  True: true,
  '0': false,
  f: false,
  F: false,
  false: false,
  FALSE: false,
  False: false,
};

const UNITS: Readonly<Record<string, number>> = {
  ns: 1e-6,
  us: 1e-3,
  µs: 1e-3, // micro sign
  μs: 1e-3, // Greek mu
  ms: 1,
  s: 1_000,
  m: 60_000,
  h: 3_600_000,
};

/** Numbers of Go's slog, and pino's for them. */
const LEVELS = [
  { name: 'debug', slog: -4, pino: 20 },
  { name: 'info', slog: 0, pino: 30 },
  { name: 'warn', slog: 4, pino: 40 },
  { name: 'error', slog: 8, pino: 50 },
] as const;

/** Each parser takes the flag as it was written, for its error (config_invalid), and the text of the value. */
export function parseBoolean(flag: string, text: string): boolean {
  const value = Object.hasOwn(BOOLEANS, text) ? BOOLEANS[text] : undefined;
  if (value === undefined) throw wants(flag, 'true or false', text);
  return value;
}

export function parseInteger(flag: string, text: string, minimum: number): number {
  const value = /^(?:0|[1-9]\d{0,14})$/.test(text) ? Number(text) : Number.NaN;
  if (!(value >= minimum)) throw wants(flag, `a whole number of at least ${minimum}`, text);
  return value;
}

export function parsePort(flag: string, text: string): number {
  const value = /^(?:0|[1-9]\d{0,4})$/.test(text) ? Number(text) : Number.NaN;
  if (!(value <= 65_535)) throw wants(flag, 'a port number from 0 to 65535', text);
  return value;
}

/** Go's notation: a sequence of numbers with units, `1h30m`, `1.5s`, or `0`. Returns ms. */
export function parseDuration(flag: string, text: string, minimumMs: number): number {
  const wanted = 'a duration such as 30s, 5m or 1h30m';
  if (text !== '0' && !/^(?:\d+(?:\.\d*)?(?:ns|us|µs|μs|ms|s|m|h))+$/.test(text))
    throw wants(flag, wanted, text);
  let total = 0;
  for (const [, number, unit] of text.matchAll(/(\d+(?:\.\d*)?)([a-zµμ]+)/g)) {
    total += Number(number) * (UNITS[unit as string] as number);
  }
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

/** A level by name in any case, or a slog number, as the pino number of the least severe level it lets through. */
export function parseLogLevel(flag: string, text: string): number {
  const named = LEVELS.find((level) => level.name === text.toLowerCase());
  if (named !== undefined) return named.pino;
  const number = /^[+-]?\d{1,6}$/.test(text) ? Number(text) : Number.NaN;
  const level = LEVELS.find(({ slog }) => number <= slog);
  if (level === undefined) {
    throw wants(
      flag,
      'debug, info, warn, error, or a number up to 8 (-4 debug, 0 info, 4 warn, 8 error)',
      text,
    );
  }
  return level.pino;
}

/** Not for flags that may hold a key or a salt: the text is quoted. `hint` says how it is written. */
export function wants(flag: string, wanted: string, text: string, hint?: string): PrivatemodeError {
  const quoted = JSON.stringify(text.length > 80 ? `${text.slice(0, 80)}…` : text);
  return new PrivatemodeError(
    'config_invalid',
    `${flag} wants ${wanted}, not ${quoted}${hint === undefined ? '' : `; ${hint}`}`,
  );
}
