import { randomInt } from 'node:crypto';
import { EventEmitter } from 'node:events';
import { createWriteStream, mkdirSync, type WriteStream } from 'node:fs';
import { type IncomingMessage, type ServerResponse, STATUS_CODES } from 'node:http';
import { join } from 'node:path';
import type { Logger } from '../observe/log.ts';

/** Written in the place of a credential, so that a dump can be passed on. */
const REDACTED = '[redacted]';

/**
 * A header or query parameter whose name contains one of these, in any case (`X-Goog-Api-Key`, `access_token`, `?sig=`), has
 * its value redacted: a dump may lack a value too many, but must not hold a credential.
 */
const CREDENTIAL_WORDS = /auth|key|token|secret|passw|pwd|cookie|credential|session|signature|^sig$|jwt/i;
/** Names of quotas and of the public id in a receipt: they contain such a word and hold no credential. */
const NO_CREDENTIALS = /^(?:x|anthropic)-ratelimit-|^privatemode-proxy-secret-id$/i;
/** A value that begins like this is a credential, in any header. */
const SCHEME = /^\s*(Bearer|Basic)\s/i;

/** Bytes that may wait for the disk, per file; a dump that falls further behind is cut off, not the request. */
const MOST_PENDING = 32 * 1024 * 1024;
const CUT_OFF = '\n[dump cut off: the disk is slower than the traffic]\n';

/** One exchange in plain text. Every method returns at once and never throws. */
interface Dump {
  requestBody(chunk: Uint8Array): void;
  /** The request is complete; without it, `end` closes the file. */
  responseHead(status: number, headers: readonly (readonly [name: string, value: string])[]): void;
  responseBody(chunk: Uint8Array): void;
  /** Resolves when both files are closed. */
  end(): Promise<void>;
}

interface DumpedRequest {
  readonly method: string;
  readonly target: string;
  readonly rawHeaders: readonly string[];
}

/**
 * Writes requests and responses as the application sees them (--dump-requests) to
 * `<workspace>/requests/YYYY-MM-DD/YYYY-MM-DD_HHMMSS.ffffff_NN_{req,resp}.txt` in UTC, readable by this user only. Where
 * that fails it logs a warning, and the exchange goes on.
 */
export function createDumper(options: {
  readonly workspace: string;
  readonly log: Logger;
  /** ms since 1970, with fractions. */
  readonly now?: () => number;
  readonly mostPending?: number;
}): { begin(request: DumpedRequest): Dump } {
  const now = options.now ?? (() => performance.timeOrigin + performance.now());
  const mostPending = options.mostPending ?? MOST_PENDING;
  const complain = (path: string, error: unknown): void => {
    options.log.warn({ path, err: error }, 'A request dump could not be written');
  };
  const open = (path: string): DumpFile => openDumpFile(path, mostPending, complain);

  return {
    begin({ method, target, rawHeaders }) {
      const { day, name } = stamp(now());
      const folder = join(options.workspace, 'requests', day);
      try {
        mkdirSync(folder, { recursive: true, mode: 0o700 });
      } catch (error) {
        complain(folder, error);
      }
      const request = open(join(folder, `${name}_req.txt`));
      request.write(head(`${method} ${withoutCredentials(target)} HTTP/1.1`, pairs(rawHeaders)));
      let response: DumpFile | undefined;
      return {
        requestBody: (chunk) => request.write(chunk),
        responseHead(status, headers) {
          response ??= open(join(folder, `${name}_resp.txt`));
          response.write(head(`HTTP/1.1 ${status} ${STATUS_CODES[status] ?? ''}`, headers));
        },
        responseBody: (chunk) => response?.write(chunk),
        async end() {
          await Promise.all([request.end(), response?.end()]);
        },
      };
    },
  };
}

type DumpFile = ReturnType<typeof openDumpFile>;

function openDumpFile(path: string, mostPending: number, complain: (path: string, error: unknown) => void) {
  let stream: WriteStream | undefined = createWriteStream(path, { flags: 'wx', mode: 0o600 });
  const { promise: closed, resolve } = Promise.withResolvers<void>();
  stream.on('close', resolve);
  stream.on('error', (error) => {
    stream = undefined;
    complain(path, error);
    resolve();
  });
  return {
    write(data: string | Uint8Array): void {
      if (stream === undefined) return;
      if (stream.writableLength + data.length <= mostPending) {
        // A copy: the caller may reuse its memory before the disk has it.
        stream.write(typeof data === 'string' ? data : Buffer.from(data));
        return;
      }
      stream.end(CUT_OFF);
      stream = undefined;
      complain(path, 'the disk is slower than the traffic');
    },
    end(): Promise<void> {
      stream?.end();
      stream = undefined;
      return closed;
    },
  };
}

/** Start line and headers as text: Host first, the others by name, credentials redacted. */
function head(startLine: string, headers: readonly (readonly [name: string, value: string])[]): string {
  const rank = (name: string): string => (name.toLowerCase() === 'host' ? '' : name.toLowerCase());
  const sorted = headers.toSorted(([a], [b]) => (rank(a) < rank(b) ? -1 : rank(a) > rank(b) ? 1 : 0));
  const lines = sorted.map(([name, value]) => `${name}: ${redacted(name, value)}\r\n`);
  return `${startLine.trimEnd()}\r\n${lines.join('')}\r\n`;
}

/** Keeps the scheme of an authorization, which a reader often looks for. */
function redacted(name: string, value: string): string {
  const scheme = SCHEME.exec(value)?.[1];
  if (scheme !== undefined) return `${scheme} ${REDACTED}`;
  if (isCredential(name)) return REDACTED;
  return name.toLowerCase() === 'referer' ? withoutCredentials(value) : value;
}

/** A request target or URL with the credentials in its query redacted. */
function withoutCredentials(target: string): string {
  return target.replace(/(?<=[?&;])([^=&;]*)=([^&;]*)/g, (whole, name: string) =>
    isCredential(decoded(name)) ? `${name}=${REDACTED}` : whole,
  );
}

/** A name that cannot be decoded counts as one of a credential. */
function decoded(name: string): string {
  try {
    return decodeURIComponent(name);
  } catch {
    return 'secret';
  }
}

const isCredential = (name: string): boolean => CREDENTIAL_WORDS.test(name) && !NO_CREDENTIALS.test(name);

const pairs = (rawHeaders: readonly string[]): [string, string][] =>
  rawHeaders.flatMap((name, i) => (i % 2 === 0 ? [[name, rawHeaders[i + 1] ?? '']] : []));

/** Day and name of a dump, in UTC with microseconds; two random digits keep names apart. */
function stamp(time: number): { readonly day: string; readonly name: string } {
  const iso = new Date(time).toISOString();
  const day = iso.slice(0, 10);
  const microseconds = Math.floor((time % 1) * 1000)
    .toString()
    .padStart(3, '0');
  const random = randomInt(100).toString().padStart(2, '0');
  return { day, name: `${day}_${iso.slice(11, 23).replaceAll(':', '')}${microseconds}_${random}` };
}

/**
 * Copies one exchange into its dump, exactly as the application sends and sees it, whichever module writes the response.
 * Called only with --dump-requests, so it may assign functions to the response.
 */
export function copyToDump(req: IncomingMessage, res: ServerResponse, dump: Dump): void {
  // Readable.on('data') would start the flow; EventEmitter.on only listens.
  EventEmitter.prototype.on.call(req, 'data', (chunk: Uint8Array) => dump.requestBody(chunk));

  const { writeHead, write, end } = res;
  res.writeHead = ((...args: Parameters<typeof writeHead>) => {
    const returned = writeHead.apply(res, args);
    const given = args.at(-1);
    const headers = Object.entries(typeof given === 'object' ? given : res.getHeaders()).flatMap(
      ([name, value]) => [value ?? ''].flat().map((one) => [name, String(one)] as const),
    );
    dump.responseHead(res.statusCode, headers);
    return returned;
  }) as typeof writeHead;
  const copy = (chunk: unknown): void => {
    if (chunk instanceof Uint8Array) dump.responseBody(chunk);
    else if (typeof chunk === 'string') dump.responseBody(Buffer.from(chunk));
  };
  res.write = ((...args: Parameters<typeof write>) => {
    copy(args[0]);
    return write.apply(res, args);
  }) as typeof write;
  res.end = ((...args: Parameters<typeof end>) => {
    copy(args[0]);
    return end.apply(res, args);
  }) as typeof end;
  res.once('close', () => void dump.end());
}
