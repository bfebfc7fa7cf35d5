/**
 * Sends one attempt of a request through http-proxy-3: from its encrypted body, a Readable, to the head of
 * the upstream response.
 */
import type { ClientRequest, IncomingMessage, OutgoingHttpHeaders, ServerResponse } from 'node:http';
import type { Readable, Stream } from 'node:stream';
import type { TLSSocket } from 'node:tls';
import { ProxyServer } from 'http-proxy-3';
import type { Clock, Deadline } from '../clock.ts';
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
  /** Waits for the connection, then for the head of the response. */
  readonly deadline: Deadline;
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
  const name = urlHost(host);
  const target = { protocol: 'https:', host, hostname: host, port };
  const proxy = new ProxyServer({ target, secure: true, toProxy: true, selfHandleResponse: true });
  // The library gets a Sending in place of the application's request, and names it in each of its events.
  const sendingOf = (request: unknown): Sending => request as Sending;
  proxy.on('proxyReq', (_, its, _res, _options, socket) => sendingOf(its).hasSocket(socket as TLSSocket));
  proxy.on('proxyRes', (response, its) => sendingOf(its).hasResponse(response));
  proxy.on('error', (error, its) => sendingOf(its).failed(error));

  return {
    /** The value of Host: with the port if that is not 443, with brackets around IPv6. */
    authority: port === 443 ? name : `${name}:${port}`,
    /**
     * Sends one attempt for the application that waits for `res`, and resolves with the response headers.
     * Destroys the upstream request when the application goes away. Rejects with UpstreamFailure.
     */
    send(res: ServerResponse, attempt: Attempt): Promise<UpstreamResponse> {
      const agent = attempt.fresh ? options.freshAgent : options.agent;
      const sending = createSending(attempt, options);
      if (attempt.signal.aborted) sending.failed(attempt.signal.reason);
      else {
        agent.dropOutlived();
        try {
          const buffer = sending as unknown as Stream;
          proxy.web(sending as unknown as IncomingMessage, res, { buffer, agent });
        } catch (thrown) {
          sending.failed(thrown);
        }
      }
      return sending.outcome;
    },
  };
}

const NO_CONNECTION = ['upstream_connect_timeout', 'no connection to the service in time'] as const;
/** Bytes that the system takes at once. An upload of this size leaves as soon as it has a connection. */
const SHORT_UPLOAD = 64 * 1024;

type Sending = ReturnType<typeof createSending>;

/**
 * One attempt, until the head of its response or the first cause of its failure. http-proxy-3 takes it for
 * the request of an application and for its body: it reads the first members, and calls `on` for errors, and
 * `pipe` with the request that it sends, before `web` returns and before anything is sent. `outcome` rejects
 * with UpstreamFailure.
 */
function createSending({ method, path, headers, body, deadline, signal }: Attempt, options: UpstreamOptions) {
  const { host, connectTimeout, firstByteTimeout, clock } = options;
  const { promise: outcome, resolve, reject } = Promise.withResolvers<UpstreamResponse>();
  const isLong = body !== undefined && !(Number(headers['content-length']) <= SHORT_UPLOAD);
  let request: ClientRequest | undefined;
  let socket: TLSSocket | undefined;
  let readBefore = 0; // bytes
  let connectedAt: number | undefined;
  let reused = false; // the connection idled before, and may have been closed meanwhile
  let settled = false;
  // Not the timers of the socket: any traffic resets those, also a burst of informational responses.
  deadline.wait(connectTimeout, () => failed(new PrivatemodeError(...NO_CONNECTION)));
  const aborted = (): void => failed(signal.reason);
  signal.addEventListener('abort', aborted);

  function settle(): void {
    settled = true;
    deadline.rest();
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
    const heard = (socket?.bytesRead ?? 0) > readBefore;
    const age = connectedAt && clock.monotonic() - connectedAt;
    const sent = request?.writableFinished === true;
    reject(upstreamFailure(thrown, { host, heard, reused, age, sent, times: clock.times }));
  }

  function closed(): void {
    // An error costs 9 us of a short request's 620, because of its stack.
    if (!settled) failed(new Error('closed without a response'));
    body?.destroy();
  }

  function pipe<Destination>(destination: Destination): Destination {
    request = destination as unknown as ClientRequest;
    request.once('close', closed);
    // A failing body must not leave a request that looks complete, or hangs: pipe() would leave it open.
    if (body === undefined) request.end();
    else body.once('error', failed).pipe(request);
    return destination;
  }

  function hasSocket(given: TLSSocket): void {
    socket = given;
    readBefore = given.bytesRead;
    // Behind an outbound proxy a socket is connected before its handshake begins, and may even count as
    // reused by then (docs/hazards.md 40).
    reused = given.authorized;
    if (reused) connected();
    else given.once('secureConnect', connected);
  }

  function connected(): void {
    connectedAt = clock.monotonic();
    deadline.wait(firstByteTimeout, () => failed(noResponse()));
    if (!isLong) return;
    // Anew for each piece of the upload that leaves, until the wait is somebody else's.
    const left = (): void => {
      if (!settled) deadline.refresh();
    };
    request?.on('drain', left).once('finish', left);
  }

  function hasResponse(response: IncomingMessage): void {
    const sent = request as ClientRequest;
    if (settled) return void response.destroy();
    settle();
    // A response that is over before the upload is all that will come: the rest of the upload stays here.
    if (isLong) response.once('end', () => sent.writableFinished || sent.destroy());
    resolve({ response, request: sent });
  }

  return {
    method,
    url: path,
    headers,
    socket: {},
    on: ignore,
    pipe,
    hasSocket,
    hasResponse,
    failed,
    outcome,
  };
}

/** http-proxy-3 listens for errors of the body, which `pipe` handles. */
const ignore = (): void => {};
