/** Sends one attempt of a request through http-proxy-3, and gives the head of the upstream response. */
import type { ClientRequest, IncomingMessage, OutgoingHttpHeaders, ServerResponse } from 'node:http';
import { Readable } from 'node:stream';
import type { TLSSocket } from 'node:tls';
import { ProxyServer } from 'http-proxy-3';
import type { Clock, Deadline } from '../clock.ts';
import { urlHost } from './addresses.ts';
import type { ServiceAgent } from './agent.ts';
import { noConnection, noResponse, upstreamFailure } from './failures.ts';

interface UpstreamOptions {
  readonly host: string;
  readonly port: number;
  readonly connectTimeout: number; // ms from the start of the attempt, the TLS handshake included
  readonly firstByteTimeout: number; // ms from the last piece of the upload that left
  readonly agent: ServiceAgent;
  readonly freshAgent: ServiceAgent; // opens a connection each time: for the retry after a stale one
  readonly clock: Clock;
}

/** What one attempt sends. Nothing of the application's own head goes out. */
interface Attempt {
  readonly method: string;
  readonly path: string; // canonical, of the endpoint table, and the allowed query
  readonly headers: OutgoingHttpHeaders;
  readonly body: Uint8Array | Readable | undefined; // encrypted
  readonly sent: () => void; // called when all of the upload has left
  readonly fresh: boolean;
  readonly deadline: Deadline;
}

export interface UpstreamResponse {
  readonly response: IncomingMessage;
  readonly request: ClientRequest;
}

export type Upstream = ReturnType<typeof createUpstream>;

export function createUpstream(options: UpstreamOptions) {
  delete process.env['FORCE_FETCH_PATH']; // docs/architecture.md H26
  const { host, port } = options;
  const target = { protocol: 'https:', host, hostname: host, port };
  const proxy = new ProxyServer({ target, secure: true, toProxy: true, selfHandleResponse: true });
  proxy.on('error', () => {}); // an attempt listens to its own request

  return {
    /** The value of Host. */
    authority: urlHost(host) + (port === 443 ? '' : `:${port}`),
    /**
     * Sends one attempt for the application of `res`. `outcome` rejects with UpstreamFailure. `stop` ends the
     * attempt, also once it has a response; a PrivatemodeError becomes its failure.
     */
    send(res: ServerResponse, attempt: Attempt): Pick<Sending, 'outcome' | 'stop'> {
      const agent = attempt.fresh ? options.freshAgent : options.agent;
      const sending = beginSending(attempt, options);
      agent.dropOutlived();
      try {
        const request = sending as unknown as IncomingMessage;
        proxy.web(request, res, { buffer: request, agent });
      } catch (thrown) {
        sending.stop(thrown);
      }
      return sending;
    },
  };
}

type Sending = ReturnType<typeof beginSending>;

/**
 * One attempt, until the head of its response or the first cause of its failure. http-proxy-3 takes it for an
 * application's request and body: it calls `pipe` before anything is sent (docs/architecture.md H1).
 */
function beginSending(attempt: Attempt, { host, clock, connectTimeout, firstByteTimeout }: UpstreamOptions) {
  const { method, path: url, headers, sent, deadline } = attempt;
  const outcome = Promise.withResolvers<UpstreamResponse>();
  let isSettled = false;
  let { body } = attempt;
  let request: ClientRequest | undefined;
  let connection: TLSSocket | undefined;
  let readBefore = 0; // bytes
  let connectedAt: number | undefined;
  let reused = false; // the connection idled before, and may have been closed meanwhile

  const release = (): void => {
    if (body instanceof Readable) body.destroy();
    body = undefined;
  };
  /** The first cause counts: that the request was destroyed says nothing. */
  const stop = (thrown: unknown): void => {
    request?.destroy(); // also after a response: the rest of the body is not sent
    if (isSettled) return;
    isSettled = true;
    deadline.rest();
    release();
    const heard = (connection?.bytesRead ?? 0) > readBefore;
    const age = connectedAt && clock.monotonic() - connectedAt;
    const hasLeft = request?.writableFinished === true;
    const failure = { host, heard, reused, age, sent: hasLeft, times: clock.times };
    outcome.reject(upstreamFailure(thrown, failure));
  };
  const closed = (): void => {
    // An error costs 9 us of a short request's 620, because of its stack.
    if (!isSettled) stop(new Error('closed without a response'));
    release();
  };
  const connected = (): void => {
    connectedAt = clock.monotonic();
    deadline.wait(firstByteTimeout, () => stop(noResponse()));
    if (!(body instanceof Readable)) return;
    // Anew for each piece of the upload that leaves, until the wait is somebody else's.
    const left = (): void => {
      if (!isSettled) deadline.refresh();
    };
    request?.on('drain', left).once('finish', left);
  };
  const assigned = (socket: TLSSocket): void => {
    connection = socket;
    readBefore = socket.bytesRead;
    reused = socket.authorized; // not `reusedSocket` (docs/architecture.md H40)
    if (reused) connected();
    else socket.once('secureConnect', connected);
  };
  // Not the timers of the socket (docs/architecture.md H10).
  deadline.wait(connectTimeout, () => stop(noConnection()));

  return {
    method,
    url,
    headers,
    socket: {},
    outcome: outcome.promise,
    stop,
    on(): void {}, // `pipe` handles the errors of the body
    pipe(made: ClientRequest): void {
      request = made;
      made.once('socket', assigned).on('error', stop).once('finish', sent).once('close', closed);
      made.once('response', (response) => {
        if (isSettled) return void response.destroy();
        isSettled = true;
        deadline.rest();
        // A response that is over before the upload is all that will come: the rest of the upload stays here.
        if (body instanceof Readable) response.once('end', () => made.writableFinished || made.destroy());
        outcome.resolve({ response, request: made });
      });
      // If the body fails, pipe() would leave the request open.
      if (body instanceof Readable) body.once('error', stop).pipe(made);
      else {
        made.end(body);
        body = undefined; // the response may take long
      }
    },
  };
}
