/** Writes each exchange into files, as the application sees it but without credentials (--dump-requests). */
import { randomInt } from 'node:crypto';
import { EventEmitter } from 'node:events';
import { createWriteStream } from 'node:fs';
import { type IncomingMessage, STATUS_CODES } from 'node:http';
import { join } from 'node:path';
import { finished } from 'node:stream/promises';
import { makeDirectorySync } from '../files/durable-file.ts';
import type { Logger } from '../observe/log.ts';
import type { AppResponse, ShownHeaders } from './observed-response.ts';

const REDACTED = '[redacted]';
/** Names of headers and parameters to redact. Redacting too much is better than a credential in a dump. */
const CREDENTIAL_WORDS = /auth|key|token|secret|passw|pwd|cookie|credential|session|signature|^sig$|jwt/i;
const NO_CREDENTIALS = /^(?:x|anthropic)-ratelimit-|^privatemode-proxy-(?:secret-id|unauthenticated)$/i;
const MOST_PENDING = 32 * 1024 * 1024; // the most bytes of a dump that may wait for the disk

export type Dump = ReturnType<typeof createDump>;

/**
 * Makes the function that writes exchanges to
 * `WORKSPACE/requests/YYYY-MM-DD/YYYY-MM-DD_HHMMSS.ffffff_NN_{req,resp}.txt` (UTC), readable by this user
 * only. After a failure, which is logged, the exchange goes on. `now`: ms since 1970.
 */
export function createDump(
  workspace: string,
  log: Pick<Logger, 'warn'>,
  now = () => performance.timeOrigin + performance.now(),
) {
  const complain = (path: string, err: unknown): void =>
    log.warn({ path, err }, 'A request dump could not be written');
  const open = (path: string) => {
    const stream = createWriteStream(path, { flags: 'wx', mode: 0o600 });
    stream.on('error', (error) => complain(path, error));
    return {
      write(data: string | Uint8Array): void {
        if (stream.writableEnded || stream.destroyed) return;
        const copy = typeof data === 'string' ? data : Buffer.from(data); // `data` may be overwritten later
        if (stream.writableLength <= MOST_PENDING) return void stream.write(copy);
        stream.end('\n[dump cut off: the disk is slower than the traffic]\n');
        complain(path, 'the disk is slower than the traffic');
      },
      end(): Promise<void> {
        stream.end();
        return finished(stream).catch(() => {}); // `complain` has logged the error
      },
    };
  };

  return (req: IncomingMessage, res: AppResponse): void => {
    const { method = '', url = '', rawHeaders } = req;
    const { day, name } = stamp(now());
    const folder = join(workspace, 'requests', day);
    try {
      makeDirectorySync(folder, 0o700);
    } catch (error) {
      complain(folder, error);
    }
    const request = open(join(folder, `${name}_req.txt`));
    request.write(head(`${method} ${withoutCredentials(url)} HTTP/1.1`, pairs(rawHeaders)));
    // Readable.on('data') would start the flow; EventEmitter.on only listens.
    EventEmitter.prototype.on.call(req, 'data', request.write);
    let response: ReturnType<typeof open> | undefined;
    res.observers.push({
      head(status, headers) {
        response ??= open(join(folder, `${name}_resp.txt`));
        response.write(head(`HTTP/1.1 ${status} ${STATUS_CODES[status] ?? ''}`, headers));
      },
      update: (chunk) => response?.write(chunk),
    });
    res.once('close', () => Promise.all([request.end(), response?.end()]));
  };
}

function head(startLine: string, headers: ShownHeaders): string {
  const lines = headers.map(([name, value]) => `${name}: ${redacted(name, value)}\r\n`);
  return `${startLine.trimEnd()}\r\n${lines.join('')}\r\n`;
}

function redacted(name: string, value: string): string {
  const scheme = /^\s*(Bearer|Basic)\s/i.exec(value)?.[1]; // a value with a scheme is a credential
  if (scheme !== undefined) return `${scheme} ${REDACTED}`;
  if (isCredential(name)) return REDACTED;
  return name.toLowerCase() === 'referer' ? withoutCredentials(value) : value;
}

/** Redacts credentials in the query of a target or URL. A value with an escaped name is redacted, too. */
function withoutCredentials(target: string): string {
  // Names without values match, too: otherwise each `?` would make the pattern scan all the rest again.
  return target.replace(/([?&;])([^=&;]*)(=[^&;]*)?/g, (whole, mark: string, name: string, value?: string) =>
    value !== undefined && (name.includes('%') || isCredential(name)) ? `${mark}${name}=${REDACTED}` : whole,
  );
}

const isCredential = (name: string): boolean => CREDENTIAL_WORDS.test(name) && !NO_CREDENTIALS.test(name);

const pairs = (rawHeaders: readonly string[]): ShownHeaders =>
  rawHeaders.flatMap((name, i) => (i % 2 === 0 ? [[name, rawHeaders[i + 1] ?? '']] : []));

function stamp(time: number) {
  const [day = '', clock = ''] = new Date(time).toISOString().slice(0, -1).split('T');
  const microseconds = String(Math.floor((time % 1) * 1000)).padStart(3, '0');
  const random = String(randomInt(100)).padStart(2, '0'); // two names from the same microsecond must differ
  return { day, name: `${day}_${clock.replaceAll(':', '')}${microseconds}_${random}` };
}
