/**
 * Writes each exchange into files, as the application sends and sees it but without credentials
 * (--dump-requests).
 */
import { randomInt } from 'node:crypto';
import { EventEmitter } from 'node:events';
import { createWriteStream } from 'node:fs';
import { type IncomingMessage, type ServerResponse, STATUS_CODES } from 'node:http';
import { join } from 'node:path';
import { makeDirectorySync } from '../files/make-directory.ts';
import type { Logger } from '../observe/log.ts';
import type { AppResponse } from './app-response.ts';

/** Written in the place of a credential, so that a dump can be passed on. */
const REDACTED = '[redacted]';

/**
 * The value of a header or query parameter is redacted if its name contains one of these, in any case
 * (`X-Goog-Api-Key`, `access_token`, `?sig=`). A dump may lack a value too many, but it must not hold a
 * credential.
 */
const CREDENTIAL_WORDS = /auth|key|token|secret|passw|pwd|cookie|credential|session|signature|^sig$|jwt/i;
/** Names of quotas, and of what the proxy itself says. They contain such a word but hold no credential. */
const NO_CREDENTIALS = /^(?:x|anthropic)-ratelimit-|^privatemode-proxy-(?:secret-id|unauthenticated)$/i;
/** A value that begins like this is a credential, in any header. */
const SCHEME = /^\s*(Bearer|Basic)\s/i;

const CUT_OFF = '\n[dump cut off: the disk is slower than the traffic]\n';

type Headers = readonly (readonly [name: string, value: string])[];

/**
 * Writes requests and responses as the application sees them (--dump-requests) to
 * `<workspace>/requests/YYYY-MM-DD/YYYY-MM-DD_HHMMSS.ffffff_NN_{req,resp}.txt` in UTC, readable by this user
 * only. If that fails, it logs a warning and the exchange goes on: no method throws, and all return at once.
 * `now`: ms since 1970, with fractions. `mostPending`: bytes that may wait for the disk, per file; a dump
 * that falls further behind is cut off, the request is not.
 */
export function createDumper({
  workspace,
  log,
  now = () => performance.timeOrigin + performance.now(),
  mostPending = 32 * 1024 * 1024,
}: {
  readonly workspace: string;
  readonly log: Logger;
  readonly now?: () => number;
  readonly mostPending?: number;
}) {
  const complain = (path: string, error: unknown): void => {
    log.warn({ path, err: error }, 'A request dump could not be written');
  };

  function open(path: string) {
    const stream = createWriteStream(path, { flags: 'wx', mode: 0o600 });
    const closed = new Promise<void>((resolve) => stream.once('close', resolve)); // also after an error
    stream.on('error', (error) => complain(path, error));
    return {
      write(data: string | Uint8Array): void {
        if (stream.writableEnded || stream.destroyed) return;
        if (stream.writableLength + data.length > mostPending) {
          stream.end(CUT_OFF);
          complain(path, 'the disk is slower than the traffic');
          // A copy, because the caller may reuse its memory.
        } else stream.write(typeof data === 'string' ? data : Buffer.from(data));
      },
      end(): Promise<void> {
        stream.end();
        return closed;
      },
    };
  }

  /** Begins the dump of one exchange, in plain text. */
  function begin(asked: {
    readonly method: string;
    readonly target: string;
    readonly rawHeaders: readonly string[];
  }) {
    const { day, name } = stamp(now());
    const folder = join(workspace, 'requests', day);
    try {
      makeDirectorySync(folder, 0o700);
    } catch (error) {
      complain(folder, error);
    }
    const request = open(join(folder, `${name}_req.txt`));
    const line = `${asked.method} ${withoutCredentials(asked.target)} HTTP/1.1`;
    request.write(head(line, pairs(asked.rawHeaders)));
    let response: ReturnType<typeof open> | undefined;
    return {
      requestBody: (chunk: Uint8Array): void => request.write(chunk),
      responseHead(status: number, headers: Headers): void {
        response ??= open(join(folder, `${name}_resp.txt`));
        response.write(head(`HTTP/1.1 ${status} ${STATUS_CODES[status] ?? ''}`, headers));
      },
      responseBody: (chunk: string | Uint8Array): void => response?.write(chunk),
      /** Resolves when both files are closed. */
      async end(): Promise<void> {
        await Promise.all([request.end(), response?.end()]);
      },
    };
  }
  return { begin };
}

export type Dumper = ReturnType<typeof createDumper>;

/** Start line and headers as text: Host first, the others by name, credentials redacted. */
function head(startLine: string, headers: Headers): string {
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
  // A name without a value is consumed, too. Otherwise each further `?` would begin a look at all the rest.
  return target.replace(/([?&;])([^=&;]*)(=[^&;]*)?/g, (whole, mark: string, name: string, value?: string) =>
    value !== undefined && isCredential(decoded(name)) ? `${mark}${name}=${REDACTED}` : whole,
  );
}

/** Decodes the name of a parameter. A name that cannot be decoded counts as that of a credential. */
function decoded(name: string): string {
  try {
    return decodeURIComponent(name);
  } catch {
    return 'secret';
  }
}

const isCredential = (name: string): boolean => CREDENTIAL_WORDS.test(name) && !NO_CREDENTIALS.test(name);

const pairs = (rawHeaders: readonly string[]): Headers =>
  rawHeaders.flatMap((name, i) => (i % 2 === 0 ? [[name, rawHeaders[i + 1] ?? '']] : []));

/** Day and name of a dump, in UTC with microseconds; two random digits keep names apart. */
function stamp(time: number): { readonly day: string; readonly name: string } {
  const iso = new Date(time).toISOString();
  const day = iso.slice(0, 10);
  const microseconds = String(Math.floor((time % 1) * 1000)).padStart(3, '0');
  const random = String(randomInt(100)).padStart(2, '0');
  return { day, name: `${day}_${iso.slice(11, 23).replaceAll(':', '')}${microseconds}_${random}` };
}

/**
 * Copies one exchange into a dump of its own, exactly as the application sends and sees it, whichever module
 * writes the response.
 */
export function copyToDump(req: IncomingMessage, res: ServerResponse, dumper: Dumper): void {
  const { method = '', url = '', rawHeaders } = req;
  const dump = dumper.begin({ method, target: url, rawHeaders });
  // Readable.on('data') would start the flow; EventEmitter.on only listens.
  EventEmitter.prototype.on.call(req, 'data', dump.requestBody);
  (res as AppResponse).observe(dump);
  res.once('close', () => void dump.end());
}
