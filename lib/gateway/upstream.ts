import type { ClientRequest, IncomingMessage, OutgoingHttpHeaders, ServerResponse } from 'node:http';
import type { Agent } from 'node:https';
import { pipeline, type Readable } from 'node:stream';
import type { TLSSocket } from 'node:tls';
import { ProxyServer } from 'http-proxy-3';
import { PrivatemodeError } from '../errors.ts';
import { classifyTransportError } from './transport-errors.ts';

/** Where the remote API is, and how to get there. */
export interface UpstreamOptions {
  readonly host: string;
  readonly port: number;
  /** Keeps connections alive; carries the CA bundle and the outbound proxy. */
  readonly agent: Agent;
  /** Opens a connection of its own for every request: the retry after a stale keep-alive connection. */
  readonly freshAgent: Agent;
  /** ms from the attempt to a usable connection. */
  readonly connectTimeout: number;
  /** ms from the end of the upload to the response headers; wall clock. */
  readonly firstByteTimeout: number;
}

/** One attempt: everything is sealed already, nothing of the client's own request goes out. */
export interface Attempt {
  readonly method: string;
  /** Canonical path of the endpoint table, and the raw query. */
  readonly path: string;
  readonly headers: OutgoingHttpHeaders;
  readonly body: Readable | undefined;
  readonly fresh: boolean;
  /** Ends the attempt; a PrivatemodeError as its reason is what the attempt fails with. */
  readonly signal: AbortSignal;
}

export interface UpstreamResponse {
  readonly response: IncomingMessage;
  readonly request: ClientRequest;
}

/** Why an attempt failed before any response header. */
export class UpstreamFailure extends Error {
  readonly error: PrivatemodeError;
  /** The row of the retry table this failure matches, if any (node-level causes only). */
  readonly retry: 'connection_reset' | 'stale_connection' | undefined;

  constructor(error: PrivatemodeError, retry: UpstreamFailure['retry']) {
    super(error.message, { cause: error });
    this.error = error;
    this.retry = retry;
  }
}

export interface Upstream {
  /**
   * Sends one attempt for the client's `req`/`res` pair, resolving with the response headers. Rejects with UpstreamFailure.
   * The request goes out through http-proxy-3, which also destroys it when the client goes away.
   */
  send(req: IncomingMessage, res: ServerResponse, attempt: Attempt): Promise<UpstreamResponse>;
}

export function createUpstream(options: UpstreamOptions): Upstream {
  // The library switches to a data path of its own (fetch, redirects followed) when this variable is set;
  // no environment variable may change how sealed bytes travel.
  delete process.env['FORCE_FETCH_PATH'];

  const target = { protocol: 'https:', host: options.host, hostname: options.host, port: options.port };
  const proxy = new ProxyServer({ target, secure: true, toProxy: true, selfHandleResponse: true });
  const hostHeader = options.port === 443 ? options.host : `${options.host}:${options.port}`;

  return {
    send(req, res, attempt) {
      const { promise, resolve, reject } = Promise.withResolvers<UpstreamResponse>();
      let request: ClientRequest | undefined;
      let settled = false;
      let cause: PrivatemodeError | undefined; // a local cause, recorded before anything is destroyed
      const timers = createTimers();

      const settle = (): void => {
        settled = true;
        timers.clear();
        attempt.signal.removeEventListener('abort', interrupted);
      };
      const fail = (thrown: unknown): void => {
        if (settled) return;
        settle();
        request?.destroy();
        reject(failureOf(thrown, cause, request, res));
      };
      const destroyWith = (error: PrivatemodeError): void => {
        cause ??= error;
        fail(error);
      };

      const interrupted = (): void => {
        const { reason } = attempt.signal;
        if (reason instanceof PrivatemodeError) destroyWith(reason);
        else fail(reason);
      };
      attempt.signal.addEventListener('abort', interrupted);

      // http-proxy-3 calls pipe() synchronously with the unsent request: the one place to get hold of it,
      // and to join the sealed stream to it so that a failing seal destroys it (no half-sent request).
      const buffer = {
        pipe(destination: ClientRequest): ClientRequest {
          request = destination;
          watchConnect(destination, timers, options.connectTimeout, destroyWith);
          destination.once('response', (response) => {
            if (settled) {
              response.destroy();
              return;
            }
            settle();
            resolve({ response, request: destination });
          });
          destination.once('close', () => fail(new Error('closed without a response')));
          destination.once('finish', () => {
            timers.set('first_byte', options.firstByteTimeout, () =>
              destroyWith(
                new PrivatemodeError('first_byte_timeout', 'the service did not begin to answer in time'),
              ),
            );
          });
          if (attempt.body === undefined) destination.end();
          else {
            pipeline(attempt.body, destination, (error) => {
              if (error instanceof PrivatemodeError) destroyWith(error);
            });
          }
          return destination;
        },
      };

      req.headers = { ...attempt.headers, host: hostHeader } as IncomingMessage['headers'];
      req.url = attempt.path;
      try {
        const agent = attempt.fresh ? options.freshAgent : options.agent;
        proxy.web(req, res, { buffer: buffer as never, agent, method: attempt.method }, fail);
      } catch (thrown) {
        fail(thrown);
      }
      return promise;
    },
  };
}

function failureOf(
  thrown: unknown,
  cause: PrivatemodeError | undefined,
  request: ClientRequest | undefined,
  res: ServerResponse,
): UpstreamFailure {
  if (cause !== undefined) return new UpstreamFailure(cause, undefined);
  const { error, connectionReset } = classifyTransportError(thrown);
  const clientAlive = !res.destroyed;
  if (!clientAlive) return new UpstreamFailure(error, undefined);
  // A connection that the other side closed while it idled in our pool fails before any response byte.
  if (request?.reusedSocket === true && error.blame !== 'operator') {
    return new UpstreamFailure(error, 'stale_connection');
  }
  return new UpstreamFailure(error, connectionReset ? 'connection_reset' : undefined);
}

function watchConnect(
  request: ClientRequest,
  timers: Timers,
  connectTimeout: number,
  destroyWith: (error: PrivatemodeError) => void,
): void {
  timers.set('connect', connectTimeout, () =>
    destroyWith(new PrivatemodeError('upstream_connect_timeout', 'no connection to the service in time')),
  );
  request.once('socket', (socket) => {
    const connected = (): void => timers.drop('connect');
    if (request.reusedSocket || (socket as TLSSocket).getProtocol?.()) connected();
    else socket.once('secureConnect', connected);
  });
}

interface Timers {
  set(name: string, ms: number, expired: () => void): void;
  drop(name: string): void;
  clear(): void;
}

/** Wall-clock timers by name: bursts of informational responses must not reset them (they do reset socket timers). */
function createTimers(): Timers {
  const timers = new Map<string, NodeJS.Timeout>();
  return {
    set(name, ms, expired) {
      clearTimeout(timers.get(name));
      timers.set(name, setTimeout(expired, ms));
    },
    drop(name) {
      clearTimeout(timers.get(name));
      timers.delete(name);
    },
    clear() {
      for (const timer of timers.values()) clearTimeout(timer);
      timers.clear();
    },
  };
}
