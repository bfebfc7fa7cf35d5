/**
 * Sends one attempt of a request through http-proxy-3: from its encrypted body, a Readable, to the head of
 * the upstream response.
 */
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
      const sending = new Sending(attempt, options);
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
      return sending.outcome.promise;
    },
  };
}

const NO_CONNECTION = ['upstream_connect_timeout', 'no connection to the service in time'] as const;
/** Bytes that the system takes at once. An upload of this size leaves as soon as it has a connection. */
const AT_ONCE = 64 * 1024;

/**
 * One attempt, until the head of its response or the first cause of its failure. http-proxy-3 takes it for
 * the request of an application and for its body: it reads the first members, and calls `on`, and `pipe` with
 * the request that it sends, before `web` returns and before anything is sent.
 *
 * Functions that belong to it are made apart and not in place, nor by `handleEvent`: V8 would keep them, and
 * all that they see, until a full collection (docs/hazards.md 25).
 */
class Sending {
  readonly method: string;
  readonly url: string;
  readonly headers: OutgoingHttpHeaders;
  readonly socket = {};
  /** Rejects with UpstreamFailure. */
  readonly outcome = Promise.withResolvers<UpstreamResponse>();
  readonly #attempt: Attempt;
  readonly #options: UpstreamOptions;
  // Not the timers of the socket: any traffic resets those, also a burst of informational responses.
  readonly #deadline: Deadline;
  readonly #aborted: () => void;
  #request: ClientRequest | undefined;
  #socket: TLSSocket | undefined;
  #readBefore = 0; // bytes
  #connectedAt: number | undefined;
  #reused = false; // the connection idled before, and may have been closed meanwhile
  #settled = false;

  constructor(attempt: Attempt, options: UpstreamOptions) {
    this.method = attempt.method;
    this.url = attempt.path;
    this.headers = attempt.headers;
    this.#attempt = attempt;
    this.#options = options;
    this.#deadline = new Deadline(options.clock, options.connectTimeout, () =>
      this.failed(this.#connectedAt === undefined ? new PrivatemodeError(...NO_CONNECTION) : noResponse()),
    );
    const aborted = (): void => this.failed(attempt.signal.reason);
    this.#aborted = aborted;
    attempt.signal.addEventListener('abort', aborted);
  }

  /** The library asks for errors of what it reads from; those of the body come to `pipe`. */
  on(): this {
    return this;
  }

  pipe<Destination>(destination: Destination): Destination {
    const request = destination as unknown as ClientRequest;
    const { body } = this.#attempt;
    this.#request = request;
    request.once('close', () => {
      // An error costs 9 us of a short request's 620, because of its stack.
      if (!this.#settled) this.failed(new Error('closed without a response'));
      body?.destroy();
    });
    // A failing body must not leave a request that looks complete, or hangs: pipe() would leave it open.
    if (body === undefined) request.end();
    else body.once('error', (error) => this.failed(error)).pipe(request);
    return destination;
  }

  hasSocket(socket: TLSSocket): void {
    this.#socket = socket;
    this.#readBefore = socket.bytesRead;
    // Behind an outbound proxy a socket is connected before its handshake begins, and may even count as
    // reused by then (docs/hazards.md 40).
    this.#reused = socket.authorized;
    if (this.#reused) this.#connected();
    else socket.once('secureConnect', () => this.#connected());
  }

  #connected(): void {
    this.#connectedAt = this.#options.clock.monotonic();
    this.#deadline.refresh(this.#options.firstByteTimeout);
    if (!this.#isLong()) return;
    const left = (): void => this.#deadline.refresh(); // anew for each piece of the upload that leaves
    this.#request?.on('drain', left).once('finish', left);
  }

  hasResponse(response: IncomingMessage): void {
    const request = this.#request as ClientRequest;
    if (this.#settled) return void response.destroy();
    this.#settle();
    // A response that is over before the upload is all that will come: the rest of the upload stays here.
    if (this.#isLong()) response.once('end', () => request.writableFinished || request.destroy());
    this.outcome.resolve({ response, request });
  }

  /**
   * The first cause counts: destroying the request makes it fail once more, with an error that says nothing.
   */
  failed(thrown: unknown): void {
    const request = this.#request;
    request?.destroy(); // also if a response came before the body failed: the rest of the body is not sent
    if (this.#settled) return;
    this.#settle();
    this.#attempt.body?.destroy();
    const { host, clock } = this.#options;
    const state = {
      host,
      heard: (this.#socket?.bytesRead ?? 0) > this.#readBefore,
      reused: this.#reused,
      age: this.#connectedAt && clock.monotonic() - this.#connectedAt,
      sent: request?.writableFinished === true,
      times: clock.times,
    };
    this.outcome.reject(upstreamFailure(thrown, state));
  }

  #settle(): void {
    this.#settled = true;
    this.#deadline.cancel();
    this.#attempt.signal.removeEventListener('abort', this.#aborted);
  }

  #isLong(): boolean {
    return this.#attempt.body !== undefined && !(Number(this.headers['content-length']) <= AT_ONCE);
  }
}
