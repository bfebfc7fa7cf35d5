/** Writes log lines as text or JSON, keeps secrets out, and shows a changing status line on a terminal. */
import { pino } from 'pino';
import { PrivatemodeError } from '../errors.ts';
import { hasColours, isPrintable, painter, printable, printableJson, safeJson } from '../text.ts';

/**
 * The fields of a log line. Pass an Error as the value of a field, never in place of the fields. Only the
 * texts of values are filtered (`safeValue`).
 */
type Fields = Readonly<Record<string, unknown>>;

type Level = 'debug' | 'info' | 'warn' | 'error';
type LogMethod = (...line: [fields: Fields, message: string] | [message: string]) => void;

/** A method takes the fields first, then the message: `log.info({ status: 200 }, 'Forwarding finished')`. */
export interface Logger extends Readonly<Record<Level, LogMethod>> {
  isLevelEnabled(level: string): boolean;
}

export interface LogOutput {
  write(line: string): unknown;
  readonly isTTY?: boolean | undefined;
  /** How many bytes the reader of this output has not taken yet. Absent for an output without a buffer. */
  readonly writableLength?: number;
}

/** Fields whose values the log never shows. Names inside objects do not matter: objects are omitted. */
const SECRET_FIELDS: ReadonlySet<string> = new Set(
  (
    'authorization Authorization proxy-authorization x-api-key api-key apiKey api_key key bearer token secret password ' +
    'cookie set-cookie salt cache_salt cacheSalt promptCacheSalt configuredKey offeredKey prompt messages content body'
  ).split(' '),
);
const LONGEST_TEXT = 1_000;
/** The most bytes of lines that wait while the reader of the log does not read. */
const MOST_WAITING = 16 * 1024 * 1024;
const STYLES = { debug: 'plain', info: 'good', warn: 'caution', error: 'bad' } as const;

/** Writes one line. Its fields have been made safe to show. */
type Write = (level: Level, fields: Fields, message: string) => void;

/**
 * Creates a logger that writes in the formats of the reference proxy. `text` is `time=… level=INFO msg="…"
 * key=value`. Only a terminal gets colour, and never with NO_COLOR. `json` is one object per line. `level` is
 * a level number of pino. For a value that is no text, number, boolean, null or error the line shows
 * `[omitted]`, so that nobody logs a request by accident.
 */
export function createLogger(options: {
  readonly format: 'text' | 'json';
  readonly level: number;
  readonly output?: LogOutput;
}): Logger {
  const { format, output: stream = process.stderr } = options;
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
    },
    // Pino escapes only what would break JSON. People may read the log on a terminal, so the logger escapes
    // control characters.
    { write: (line) => output.write(/^[ -~]*\n$/.test(line) ? line : printableJson(line)) },
  );
  const writeJson: Write = (level, fields, message) => logger[level](fields, message);
  const write = format === 'json' ? writeJson : textLines(output, hasColours(stream, process.env));
  const method =
    (level: Level): LogMethod =>
    (...line) => {
      const [fields, message] = line.length === 2 ? line : [{}, line[0]];
      if (logger.isLevelEnabled(level)) write(level, safe(fields), message);
    };
  const log = {
    debug: method('debug'),
    info: method('info'),
    warn: method('warn'),
    error: method('error'),
    isLevelEnabled: (level: string) => logger.isLevelEnabled(level),
  };
  return log;
}

/**
 * Drops lines once more than MOST_WAITING bytes wait, until the reader has taken all of them. Without a
 * limit, a stalled reader would fill the memory. Before the next line, `report` gets the number of dropped
 * lines.
 */
function bounded(output: LogOutput, report: (lines: number) => void): LogOutput {
  let dropped = 0;
  return {
    write(line) {
      const lines = dropped;
      if ((output.writableLength ?? 0) > (dropped > 0 ? 0 : MOST_WAITING)) dropped += 1;
      else {
        dropped = 0;
        if (lines > 0) report(lines);
        output.write(line);
      }
    },
  };
}

/** The fields as a line shows them: values of secret fields are redacted, and long values are cut. */
function safe(fields: Fields): Fields {
  const shown: Record<string, unknown> = {};
  for (const name in fields) {
    const value = fields[name];
    if (value !== undefined) shown[name] = SECRET_FIELDS.has(name) ? '[redacted]' : safeValue(value);
  }
  return shown;
}

function safeValue(value: unknown): string | number | boolean | null {
  if (typeof value === 'string')
    return value.length > LONGEST_TEXT ? `${value.slice(0, LONGEST_TEXT)}…` : value;
  if (typeof value === 'number' || typeof value === 'boolean' || value === null) return value;
  if (value instanceof Error) return describeError(value);
  return '[omitted]';
}

/**
 * An error and its causes on one line. Errors of other code show their message only if they come from the
 * system or the network: parsers quote what they parsed, and Node's own errors (ERR_…) quote arguments. If
 * the program itself failed, the place in its code tells more than the message.
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
 * Writes lines as text, in this process and at once, so that no line is lost when the process ends. Making
 * the text from pino's JSON would add 20 us to the 620 us of CPU time of a short request, by a profile of the
 * bench row request_cpu.
 */
function textLines(output: LogOutput, colours: boolean): Write {
  const paint = painter(colours);
  return (level, fields, message) => {
    const shown = paint(STYLES[level], `level=${level.toUpperCase()}`);
    let text = `time=${new Date().toISOString()} ${shown} msg=${quoted(message)}`;
    for (const name in fields) text += ` ${paint('plain', `${quoted(name)}=`)}${quoted(fields[name])}`;
    output.write(`${text}\n`);
  };
}

/**
 * A value in the style of Go's slog: quoted if a reader could not tell where it ends, or if the value could
 * control a terminal.
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
  const put = (line: string, next: string): void => {
    output.write(`${shown === '' ? '' : '\r\u001b[K'}${line}${next}`);
    shown = next;
  };
  return {
    isTTY: true,
    write: (line) => put(line, shown),
    // A terminal that does not know its size reports 0 columns.
    show: (text = '') => put('', printable(text).slice(0, (output.columns || 80) - 1)),
  };
}
