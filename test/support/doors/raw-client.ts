/** A client on a raw socket: exact bytes out, every byte back, and how the connection ended. */
import { connect } from 'node:net';
import { type ConnectionOptions, connect as connectTls } from 'node:tls';
import { eventually } from '../processes/eventually.ts';

/** Connects to 127.0.0.1; with `tls`, over TLS with these options. */
export function rawClient(port: number, tls?: ConnectionOptions) {
  const socket =
    tls === undefined
      ? connect({ port, host: '127.0.0.1', allowHalfOpen: true })
      : connectTls({ port, host: '127.0.0.1', ...tls });
  let text = '';
  let chunks: Buffer[] = [];
  const { promise: ended, resolve } = Promise.withResolvers<string>();
  socket.on('data', (chunk: Buffer) => chunks.push(chunk));
  socket.on('error', (error: NodeJS.ErrnoException) => resolve(error.code ?? 'error'));
  socket.once('end', () => {
    resolve('end');
    socket.end();
  });
  socket.once('close', () => resolve('closed'));
  /** What has come back so far, as latin1. */
  const received = (): string => {
    if (chunks.length > 0) text += Buffer.concat(chunks).toString('latin1');
    chunks = [];
    return text;
  };
  return {
    socket,
    send(bytes: string | Uint8Array): void {
      socket.write(typeof bytes === 'string' ? Buffer.from(bytes, 'latin1') : bytes);
    },
    received,
    /** How the server ended it: `end` or an error's code. Our own destroy() counts as `closed`. */
    ended,
    /** Waits until that matches; throws after `ms`. */
    async until(pattern: RegExp, ms = 60_000): Promise<string> {
      await eventually(
        () => `${pattern} in ${JSON.stringify(received())}`,
        () => pattern.test(received()),
        ...[ms, 2],
      );
      return received();
    },
  };
}

export type RawClient = ReturnType<typeof rawClient>;

export interface RawAnswer {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
  /** Whether its framing says that this is all of it. */
  readonly complete: boolean;
  /** Bytes after it. */
  readonly rest: string;
}

/**
 * Reads one answer (not to HEAD) out of raw bytes; undefined where not even the head is there. 1xx are
 * skipped.
 */
export function readAnswer(text: string): RawAnswer | undefined {
  const end = text.indexOf('\r\n\r\n');
  if (end < 0) return undefined;
  const [statusLine = '', ...lines] = text.slice(0, end).split('\r\n');
  const status = Number(/^HTTP\/1\.1 (\d{3}) /.exec(statusLine)?.[1]);
  if (status >= 100 && status < 200) return readAnswer(text.slice(end + 4));
  const headers = Object.fromEntries(
    lines.map((line) => {
      const colon = line.indexOf(':');
      return [line.slice(0, colon).toLowerCase(), line.slice(colon + 1).trim()];
    }),
  );
  return { status, headers, ...readBody(status, headers, text.slice(end + 4)) };
}

function readBody(
  status: number,
  headers: Readonly<Record<string, string | undefined>>,
  text: string,
): Pick<RawAnswer, 'body' | 'complete' | 'rest'> {
  if (status === 204 || status === 304) return { body: '', complete: true, rest: text };
  if (headers['transfer-encoding'] === 'chunked') return readChunked(text);
  const length = headers['content-length'];
  if (length === undefined) return { body: text, complete: false, rest: '' };
  const body = text.slice(0, Number(length));
  return { body, complete: body.length === Number(length), rest: text.slice(Number(length)) };
}

function readChunked(text: string): Pick<RawAnswer, 'body' | 'complete' | 'rest'> {
  let body = '';
  let rest = text;
  for (;;) {
    const match = /^([0-9a-f]+)\r\n/i.exec(rest);
    if (match === null) return { body, complete: false, rest };
    const size = Number.parseInt(match[1] as string, 16);
    const chunk = rest.slice(match[0].length, match[0].length + size);
    body += chunk;
    rest = rest.slice(match[0].length + size);
    if (chunk.length < size || !rest.startsWith('\r\n')) return { body, complete: false, rest };
    rest = rest.slice(2);
    if (size === 0) return { body, complete: true, rest };
  }
}
