/**
 * Sends one attempt of a request through http-proxy-3: from its encrypted body, a Readable, to the head of
 * the upstream response.
 */
import { EventEmitter } from 'node:events';
import type { ClientRequest, IncomingMessage, OutgoingHttpHeaders, ServerResponse } from 'node:http';
import type { Readable, Stream } from 'node:stream';
import type { TLSSocket } from 'node:tls';
import { ProxyServer } from 'http-proxy-3';
import { type Clock, Deadline } from '../clock.ts';
import { PrivatemodeError } from '../errors.ts';
import { urlHost } from './addresses.ts';
import type { ServiceAgent } from './agent.ts';
import { noResponse, upstreamFailure } from './failures.ts';

/** The address of the remote API, and how to connect to it. */
interface UpstreamOptions {
  readonly host: string;
  readonly port: number;
  /** ms from the start of the attempt to a usable connection, its TLS handshake included. */
  readonly connectTimeout: number;
  /** ms from the last piece of the upload that left until the response headers come. */
  readonly firstByteTimeout: number;
  /** Keeps connections alive; carries the CA bundle and the outbound proxy. */
  readonly agent: ServiceAgent;
  /** Opens a connection of its own for every request: the retry after a stale keep-alive connection. */
  readonly freshAgent: ServiceAgent;
  readonly clock: Clock;
}

/** What one attempt sends. Nothing of the application's own head goes out. */
export interface Attempt {
  readonly method: string;
  /** Canonical path of the endpoint table, and the allowed query. */
  readonly path: string;
  readonly headers: OutgoingHttpHeaders;
  /** The encrypted body; undefined: none. */
  readonly body: Readable | undefined;
  /** Use a connection of its own. */
  readonly fresh: boolean;
  /** Ends the attempt. If the reason is a PrivatemodeError, the attempt fails with it. */
  readonly signal: AbortSignal;
}

export interface UpstreamResponse {
  readonly response: IncomingMessage;
  readonly request: ClientRequest;
}

export type Upstream = ReturnType<typeof createUpstream>;

export function createUpstream(options: UpstreamOptions) {
  // If this variable is set, the library switches to a data path of its own (fetch, redirects followed). No
  // environment variable may change how encrypted bytes travel.
  delete process.env['FORCE_FETCH_PATH'];

  const { host, port } = options;
  const target = { protocol: 'https:', host, hostname: host, port };
  const proxy = new ProxyServer({ target, secure: true, toProxy: true, selfHandleResponse: true });
  const name = urlHost(host);

  return {
    /** The value of Host: with the port if that is not 443, with brackets around IPv6. */
    authority: port === 443 ? name : `${name}:${port}`,
    /**
     * Sends one attempt for the application that waits for `res`, and resolves with the response headers.
     * Destroys the upstream request when the application goes away. Rejects with UpstreamFailure.
     */
    send(res: ServerResponse, attempt: Attempt): Promise<UpstreamResponse> {
      const agent = attempt.fresh ? options.freshAgent : options.agent;
      const { outcome, failed, buffer } = runAttempt(attempt, options);
      if (attempt.signal.aborted) return outcome;
      agent.dropOutlived();
      // The library reads its request from here. The application's own request stays as it was.
      const { method, path: url, headers } = attempt;
      const head = Object.assign(new EventEmitter(), { method, url, headers, socket: {} });
      try {
        proxy.web(head as unknown as IncomingMessage, res, { buffer, agent }, failed);
      } catch (thrown) {
        failed(thrown);
      }
      return outcome;
    },
  };
}

const NO_CONNECTION = ['upstream_connect_timeout', 'no connection to the service in time'] as const;

/**
 * The state of one attempt, until the head of its response or the first cause of its failure. `outcome`
 * rejects with UpstreamFailure. `buffer` is what the library takes the body from: it calls `pipe` with its
 * request, before it returns and before anything is sent.
 */
function runAttempt({ signal, body }: Attempt, options: UpstreamOptions) {
  const { host, connectTimeout, firstByteTimeout, clock } = options;
  const { promise: outcome, resolve, reject } = Promise.withResolvers<UpstreamResponse>();
  let request: ClientRequest | undefined;
  let connectedAt: number | undefined;
  let reused = false; // the connection idled before, and may have been closed meanwhile
  let heard = false; // any byte of a response, an informational one included
  let settled = false;
  // Not the timers of the socket: any traffic resets those, also a burst of informational responses.
  const deadline = new Deadline(clock, connectTimeout, () =>
    failed(connectedAt === undefined ? new PrivatemodeError(...NO_CONNECTION) : noResponse()),
  );
  const expectResponse = (): void => deadline.refresh(firstByteTimeout);

  function settle(): void {
    settled = true;
    deadline.cancel();
    signal.removeEventListener('abort', aborted);
  }

  /**
   * The first cause counts: destroying the request makes it fail once more, with an error that says nothing.
   */
  function failed(thrown: unknown): void {
    request?.destroy(); // also if a response came before the body failed: the rest of the body is not sent
    if (settled) return;
    settle();
    body?.destroy();
    const age = connectedAt && clock.monotonic() - connectedAt;
    const sent = request?.writableFinished === true;
    reject(upstreamFailure(thrown, { host, heard, reused, age, sent, times: clock.times }));
  }
  const aborted = (): void => failed(signal.reason);

  function connected(): void {
    connectedAt = clock.monotonic();
    expectResponse(); // and anew for each piece of the upload that leaves
    request?.on('drain', expectResponse);
    request?.once('finish', expectResponse);
  }

  function pipe<Destination extends NodeJS.WritableStream>(destination: Destination): Destination {
    const sending = destination as unknown as ClientRequest;
    request = sending;
    sending.once('socket', (socket) => {
      socket.prependOnceListener('data', () => {
        heard = true;
      });
      // Behind an outbound proxy a socket is connected before its handshake begins, and may even count as
      // reused by then (docs/hazards.md 40).
      reused = (socket as TLSSocket).authorized;
      if (reused) connected();
      else socket.once('secureConnect', connected);
    });
    sending.once('response', (response) => {
      if (settled) return void response.destroy();
      settle();
      // A response that is over before the upload is all that will come, so the rest of the upload need not
      // travel.
      response.once('end', () => {
        if (!sending.writableFinished) sending.destroy();
      });
      resolve({ response, request: sending });
    });
    sending.once('close', () => {
      // An error costs 9 us of a short request's 620, because of its stack.
      if (!settled) failed(new Error('closed without a response'));
      body?.destroy();
    });
    // A failing body must not leave a request that looks complete, or hangs: pipe() would leave it open.
    body?.once('error', failed);
    if (body === undefined) sending.end();
    else body.pipe(sending);
    return destination;
  }

  if (signal.aborted) aborted();
  else signal.addEventListener('abort', aborted);
  return { outcome, failed, buffer: { pipe } as unknown as Stream };
}
