/** Sends one attempt of a request through http-proxy-3, and returns the head of the upstream response. */
import type { ClientRequest, IncomingMessage, OutgoingHttpHeaders, ServerResponse } from 'node:http';
import { Readable } from 'node:stream';
import type { TLSSocket } from 'node:tls';
import { ProxyServer } from 'http-proxy-3';
import type { Clock, Deadline } from '../clock.ts';
import { urlHost } from './addresses.ts';
import type { ServiceAgent } from './agent.ts';
import { noConnection, noResponse, upstreamFailure } from './transport-errors.ts';

interface UpstreamOptions {
  readonly host: string;
  readonly port: number;
  readonly connectTimeout: number; // ms from the start of the attempt to the end of the TLS handshake
  readonly firstByteTimeout: number; // ms in which a response must come after the last piece of the upload
  readonly agent: ServiceAgent;
  readonly freshAgent: ServiceAgent; // opens a connection each time; used to retry after a stale connection
  readonly clock: Clock;
}

/** What one attempt sends in place of the head and the body of the application's request. */
interface Attempt {
  readonly method: string;
  readonly path: string; // canonical path of the endpoint table, with the allowed query
  readonly headers: OutgoingHttpHeaders;
  readonly body: Uint8Array | Readable | undefined; // the encrypted body
  readonly sent: () => void; // called when the whole upload has been sent
  readonly fresh: boolean;
  readonly deadline: Deadline;
}

export interface UpstreamResponse {
  readonly response: IncomingMessage;
  readonly request: ClientRequest;
}

export type Upstream = ReturnType<typeof createUpstream>;

export function createUpstream(options: UpstreamOptions) {
  delete process.env['FORCE_FETCH_PATH']; // the variable would change http-proxy-3 (docs/architecture.md H26)
  const { host, port } = options;
  const target = { protocol: 'https:', host, hostname: host, port };
  const proxy = new ProxyServer({ target, secure: true, toProxy: true, selfHandleResponse: true });
  proxy.on('error', () => {}); // each attempt handles the errors of its own request

  return {
    /** The value of the Host header. */
    authority: urlHost(host) + (port === 443 ? '' : `:${port}`),
    /**
     * Sends one attempt for the application of `res`. `outcome` rejects with UpstreamFailure. `stop` ends the
     * attempt, even after its response has begun; a PrivatemodeError given to `stop` becomes the failure.
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
 * Runs one attempt until the head of its response or its first failure. Returns an object that http-proxy-3
 * treats as an application's request. Before it sends anything, http-proxy-3 calls `pipe` of the object
 * (docs/architecture.md H1).
 */
function beginSending(attempt: Attempt, { host, clock, connectTimeout, firstByteTimeout }: UpstreamOptions) {
  const { method, path: url, headers, sent, deadline } = attempt;
  const outcome = Promise.withResolvers<UpstreamResponse>();
  let isSettled = false;
  let { body } = attempt;
  let request: ClientRequest | undefined;
  let connection: TLSSocket | undefined;
  let readBefore = 0; // bytes read from the connection before this attempt
  let connectedAt: number | undefined;
  let reused = false; // whether the connection was idle before, so that the service may have closed it

  const release = (): void => {
    if (body instanceof Readable) body.destroy();
    body = undefined;
  };
  /** Ends the attempt. Only the first cause counts: later errors only say that the request was destroyed. */
  const stop = (thrown: unknown): void => {
    request?.destroy(); // even after a response, so that the rest of the body is not sent
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
    // An error is made only if it is needed: its stack costs 9 us of the 620 us of a short request.
    if (!isSettled) stop(new Error('closed without a response'));
    release();
  };
  const connected = (): void => {
    connectedAt = clock.monotonic();
    deadline.wait(firstByteTimeout, () => stop(noResponse()));
    if (!(body instanceof Readable)) return;
    // The wait begins anew with each piece of the upload that is sent, until the attempt has its outcome.
    const left = (): void => {
      if (!isSettled) deadline.refresh();
    };
    request?.on('drain', left).once('finish', left);
  };
  const assigned = (socket: TLSSocket): void => {
    connection = socket;
    readBefore = socket.bytesRead;
    reused = socket.authorized; // `reusedSocket` would be wrong (docs/architecture.md H40)
    if (reused) connected();
    else socket.once('secureConnect', connected);
  };
  // The deadline is our own: a 1xx response resets the timers of the socket (docs/architecture.md H10).
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
        // Nothing comes after a response that ends before the upload: the rest of the upload is not sent.
        if (body instanceof Readable) response.once('end', () => made.writableFinished || made.destroy());
        outcome.resolve({ response, request: made });
      });
      // If the body failed, pipe() alone would leave the request open.
      if (body instanceof Readable) body.once('error', stop).pipe(made);
      else {
        made.end(body);
        body = undefined; // to free memory, because the response may take long
      }
    },
  };
}
