/**
 * Sends one attempt of a request through http-proxy-3: from its encrypted body, a Readable, to the head of
 * the upstream response.
 */
import type { ClientRequest, IncomingMessage, OutgoingHttpHeaders, ServerResponse } from 'node:http';
import { Readable, type Stream } from 'node:stream';
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
  /** The encrypted body, or a stream of it; undefined: none. */
  readonly body: Uint8Array | Readable | undefined;
  /** Called when all of the upload has left. */
  readonly sent: () => void;
  /** Use a connection of its own. */
  readonly fresh: boolean;
  /** Waits for the connection, then for the head of the response. */
  readonly deadline: Deadline;
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
  proxy.on('error', (error, its) => sendingOf(its).stop(error));

  return {
    /** The value of Host: with the port if that is not 443, with brackets around IPv6. */
    authority: port === 443 ? name : `${name}:${port}`,
    /**
     * Sends one attempt for the application that waits for `res`. `outcome` resolves with the head of the
     * response, or rejects with UpstreamFailure. `stop` ends the attempt, also once it has a response; if the
     * reason is a PrivatemodeError, the attempt fails with it.
     */
    send(res: ServerResponse, attempt: Attempt): Pick<Sending, 'outcome' | 'stop'> {
      const agent = attempt.fresh ? options.freshAgent : options.agent;
      const sending = new Sending(attempt, options);
      agent.dropOutlived();
      try {
        const buffer = sending as unknown as Stream;
        proxy.web(sending as unknown as IncomingMessage, res, { buffer, agent });
      } catch (thrown) {
        sending.stop(thrown);
      }
      return sending;
    },
  };
}

const NO_CONNECTION = ['upstream_connect_timeout', 'no connection to the service in time'] as const;

/**
 * One attempt, until the head of its response or the first cause of its failure. http-proxy-3 takes it for
 * the request of an application and for its body: it reads the first members, and calls `on` for errors, and
 * `pipe` with the request that it sends, before `web` returns and before anything is sent.
 */
class Sending {
  readonly method: string;
  readonly url: string;
  readonly headers: OutgoingHttpHeaders;
  readonly socket = {};
  readonly outcome: Promise<UpstreamResponse>;
  readonly #settled = Promise.withResolvers<UpstreamResponse>();
  readonly #options: UpstreamOptions;
  readonly #deadline: Deadline;
  readonly #sent: () => void;
  #body: Attempt['body'];
  #request: ClientRequest | undefined;
  #socket: TLSSocket | undefined;
  #readBefore = 0; // bytes
  #connectedAt: number | undefined;
  #reused = false; // the connection idled before, and may have been closed meanwhile
  #isSettled = false;

  constructor({ method, path, headers, body, sent, deadline }: Attempt, options: UpstreamOptions) {
    this.method = method;
    this.url = path;
    this.headers = headers;
    this.outcome = this.#settled.promise;
    this.#options = options;
    this.#deadline = deadline;
    this.#sent = sent;
    this.#body = body;
    // Not the timers of the socket: any traffic resets those, also a burst of informational responses.
    deadline.wait(options.connectTimeout, () => this.stop(new PrivatemodeError(...NO_CONNECTION)));
  }

  /** http-proxy-3 listens for errors of the body, which `pipe` handles. */
  on(): void {}

  pipe<Destination>(destination: Destination): Destination {
    const request = destination as unknown as ClientRequest;
    const body = this.#body;
    this.#request = request;
    request.once('close', () => this.#closed());
    request.once('finish', this.#sent);
    // A failing body must not leave a request that looks complete, or hangs: pipe() would leave it open.
    if (body instanceof Readable) body.once('error', (error) => this.stop(error)).pipe(request);
    else request.end(body);
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
    this.#deadline.wait(firstByteTimeout, () => this.stop(noResponse()));
    if (!(this.#body instanceof Readable)) return;
    // Anew for each piece of the upload that leaves, until the wait is somebody else's.
    const left = (): void => {
      if (!this.#isSettled) this.#deadline.refresh();
    };
    this.#request?.on('drain', left).once('finish', left);
  }

  hasResponse(response: IncomingMessage): void {
    const request = this.#request as ClientRequest;
    if (this.#isSettled) return void response.destroy();
    this.#settle();
    // A response that is over before the upload is all that will come: the rest of the upload stays here.
    if (this.#body instanceof Readable)
      response.once('end', () => request.writableFinished || request.destroy());
    this.#settled.resolve({ response, request });
  }

  /**
   * The first cause counts: destroying the request makes it fail once more, with an error that says nothing.
   */
  stop(thrown: unknown): void {
    this.#request?.destroy(); // also if a response came before the body failed: the rest of the body is not sent
    if (this.#isSettled) return;
    this.#settle();
    this.#release();
    const { host, clock } = this.#options;
    const heard = (this.#socket?.bytesRead ?? 0) > this.#readBefore;
    const age = this.#connectedAt && clock.monotonic() - this.#connectedAt;
    const sent = this.#request?.writableFinished === true;
    const failure = { host, heard, reused: this.#reused, age, sent, times: clock.times };
    this.#settled.reject(upstreamFailure(thrown, failure));
  }

  #closed(): void {
    // An error costs 9 us of a short request's 620, because of its stack.
    if (!this.#isSettled) this.stop(new Error('closed without a response'));
    this.#release();
  }

  #settle(): void {
    this.#isSettled = true;
    this.#deadline.rest();
  }

  #release(): void {
    if (this.#body instanceof Readable) this.#body.destroy();
    this.#body = undefined;
  }
}
