/** The encrypted request on its way: one attempt through http-proxy-3, from the Readable to the head of the upstream response. */
import type { EventEmitter } from 'node:events';
import type { ClientRequest, IncomingMessage, OutgoingHttpHeaders, ServerResponse } from 'node:http';
import type { Agent } from 'node:https';
import { Readable } from 'node:stream';
import { ProxyServer } from 'http-proxy-3';
import { PrivatemodeError } from '../errors.ts';
import { urlHost } from './addresses.ts';
import { joinPieces } from './join-pieces.ts';
import { noResponse, upstreamFailure } from './upstream-failure.ts';
import { openedAhead, type WarmConnections } from './warm-connections.ts';

/** The address of the remote API, and how to connect to it. */
interface UpstreamOptions {
  readonly host: string;
  readonly port: number;
  /** ms from the attempt to a usable connection. */
  readonly connectTimeout: number;
  /** ms from the last piece of the upload that left to the response headers. */
  readonly firstByteTimeout: number;
  /** Keeps connections alive; carries the CA bundle and the outbound proxy. */
  readonly agent: Agent;
  /** Opens a connection of its own for every request: the retry after a stale keep-alive connection. */
  readonly freshAgent: Agent;
  /** Are told for how many ms the service says that it keeps an idle connection. */
  readonly connections?: Pick<WarmConnections, 'announce'>;
}

/** One sending of a request; nothing of the application's own head goes out but what stands here. */
export interface Attempt {
  readonly method: string;
  /** Canonical path of the endpoint table, and the allowed query. */
  readonly path: string;
  readonly headers: OutgoingHttpHeaders;
  /** The encrypted body; undefined: none. */
  readonly body: Readable | undefined;
  /** Use a connection of its own. */
  readonly fresh: boolean;
  /** Ends the attempt; a PrivatemodeError as its reason is what the attempt fails with. */
  readonly signal: AbortSignal;
}

export interface UpstreamResponse {
  readonly response: IncomingMessage;
  readonly request: ClientRequest;
}

export type Upstream = ReturnType<typeof createUpstream>;

export function createUpstream(options: UpstreamOptions) {
  // The library switches to a data path of its own (fetch, redirects followed) when this variable is set: no environment
  // variable may change how encrypted bytes travel.
  delete process.env['FORCE_FETCH_PATH'];

  const { host, port } = options;
  const target = { protocol: 'https:', host, hostname: host, port };
  const proxy = new ProxyServer({ target, secure: true, toProxy: true, selfHandleResponse: true });
  proxy.on('proxyReq', (request, req: SentRequest) => req[ATTEMPT]?.connecting(request));
  proxy.on('proxyRes', (response, req: SentRequest) => req[ATTEMPT]?.responded(response));
  const name = urlHost(host);

  return {
    /** As it goes into Host: the port where it is not 443, brackets around IPv6. */
    authority: port === 443 ? name : `${name}:${port}`,
    /**
     * Sends one attempt of the exchange `req`/`res`, and resolves with the response headers. Destroys the upstream request when the
     * application goes away. Rejects with UpstreamFailure. When it returns, `req` has the application's head again.
     */
    send(req: SentRequest, res: ServerResponse, attempt: Attempt): Promise<UpstreamResponse> {
      const running = runAttempt(attempt, options);
      if (attempt.signal.aborted) return running.outcome;
      const body = attempt.body ?? new Readable({ read: endAtOnce });
      body.once('error', running.failed); // pipe() leaves the request open where its source fails
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
      // Both live longer than an attempt. An error of `req` may be on its way, and would end the process if nobody listened.
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
 * The newest attempt of a request, to which the library's events lead. The one before it has none any more: a retry begins when that
 * has lost its connection or has its whole response.
 */
const ATTEMPT = Symbol('attempt');

interface SentRequest extends IncomingMessage {
  [ATTEMPT]?: ReturnType<typeof runAttempt>;
}

function ignore(): void {}

/** `read` of a body that is empty; what Readable.from() makes would stay until a full collection. */
function endAtOnce(this: Readable): void {
  this.push(null);
}

/** Bytes; no event that is encrypted is shorter, so none of them waits for the end of its turn. */
const SHORT_PIECE = 128;
/** They cost little, and a response that breaks off keeps its last words. */
const FEW_PIECES = 16;

/** Seconds in a Keep-Alive header. */
const KEPT_FOR = /\btimeout=(\d{1,6})\b/;

const noConnection = (): PrivatemodeError =>
  new PrivatemodeError('upstream_connect_timeout', 'no connection to the service in time');

/** The state of one attempt, until the head of its response or the first cause of its failure. `outcome` rejects with UpstreamFailure. */
function runAttempt({ signal, body }: Attempt, options: UpstreamOptions) {
  const { host, connectTimeout, firstByteTimeout, connections } = options;
  const { promise: outcome, resolve, reject } = Promise.withResolvers<UpstreamResponse>();
  let request: ClientRequest | undefined;
  let connectedAt: number | undefined;
  let waited = false; // the connection idled before, and may have been closed meanwhile
  let heard = false; // any byte of a response, an informational one included
  let settled = false;
  // Not the timers of the socket: any traffic resets those, also a burst of informational responses.
  let deadline = expireIn(connectTimeout, noConnection);

  function expireIn(ms: number, late: () => PrivatemodeError): NodeJS.Timeout {
    return setTimeout(() => failed(late()), ms);
  }

  function settle(): void {
    settled = true;
    clearTimeout(deadline);
    signal.removeEventListener('abort', aborted);
  }

  /** The first cause counts: destroying the request makes it fail once more, with an error that says nothing. */
  function failed(thrown: unknown): void {
    request?.destroy(); // also where a response came before the body failed: the rest of that is not sent
    if (settled) return;
    settle();
    const age = connectedAt && performance.now() - connectedAt;
    const sent = request?.writableFinished === true;
    reject(upstreamFailure(thrown, { host, heard, reused: waited, age, sent }));
  }
  const aborted = (): void => failed(signal.reason);

  /** Each piece of the upload that has left begins the wait anew. */
  function expectResponse(): void {
    if (settled) return;
    clearTimeout(deadline);
    deadline = expireIn(firstByteTimeout, noResponse);
  }

  function connected(): void {
    connectedAt = performance.now();
    expectResponse();
    request?.on('drain', expectResponse);
    request?.once('finish', expectResponse);
  }

  if (signal.aborted) aborted();
  else signal.addEventListener('abort', aborted);
  return {
    outcome,
    failed,
    /** The request has a socket, which may have to connect yet. */
    connecting(created: ClientRequest): void {
      request = created;
      created.once('close', () => {
        if (!settled) failed(new Error('closed without a response')); // an error costs 9 us of a short request's 620, by its stack
        body?.destroy();
      });
      if (settled) return void created.destroy();
      const { socket } = created;
      socket?.prependOnceListener('data', () => {
        heard = true;
      });
      waited = created.reusedSocket || (socket !== null && openedAhead(socket));
      if (waited || socket?.connecting === false) connected();
      else socket?.once('secureConnect', connected);
    },
    responded(response: IncomingMessage): void {
      const sending = request;
      if (settled || sending === undefined) return void response.destroy();
      settle();
      const hint = KEPT_FOR.exec(String(response.headers['keep-alive']))?.[1];
      if (hint !== undefined) connections?.announce(1000 * Number(hint));
      joinPieces(response, SHORT_PIECE, FEW_PIECES);
      // A response that is over before the upload is all there will be: the rest need not travel.
      response.once('end', () => {
        if (!sending.writableFinished) sending.destroy();
      });
      resolve({ response, request: sending });
    },
  };
}
