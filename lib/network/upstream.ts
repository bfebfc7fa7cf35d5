/**
 * Sends one attempt of a request through http-proxy-3: from its encrypted body, a Readable, to the head of
 * the upstream response.
 */
import type { EventEmitter } from 'node:events';
import type { ClientRequest, IncomingMessage, OutgoingHttpHeaders, ServerResponse } from 'node:http';
import type { Agent } from 'node:https';
import { Readable } from 'node:stream';
import type { TLSSocket } from 'node:tls';
import { ProxyServer } from 'http-proxy-3';
import type { Clock } from '../clock.ts';
import { PrivatemodeError } from '../errors.ts';
import { urlHost } from './addresses.ts';
import { joinPieces } from './join-pieces.ts';
import { noResponse, upstreamFailure } from './upstream-failure.ts';
import { openedAhead, type WarmConnections } from './warm-connections.ts';

/** The address of the remote API, and how to connect to it. */
interface UpstreamOptions {
  readonly host: string;
  readonly port: number;
  /** ms from the start of the attempt to a usable connection, its TLS handshake included. */
  readonly connectTimeout: number;
  /** ms from the last piece of the upload that left until the response headers come. */
  readonly firstByteTimeout: number;
  /** Keeps connections alive; carries the CA bundle and the outbound proxy. */
  readonly agent: Agent;
  /** Opens a connection of its own for every request: the retry after a stale keep-alive connection. */
  readonly freshAgent: Agent;
  readonly clock: Clock;
  /** Those of `agent`. `announce` gets the ms for which the service says that it keeps an idle connection. */
  readonly connections?: Pick<WarmConnections, 'announce' | 'dropOutlived'>;
}

/** What one attempt sends. Nothing else of the application's own head goes out. */
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
  proxy.on('proxyReq', (request, req: SentRequest) => req[ATTEMPT]?.connecting(request));
  proxy.on('proxyRes', (response, req: SentRequest) => req[ATTEMPT]?.responded(response));
  const name = urlHost(host);

  return {
    /** The value of Host: with the port if that is not 443, with brackets around IPv6. */
    authority: port === 443 ? name : `${name}:${port}`,
    /**
     * Sends one attempt of the exchange `req`/`res`, and resolves with the response headers. Destroys the
     * upstream request when the application goes away. Rejects with UpstreamFailure. When it returns, `req`
     * has the application's head again.
     */
    send(req: SentRequest, res: ServerResponse, attempt: Attempt): Promise<UpstreamResponse> {
      const running = runAttempt(attempt, options);
      if (attempt.signal.aborted) return running.outcome;
      const body = attempt.body ?? new Readable({ read: endAtOnce });
      body.once('error', running.failed); // pipe() leaves the request open if its source fails
      options.connections?.dropOutlived();
      const agent = attempt.fresh ? options.freshAgent : options.agent;
      const removals: (() => void)[] = [];
      function note(this: EventEmitter, event: string, listener: () => void): void {
        removals.push(() => this.off(event, listener));
      }
      for (const each of [req, res]) each.on('newListener', note);
      const { method, url, headers } = req;
      Object.assign(req, { method: attempt.method, url: attempt.path, headers: attempt.headers });
      req[ATTEMPT] = running;
      try {
        proxy.web(req, res, { buffer: body, agent }, running.failed); // copies the head before it returns
      } catch (thrown) {
        running.failed(thrown);
      } finally {
        Object.assign(req, { method, url, headers });
        for (const each of [req, res]) each.off('newListener', note);
      }
      // `req` and `res` live longer than an attempt, so its listeners are removed. An error of `req` may be
      // on its way, and would end the process if nobody listened.
      const over = (): void => {
        req.off('error', ignore).on('error', ignore);
        for (const remove of removals) remove();
      };
      running.outcome.then(({ response }) => response.once('close', over), over);
      return running.outcome;
    },
  };
}

/**
 * Leads the library's events from a request to its newest attempt. The attempt before has no more events: a
 * retry begins when that attempt has lost its connection or has its whole response.
 */
const ATTEMPT = Symbol('attempt');

interface SentRequest extends IncomingMessage {
  [ATTEMPT]?: ReturnType<typeof runAttempt>;
}

function ignore(): void {}

/** The `read` of an empty body. A stream of Readable.from() would stay in memory until a full collection. */
function endAtOnce(this: Readable): void {
  this.push(null);
}

/** Bytes. No encrypted event is shorter, so none of them waits for the end of its turn of the event loop. */
const SHORT_PIECE = 128;
/**
 * Short pieces of a turn that pass as they come. They cost little, and the last bytes of a response that
 * breaks off are not lost.
 */
const FEW_PIECES = 16;

/** Seconds in a Keep-Alive header. */
const KEPT_FOR = /\btimeout=(\d{1,6})\b/;

const noConnection = (): PrivatemodeError =>
  new PrivatemodeError('upstream_connect_timeout', 'no connection to the service in time');

/**
 * The state of one attempt, until the head of its response or the first cause of its failure. `outcome`
 * rejects with UpstreamFailure.
 */
function runAttempt({ signal, body }: Attempt, options: UpstreamOptions) {
  const { host, connectTimeout, firstByteTimeout, clock, connections } = options;
  const { promise: outcome, resolve, reject } = Promise.withResolvers<UpstreamResponse>();
  let request: ClientRequest | undefined;
  let connectedAt: number | undefined;
  let waited = false; // the connection idled before, and may have been closed meanwhile
  let heard = false; // any byte of a response, an informational one included
  let settled = false;
  // Not the timers of the socket: any traffic resets those, also a burst of informational responses.
  let endDeadline = expireIn(connectTimeout, noConnection);

  function expireIn(ms: number, late: () => PrivatemodeError): () => void {
    return clock.after(ms, () => failed(late()), 'waiting');
  }

  function settle(): void {
    settled = true;
    endDeadline();
    signal.removeEventListener('abort', aborted);
  }

  /**
   * The first cause counts: destroying the request makes it fail once more, with an error that says nothing.
   */
  function failed(thrown: unknown): void {
    request?.destroy(); // also if a response came before the body failed: the rest of the body is not sent
    if (settled) return;
    settle();
    const age = connectedAt && clock.monotonic() - connectedAt;
    const sent = request?.writableFinished === true;
    reject(upstreamFailure(thrown, { host, heard, reused: waited, age, sent, times: clock.times }));
  }
  const aborted = (): void => failed(signal.reason);

  /** Begins the wait for the response anew; called for each piece of the upload that has left. */
  function expectResponse(): void {
    if (settled) return;
    endDeadline();
    endDeadline = expireIn(firstByteTimeout, noResponse);
  }

  function connected(): void {
    connectedAt = clock.monotonic();
    expectResponse();
    request?.on('drain', expectResponse);
    request?.once('finish', expectResponse);
  }

  if (signal.aborted) aborted();
  else signal.addEventListener('abort', aborted);
  return {
    outcome,
    failed,
    /** Called when the request has a socket, which may still have to connect. */
    connecting(created: ClientRequest): void {
      request = created;
      created.once('close', () => {
        // An error costs 9 us of a short request's 620, because of its stack.
        if (!settled) failed(new Error('closed without a response'));
        body?.destroy();
      });
      if (settled) return void created.destroy();
      const { socket } = created;
      socket?.prependOnceListener('data', () => {
        heard = true;
      });
      // Behind an outbound proxy a socket is connected before its handshake begins, and may even count as
      // reused by then (docs/hazards.md 40).
      if (!(socket as TLSSocket | null)?.authorized) return void socket?.once('secureConnect', connected);
      waited = created.reusedSocket || openedAhead(socket as TLSSocket);
      connected();
    },
    responded(response: IncomingMessage): void {
      const sending = request;
      if (settled || sending === undefined) return void response.destroy();
      settle();
      const hint = KEPT_FOR.exec(String(response.headers['keep-alive']))?.[1];
      if (hint !== undefined) connections?.announce(1000 * Number(hint));
      joinPieces(response, SHORT_PIECE, FEW_PIECES);
      // A response that is over before the upload is all that will come, so the rest of the upload need not
      // travel.
      response.once('end', () => {
        if (!sending.writableFinished) sending.destroy();
      });
      resolve({ response, request: sending });
    },
  };
}
