/**
 * A remote that does exactly what a test scripts, byte for byte: raw TLS sockets, no HTTP library. It keeps
 * every byte it was sent and reads requests strictly; what is not one well-formed request of this proxy is a
 * violation.
 */
import { createServer } from 'node:net';
import { createSecureContext, TLSSocket } from 'node:tls';
import { opened } from './loopback.ts';
import { createTestAuthority } from './tls-authority.ts';

export interface SeenRequest {
  readonly method: string;
  readonly target: string;
  /** Lower-case names; none can come twice. */
  readonly headers: Readonly<Record<string, string>>;
  /** Empty until it is complete. */
  readonly body: Buffer;
  readonly complete: boolean;
  /** Which connection it came on, from 0. */
  readonly connection: number;
}

/** One request, from its head on; the script answers whenever it likes. */
export interface Scripted {
  readonly request: SeenRequest;
  /** The whole body; rejects where the connection closes before. */
  body(): Promise<Buffer>;
  /**
   * Sends bytes as they are (latin1); resolves when they are with the operating system, rejects where they
   * cannot be.
   */
  write(bytes: string | Uint8Array): Promise<void>;
  /** Stops reading from the connection: the sender's buffers fill up. */
  pause(): void;
  resume(): void;
  /** A TLS close and FIN. */
  end(): void;
  /** A TCP reset. */
  reset(): void;
  /** Resolves when the connection has closed, whoever did it. */
  readonly closed: Promise<void>;
}

export type Script = (scripted: Scripted) => unknown;

/** Bytes (latin1), or what makes them of the body of the request. */
export type Reply = string | ((request: Buffer) => string);

const authority = createTestAuthority('scripted upstream');
const certificate = authority.issue(['localhost', '127.0.0.1']);

/** Says that as soon as the body of the request is there. */
export const saying =
  (reply: Reply): Script =>
  async (scripted) => {
    const request = await scripted.body();
    return scripted.write(typeof reply === 'string' ? reply : reply(request));
  };

/** Starts one on a free port of 127.0.0.1. Requests without a script are left unanswered. */
export async function startScriptedUpstream() {
  const secureContext = createSecureContext(certificate);
  let scripts: Script[] = [];
  let requests: SeenRequest[] = [];
  let violations: string[] = [];
  let received: Buffer[] = [];
  let secure = 0;

  const server = createServer();
  const listener = await opened(server);
  server.on('connection', (raw) => {
    const connection = listener.total() - 1;
    const { promise: closed, resolve: closes } = Promise.withResolvers<void>();
    raw.once('close', () => closes());
    const tls = new TLSSocket(raw, { isServer: true, secureContext, ALPNProtocols: ['http/1.1'] });
    tls.on('error', () => {});
    tls.once('secure', () => {
      secure++;
    });
    const reader = createStrictReader({
      connection,
      violated: (words) => violations.push(`connection ${connection}: ${words}`),
      begun(request, body) {
        requests.push(request);
        const script = scripts.length > 1 ? scripts.shift() : scripts[0];
        const scripted: Scripted = {
          request,
          body: () => Promise.race([body, closed.then(() => Promise.reject(new Error('closed')))]),
          write(bytes) {
            const { promise, resolve, reject } = Promise.withResolvers<void>();
            promise.catch(() => {}); // not every script waits for it
            const data = typeof bytes === 'string' ? Buffer.from(bytes, 'latin1') : bytes;
            tls.write(data, (error) => (error ? reject(error) : resolve()));
            return promise;
          },
          pause: () => tls.pause(),
          resume: () => tls.resume(),
          end: () => tls.end(),
          reset: () => raw.resetAndDestroy(),
          closed,
        };
        // A script that fails on a connection that has gone is the end of that script only.
        void (async () => script?.(scripted))().catch(() => {});
      },
    });
    tls.on('data', (chunk: Buffer) => {
      received.push(chunk);
      reader(chunk);
    });
  });
  return {
    port: listener.port,
    /** PEM of the authority to trust. */
    ca: authority.pem,
    get requests(): readonly SeenRequest[] {
      return requests;
    },
    /** What no strict server would have accepted, in words. */
    get violations(): readonly string[] {
      return violations;
    },
    /** TCP connections accepted so far, how many of them came through the handshake, and those still open. */
    get connections() {
      return { total: listener.total(), secure, open: listener.open.size };
    },
    /** Every decrypted byte of every connection. */
    received: (): Buffer => Buffer.concat(received),
    /** What happens to the next requests, in order; the last script stays. */
    on(...next: readonly Script[]): void {
      scripts = [...next];
    },
    /** From now on every request gets that as soon as its body is there. */
    answers(reply: Reply): void {
      scripts = [saying(reply)];
    },
    /** Forgets what was seen. */
    clear(): void {
      requests = [];
      violations = [];
      received = [];
    },
    close: listener.close,
  };
}

export type ScriptedUpstream = Awaited<ReturnType<typeof startScriptedUpstream>>;

interface ReaderOptions {
  readonly connection: number;
  readonly begun: (request: SeenRequest, body: Promise<Buffer>) => void;
  readonly violated: (words: string) => void;
}

type MutableRequest = { -readonly [Member in keyof SeenRequest]: SeenRequest[Member] };

/** Reads requests one after the other: a head, then exactly as many bytes as Content-Length says. */
function createStrictReader({ connection, begun, violated }: ReaderOptions): (chunk: Buffer) => void {
  let buffered: Buffer = Buffer.alloc(0);
  let current: { request: MutableRequest; left: number; resolve: (body: Buffer) => void } | undefined;
  const parts: Buffer[] = [];

  const readHead = (): boolean => {
    const end = buffered.indexOf('\r\n\r\n');
    if (end < 0) return false;
    const head = buffered.subarray(0, end).toString('latin1');
    buffered = buffered.subarray(end + 4);
    const { request, contentLength } = parseHead(head, violated);
    const { promise, resolve } = Promise.withResolvers<Buffer>();
    current = { request: { ...request, connection }, left: contentLength, resolve };
    begun(current.request, promise);
    return true;
  };

  const readBody = ({ request, left, resolve }: NonNullable<typeof current>): boolean => {
    const part = buffered.subarray(0, left);
    buffered = buffered.subarray(part.length);
    parts.push(part);
    if (part.length < left) {
      current = { request, left: left - part.length, resolve };
      return false;
    }
    request.body = Buffer.concat(parts);
    request.complete = true;
    parts.length = 0;
    current = undefined;
    resolve(request.body);
    return buffered.length > 0;
  };

  return (chunk) => {
    buffered = buffered.length === 0 ? chunk : Buffer.concat([buffered, chunk]);
    let more = true;
    while (more) more = current === undefined ? readHead() : readBody(current);
  };
}

const REQUEST_LINE = /^(GET|HEAD|POST) (\/[\x21-\x7e]*) HTTP\/1\.1$/;
const HEADER_LINE = /^([!#$%&'*+.^_`|~0-9A-Za-z-]+): ([\t\x20-\x7e\x80-\xff]*)$/;

/** RFC 9112 by the letter, without anything it merely tolerates. */
function parseHead(
  head: string,
  violated: (words: string) => void,
): { request: Omit<MutableRequest, 'connection'>; contentLength: number } {
  const [requestLine = '', ...lines] = head.split('\r\n');
  if (/[\r\n]/.test(head.replaceAll('\r\n', ''))) violated('a bare CR or LF in the head');
  const start = REQUEST_LINE.exec(requestLine);
  if (start === null) violated(`not a request line: ${JSON.stringify(requestLine)}`);
  const headers: Record<string, string> = {};
  for (const line of lines) {
    const match = HEADER_LINE.exec(line);
    const name = match?.[1]?.toLowerCase();
    if (name === undefined) violated(`not a header line: ${JSON.stringify(line)}`);
    else if (Object.hasOwn(headers, name)) violated(`the header ${name} came twice`);
    else headers[name] = match?.[2] as string;
  }
  const length = headers['content-length'];
  if (headers['host'] === undefined) violated('no Host');
  if (headers['transfer-encoding'] !== undefined) violated('a Transfer-Encoding');
  if (length !== undefined && !/^(0|[1-9]\d*)$/.test(length)) violated(`a Content-Length of ${length}`);
  if (start?.[1] === 'POST' && length === undefined) violated('a POST without Content-Length');
  const [, method = '', target = ''] = start ?? [];
  return {
    request: { method, target, headers, body: Buffer.alloc(0), complete: false },
    contentLength: Number(length ?? 0),
  };
}
