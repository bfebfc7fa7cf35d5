/**
 * The log: writes lines as text or JSON, keeps secrets out of them, and shows a changing status line on a
 * terminal.
 */
import { type Logger as PinoLogger, pino } from 'pino';
import { PrivatemodeError } from '../errors.ts';
import { hasColours, isPrintable, painter, printable, printableJson, type Style, safeJson } from '../text.ts';

/**
 * The fields of a log line. An Error must not be passed as this record, but as the value of a field, where
 * `flatValue` judges its text.
 */
type Fields = Readonly<Record<string, unknown>>;

type Line = [fields: Fields, message: string] | [message: string];
type LogMethod = (...line: Line) => void;

/**
 * Fields first, then the message: `log.info({ status: 200 }, 'Forwarding finished')`. Bind ids by `child`.
 */
export interface Logger {
  readonly debug: LogMethod;
  readonly info: LogMethod;
  readonly warn: LogMethod;
  readonly error: LogMethod;
  isLevelEnabled(level: string): boolean;
  child(bindings: Fields): Logger;
}

export interface LogOutput {
  write(line: string): unknown;
  readonly isTTY?: boolean | undefined;
  /** Bytes that wait for its reader; absent where nothing waits. */
  readonly writableLength?: number;
  once?(event: 'drain', listener: () => void): unknown;
}

/** Fields whose value the log never shows. One level of names is enough: objects are omitted. */
const SECRET_FIELDS: ReadonlySet<string> = new Set(
  (
    'authorization Authorization proxy-authorization x-api-key api-key apiKey api_key key bearer token secret password ' +
    'cookie set-cookie salt cache_salt cacheSalt promptCacheSalt configuredKey offeredKey prompt messages content body'
  ).split(' '),
);
const LONGEST_TEXT = 1_000;
/** Most bytes of lines that wait for a reader of the log who does not read. */
const MOST_WAITING = 16 * 1024 * 1024;
const LEVEL_STYLES: Readonly<Record<string, Style>> = {
  DEBUG: 'plain',
  INFO: 'good',
  WARN: 'caution',
  ERROR: 'bad',
};

/**
 * Creates a logger in the formats of the reference. `text` is `time=… level=INFO msg="…" key=value`, coloured
 * on a terminal only, and not if `env` (default: of the process) has NO_COLOR. `json` is one object per line.
 * `level` is a pino number. In place of a value that is no text, number, boolean, null or error the line
 * shows `[omitted]`, so that nobody logs a request by accident.
 */
export function createLogger(options: {
  readonly format: 'text' | 'json';
  readonly level: number;
  readonly output?: LogOutput;
  readonly env?: Readonly<Record<string, string | undefined>>;
}): Logger {
  const stream = options.output ?? process.stderr;
  const output = bounded(stream, (lines) =>
    log.error({ lines }, 'Lines of the log were dropped, because its reader did not read'),
  );
  const level = pino.levels.labels[options.level];
  if (level === undefined) throw new PrivatemodeError('internal', 'an unknown log level');
  const logger = pino(
    {
      level,
      base: null,
      messageKey: 'msg',
      timestamp: () => `,"time":"${new Date().toISOString()}"`,
      formatters: { level: (label) => ({ level: label.toUpperCase() }) },
      hooks:
        options.format === 'json'
          ? {}
          : { logMethod: textLines(output, hasColours(stream, options.env ?? process.env)) },
    },
    jsonOutput(output),
  );
  const log = boundLogger(logger, {});
  return log;
}

/**
 * Once more than MOST_WAITING bytes wait, drops lines until the reader has read all that waits. Then it calls
 * `report` with the number of dropped lines. Without it, a reader that stalls would fill the memory.
 */
function bounded(output: LogOutput, report: (lines: number) => void): LogOutput {
  let dropped = 0;
  const reportDropped = (): void => {
    const lines = dropped;
    dropped = 0;
    if (lines > 0) report(lines);
  };
  return {
    write(line) {
      const { writableLength = 0 } = output;
      if (writableLength > (dropped > 0 ? 0 : MOST_WAITING)) {
        dropped += 1;
        if (dropped === 1) output.once?.('drain', reportDropped);
        return;
      }
      reportDropped();
      output.write(line);
    },
  };
}

/**
 * Merges bound fields into each line itself: the bindings of pino's own `child()` would bypass `addFlat`, and
 * a name could appear twice in a line.
 */
function boundLogger(logger: PinoLogger, bound: Fields): Logger {
  const method =
    (level: 'debug' | 'info' | 'warn' | 'error'): LogMethod =>
    (...line) => {
      if (!logger.isLevelEnabled(level)) return;
      const [fields, message] = line.length === 2 ? line : [{}, line[0]];
      const shown: Record<string, unknown> = {};
      addFlat(shown, bound);
      addFlat(shown, fields);
      logger[level](shown, message);
    };
  return {
    debug: method('debug'),
    info: method('info'),
    warn: method('warn'),
    error: method('error'),
    isLevelEnabled: (level) => logger.isLevelEnabled(level),
    child: (bindings) => boundLogger(logger, { ...bound, ...bindings }),
  };
}

/** Adds fields to those of a line, with each value made safe and short. */
function addFlat(shown: Record<string, unknown>, fields: Fields): void {
  for (const name in fields) {
    const value = fields[name];
    if (value !== undefined) shown[name] = SECRET_FIELDS.has(name) ? '[redacted]' : flatValue(value);
  }
}

function flatValue(value: unknown): string | number | boolean | null {
  if (typeof value === 'string')
    return value.length > LONGEST_TEXT ? `${value.slice(0, LONGEST_TEXT)}…` : value;
  if (typeof value === 'number' || typeof value === 'boolean' || value === null) return value;
  if (typeof value === 'bigint') return String(value);
  if (value instanceof Error) return describeError(value);
  return '[omitted]';
}

/**
 * An error and its causes on one line. The line shows the message of a foreign error only if that error comes
 * from the system or the network. A parser's message quotes what it parsed, and messages of Node's own errors
 * (ERR_…) quote what a function was called with. If the program itself failed, the place in its code tells
 * more than the message.
 */
function describeError(error: Error): string {
  const parts: string[] = [];
  for (let link: unknown = error; link instanceof Error && parts.length < 5; link = link.cause)
    parts.push(describeLink(link));
  return parts.join(' <- ').slice(0, LONGEST_TEXT);
}

function describeLink(error: Error): string {
  if (error instanceof PrivatemodeError) return `${error.code}: ${error.message}`;
  const { code } = error as NodeJS.ErrnoException;
  if (typeof code === 'string') return code.startsWith('ERR_') ? code : `${code}: ${error.message}`;
  const place = (error.stack ?? '').split('\n').find((line) => /^\s+at /.test(line));
  return `${error.name} ${place?.trim() ?? ''}`;
}

/**
 * Writes lines as text in place of pino's JSON. It does so in this process and at once, so that no line is
 * lost when the process ends. To make the text from the JSON would cost a short request 20 us more, of its
 * 620, by a profile of the bench row request_cpu.
 */
function textLines(output: LogOutput, colours: boolean) {
  const paint = painter(colours);
  return ([fields, message]: unknown[], _method: unknown, number: number): void => {
    const level = (pino.levels.labels[number] as string).toUpperCase();
    const shown = paint(LEVEL_STYLES[level] as Style, `level=${level}`);
    let text = `time=${new Date().toISOString()} ${shown} msg=${quoted(message ?? '')}`;
    for (const name in fields as Fields)
      text += ` ${paint('plain', `${quoted(name)}=`)}${quoted((fields as Fields)[name])}`;
    output.write(`${text}\n`);
  };
}

/**
 * Escapes what a terminal would obey, because people may read a log of any format on a terminal. Pino escapes
 * only what would break the JSON.
 */
const jsonOutput = (output: LogOutput): LogOutput => ({
  write: (line) => output.write(/^[ -~]*\n$/.test(line) ? line : printableJson(line)),
});

/**
 * A value as slog writes it: in quotes if a reader could otherwise not tell where it ends, or if a terminal
 * would do more than show it.
 */
function quoted(value: unknown): string {
  const text = String(value);
  if (/^[!#-<>-~]+$/.test(text)) return text;
  const isPlain = text !== '' && !/[\s"=]/.test(text) && isPrintable(text);
  return isPlain ? text : safeJson(text);
}

/** An output with a changing last line; log lines go above it. */
export interface StatusOutput extends LogOutput {
  /** Replaces the changing line; undefined removes it. */
  show(text: string | undefined): void;
}

/** Gives `output` a changing line at its end; undefined if `output` is no terminal. */
export function statusLine(output: LogOutput & { readonly columns?: number }): StatusOutput | undefined {
  if (output.isTTY !== true) return undefined;
  let shown = '';
  const erase = (): string => (shown === '' ? '' : '\r\u001b[K');
  return {
    isTTY: true,
    write: (line) => output.write(`${erase()}${line}${shown}`),
    show(text = '') {
      // A terminal that does not know its size reports 0 columns.
      const next = printable(text).slice(0, (output.columns || 80) - 1);
      output.write(`${erase()}${next}`);
      shown = next;
    },
  };
}
