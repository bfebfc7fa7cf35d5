import type { Readable } from 'node:stream';
import { PrivatemodeError } from '../errors.ts';
import type { ResponseOpener } from '../pipeline/response-opener.ts';
import type { Tally } from './request-stats.ts';

export interface RelayOptions {
  /** Takes the opened bytes. False: no more for now, until `Relay.resume`. */
  readonly write: (bytes: Uint8Array) => boolean;
  /** ms without a byte from the upstream after which the answer counts as stalled. */
  readonly idleTimeout: number;
  /** Ends the answer early; its reason is the failure. */
  readonly signal: AbortSignal;
  readonly tally: Tally;
  /** Called before the first opened bytes go on. */
  readonly onFirstBytes?: () => void;
}

export interface Relay {
  /** Resolves when nothing more comes: with what ended the answer early, or undefined. Never rejects. */
  readonly ended: Promise<PrivatemodeError | undefined>;
  /** More can be taken. */
  resume(): void;
  /** Nobody wants the rest: lets go of the upstream. */
  stop(): void;
}

/**
 * Gives the upstream's sealed response, opened, to `write` as it arrives. Back-pressure reaches the upstream socket.
 *
 * A failure (tampering, reset, stall, missing end) is a value, not an exception: what was opened before it is still delivered,
 * so that the exchange can tell the client. One write per network chunk; nothing is held back. An opener that is `finished`
 * ends the answer there; what follows is dropped. There is no stream of its own between upstream and client: for a
 * hundred slow streams its states are that many places in memory to visit per token.
 */
export function relay(source: Readable, opener: ResponseOpener, options: RelayOptions): Relay {
  const { tally, write } = options;
  const { promise: ended, resolve } = Promise.withResolvers<PrivatemodeError | undefined>();
  let over = false;
  let waiting = false; // for the receiver
  let heardAt = performance.now();

  // Looked at when it might be over: a timer that is set anew for every chunk costs more than a note of the time.
  let idle = setTimeout(listen, options.idleTimeout);
  function listen(): void {
    // A slow reader has paused the source: the silence is ours, not the service's.
    const left = waiting ? options.idleTimeout : heardAt + options.idleTimeout - performance.now();
    if (left > 0) idle = setTimeout(listen, left);
    else {
      const words = 'the service stopped sending in the middle of the answer';
      end(new PrivatemodeError('stream_idle_timeout', words));
    }
  }
  const interrupted = (): void => end(options.signal.reason as PrivatemodeError);

  function settle(failure?: PrivatemodeError): void {
    over = true;
    clearTimeout(idle);
    options.signal.removeEventListener('abort', interrupted);
    resolve(failure);
  }

  function end(failure?: PrivatemodeError): void {
    if (over) return;
    settle(failure);
    if (failure === undefined) letGo(source);
    else source.destroy();
  }

  function deliver(bytes: Uint8Array): void {
    if (bytes.length === 0) return;
    if (tally.chunks === 0) {
      tally.firstChunkAt = performance.now();
      options.onFirstBytes?.();
    }
    tally.chunks += 1;
    tally.bytes.toClient += bytes.length;
    if (write(bytes) || over) return;
    waiting = true;
    source.pause();
  }

  source.on('data', (chunk: Uint8Array) => {
    if (over) return;
    heardAt = performance.now();
    tally.bytes.fromRemote += chunk.length;
    deliver(opener.feed(chunk));
    if (opener.failure !== undefined) end(opener.failure);
    else if (opener.finished) end();
  });
  let complete = false;
  const finish = (): void => {
    complete = true;
    if (over) return;
    deliver(opener.flush());
    if (opener.pending) setImmediate(finish);
    else end(opener.failure);
  };
  source.on('end', finish);
  const died = (): void => {
    if (complete) return;
    end(
      new PrivatemodeError(
        'stream_unfinished',
        'the connection to the service broke in the middle of the answer',
      ),
    );
  };
  source.on('error', died);
  source.on('close', died);
  if (options.signal.aborted) interrupted();
  else options.signal.addEventListener('abort', interrupted);

  return {
    ended,
    resume() {
      if (!waiting || over) return;
      waiting = false;
      heardAt = performance.now(); // from here on the silence would be the service's
      source.resume();
    },
    stop() {
      if (over) return;
      settle();
      source.destroy();
    },
  };
}

/** ms in which the rest of an answer that is complete must end, for its connection to be used again. */
const LINGER = 5_000;

function letGo(source: Readable): void {
  if (source.readableEnded || source.destroyed) return;
  const impatience = setTimeout(() => source.destroy(), LINGER);
  impatience.unref();
  source.once('close', () => clearTimeout(impatience));
  source.resume();
}

/** Passes bytes on as they are: for endpoints without encryption, and errors that say of themselves that they are plain. */
export const identityOpener: ResponseOpener = {
  feed: (chunk) => chunk,
  flush: () => new Uint8Array(),
  failure: undefined,
  finished: false,
  pending: false,
  usage: undefined,
};
