import type { ClientRequest, IncomingMessage, OutgoingHttpHeaders } from 'node:http';
import type { Readable } from 'node:stream';
import { PrivatemodeError } from '../errors.ts';
import { createDeadlines } from './deadlines.ts';
import { failureOf } from './upstream-failure.ts';

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

export interface AttemptTimeouts {
  /** ms from the attempt to a usable connection. */
  readonly connectTimeout: number;
  /** ms from the last piece of the upload that left to the response headers. */
  readonly firstByteTimeout: number;
}

export interface RunningAttempt {
  /** Rejects with UpstreamFailure. */
  readonly outcome: Promise<UpstreamResponse>;
  /**
   * What http-proxy-3 takes for the body. It calls pipe() synchronously with the unsent request: the one place to get
   * hold of it (trap 1), and to join the sealed stream to it so that a failing seal destroys it (trap 2).
   */
  readonly body: { pipe(request: ClientRequest): ClientRequest };
  /** Ends it with this cause; nothing happens where it has an outcome. */
  readonly fail: (thrown: unknown) => void;
}

/** The state of one attempt, from before its request exists to the response headers or the first cause of failure. */
export function beginAttempt(attempt: Attempt, timeouts: AttemptTimeouts): RunningAttempt {
  const { promise: outcome, resolve, reject } = Promise.withResolvers<UpstreamResponse>();
  const { signal } = attempt;
  const deadlines = createDeadlines();
  let unsent = attempt.body; // let go of when it has left: the request lives as long as its answer
  let request: ClientRequest | undefined;
  let connectedAt: number | undefined;
  let answered = false;
  let settled = false;

  function settle(): void {
    settled = true;
    deadlines.clear();
    signal.removeEventListener('abort', interrupted);
  }

  // The first cause counts: destroying the request makes it fail once more, with an error that says nothing (trap 3).
  function fail(thrown: unknown): void {
    if (settled) return;
    settle();
    request?.destroy();
    reject(
      failureOf(thrown, {
        answered,
        reused: request?.reusedSocket === true,
        age: connectedAt && performance.now() - connectedAt,
        sent: request?.writableFinished === true,
      }),
    );
  }

  const interrupted = (): void => fail(signal.reason);

  function within(name: string, ms: number, error: () => PrivatemodeError): void {
    if (!settled) deadlines.set(name, ms, () => fail(error()));
  }

  /** Each piece of the upload that has left begins the wait anew. */
  const expectAnswer = (): void => within('answer', timeouts.firstByteTimeout, noAnswer);

  function watchConnection(begun: ClientRequest): void {
    within('connection', timeouts.connectTimeout, noConnection);
    begun.once('socket', (socket) => {
      socket.prependOnceListener('data', () => {
        answered = true;
      });
      const connected = (): void => {
        connectedAt = performance.now();
        deadlines.drop('connection');
        expectAnswer();
        begun.on('drain', expectAnswer);
        begun.once('finish', expectAnswer);
      };
      if (begun.reusedSocket) connected();
      else socket.once('secureConnect', connected);
    });
  }

  function receive(begun: ClientRequest, response: IncomingMessage): void {
    if (settled) {
      response.destroy();
      return;
    }
    settle();
    // An answer that is over before the upload is all there will be: the rest need not travel.
    response.once('end', () => {
      if (!begun.writableFinished) begun.destroy();
    });
    resolve({ response, request: begun });
  }

  if (signal.aborted) fail(signal.reason);
  else signal.addEventListener('abort', interrupted);
  const body = {
    pipe(begun: ClientRequest): ClientRequest {
      request = begun;
      watchConnection(begun);
      begun.once('response', (response) => receive(begun, response));
      begun.once('close', () => fail(new Error('closed without a response')));
      if (unsent === undefined) begun.end();
      else upload(unsent, begun, fail);
      unsent = undefined;
      return begun;
    },
  };
  return { outcome, body, fail };
}

/**
 * Writes the body to the request piece by piece, and ends it when all of it has left. Ended earlier, Node makes an empty write
 * once the last one is done, and the error of a connection that was reset meanwhile goes to that write: the reset would look
 * like an orderly end. (No pipeline() and no Writable: V8 keeps what belongs to one until the next full collection,
 * because Writable's constructor assigns a function literal to a property.)
 */
function upload(body: Readable, request: ClientRequest, failed: (error: Error) => void): void {
  const more = (error?: Error | null): void => {
    if (!error) body.resume();
  };
  body.on('data', (slice: Uint8Array) => {
    body.pause();
    request.write(slice, more);
  });
  body.once('end', () => request.end());
  body.once('error', (error) => {
    failed(error);
    request.destroy(); // where the answer has come already, nothing has failed: but what is left will not be sent
  });
  const broken = (): void => void body.destroy();
  request.once('close', broken);
  body.once('close', () => request.off('close', broken));
}

const noConnection = (): PrivatemodeError =>
  new PrivatemodeError('upstream_connect_timeout', 'no connection to the service in time');

const noAnswer = (): PrivatemodeError =>
  new PrivatemodeError('first_byte_timeout', 'the service did not begin to answer in time');
