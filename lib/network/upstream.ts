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

  const { host, port, agent, freshAgent } = options;
  const name = urlHost(host);
  const target = { protocol: 'https:', host, hostname: host, port };
  const proxy = new ProxyServer({ target, secure: true, toProxy: true, selfHandleResponse: true });
  // The library gets a Sending in place of the application's request, and names it in each of its events.
  const sendingOf = (request: unknown): Sending => request as Sending;
  proxy.on('proxyReq', (_, sending, _res, _options, socket) =>
    sendingOf(sending).hasSocket(socket as TLSSocket),
  );
  proxy.on('proxyRes', (response, sending) => sendingOf(sending).hasResponse(response));
  proxy.on('error', (error, sending) => sendingOf(sending).failed(error));

  return {
    /** The value of Host: with the port if that is not 443, with brackets around IPv6. */
    authority: port === 443 ? name : `${name}:${port}`,
    /**
     * Sends one attempt for the application that waits for `res`, and resolves with the response headers.
     * Destroys the upstream request when the application goes away. Rejects with UpstreamFailure.
     */
    send: (res: ServerResponse, attempt: Attempt): Promise<UpstreamResponse> =>
      new Promise((resolve, reject) => {
        const sending = new Sending(attempt, options, { resolve, reject });
        if (attempt.signal.aborted) return;
        const through = attempt.fresh ? freshAgent : agent;
        through.dropOutlived();
        try {
          const its = { buffer: sending as unknown as Stream, agent: through };
          proxy.web(sending as unknown as IncomingMessage, res, its);
        } catch (thrown) {
          sending.failed(thrown);
        }
      }),
  };
}

const NO_CONNECTION = ['upstream_connect_timeout', 'no connection to the service in time'] as const;
/**
 * Bytes that the system takes at once: an upload of this size has left as soon as it has a connection, so
 * nobody need watch how it leaves.
 */
const AT_ONCE = 64 * 1024;

interface Outcome {
  readonly resolve: (response: UpstreamResponse) => void;
  readonly reject: (failure: Error) => void;
}

/**
 * One attempt, until the head of its response or the first cause of its failure. http-proxy-3 takes it for the
 * request of an application and for the body of that. So it reads the first members, and calls `on`, and
 * `pipe` with the request that it sends, before `web` returns and before anything is sent. The application's
 * own request stays as it was.
 */
class Sending {
  readonly method: string;
  readonly url: string;
  readonly headers: OutgoingHttpHeaders;
  readonly socket = {};
  readonly #attempt: Attempt;
  readonly #options: UpstreamOptions;
  readonly #outcome: Outcome;
  // Not the timers of the socket: any traffic resets those, also a burst of informational responses.
  readonly #deadline: Deadline;
  readonly #aborted: () => void;
  #request: ClientRequest | undefined;
  #socket: TLSSocket | undefined;
  #readBefore = 0;
  #connectedAt: number | undefined;
  #reused = false; // the connection idled before, and may have been closed meanwhile
  #settled = false;

  constructor(attempt: Attempt, options: UpstreamOptions, outcome: Outcome) {
    this.method = attempt.method;
    this.url = attempt.path;
    this.headers = attempt.headers;
    this.#attempt = attempt;
    this.#options = options;
    this.#outcome = outcome;
    this.#deadline = new Deadline(options.clock, options.connectTimeout, () =>
      this.failed(this.#connectedAt === undefined ? new PrivatemodeError(...NO_CONNECTION) : noResponse()),
    );
    const { signal } = attempt;
    const aborted = (): void => this.failed(signal.reason);
    this.#aborted = aborted;
    if (signal.aborted) aborted();
    else signal.addEventListener('abort', aborted);
  }

  /** The library asks for errors of what it reads from. */
  on(): this {
    return this; // `pipe` sees those of the body
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
    if (body === undefined) request.end();
    else {
      // A failing body must not leave a request that looks complete, or hangs: pipe() would leave it open.
      body.once('error', (error) => this.failed(error)).pipe(request);
    }
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
    const { clock, firstByteTimeout } = this.#options;
    this.#connectedAt = clock.monotonic();
    this.#deadline.refresh(firstByteTimeout);
    if (!this.#isLong()) return;
    // Anew for each piece of the upload that leaves.
    const left = (): void => this.#deadline.refresh();
    this.#request?.on('drain', left).once('finish', left);
  }

  hasResponse(response: IncomingMessage): void {
    const request = this.#request as ClientRequest;
    if (this.#settled) return void response.destroy();
    this.#settle();
    // A response that is over before the upload is all that will come, so the rest of the upload need not
    // travel.
    if (this.#isLong())
      response.once('end', () => {
        if (!request.writableFinished) request.destroy();
      });
    this.#outcome.resolve({ response, request });
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
      heard: this.#socket !== undefined && this.#socket.bytesRead > this.#readBefore,
      reused: this.#reused,
      age: this.#connectedAt && clock.monotonic() - this.#connectedAt,
      sent: request?.writableFinished === true,
      times: clock.times,
    };
    this.#outcome.reject(upstreamFailure(thrown, state));
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
