import { Readable } from 'node:stream';
import { PrivatemodeError } from '../errors.ts';
import type { ResponseOpener } from '../pipeline/response-opener.ts';
import type { Tally } from './tally.ts';

export interface OpenedResponse extends Readable {
  /** Why the response ended early; set before the stream ends. A stream that failed ends like any other. */
  failure: PrivatemodeError | undefined;
}

export interface RelayOptions {
  /** ms without a byte from the upstream after which the answer counts as stalled. */
  readonly idleTimeout: number;
  /** Ends the answer early; its reason is the failure. */
  readonly signal: AbortSignal;
  readonly tally: Tally;
  /** Called before the first opened bytes go on. */
  readonly onFirstBytes?: () => void;
}

/**
 * The upstream's sealed response as a stream of opened bytes. Back-pressure reaches the upstream socket.
 *
 * A failure (tampering, reset, stall, missing end) is a value, not a stream error: what was opened before it is still
 * delivered, then the stream ends and `failure` says why, so that the exchange can tell the client. One opened chunk per
 * network chunk; nothing is held back. An opener that is `finished` ends the stream there; what follows is dropped.
 */
export function openedResponse(
  source: Readable,
  opener: ResponseOpener,
  options: RelayOptions,
): OpenedResponse {
  const { tally } = options;
  let ended = false;
  let waiting = source.isPaused(); // for the reader
  let heardAt = performance.now();
  const opened = new Readable({
    read() {
      if (!waiting) return;
      waiting = false;
      heardAt = performance.now(); // from here on the silence would be the service's
      source.resume();
    },
    destroy(error, callback) {
      if (!ended) {
        stop();
        source.destroy();
      }
      callback(error);
    },
  }) as OpenedResponse;
  opened.failure = undefined;

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

  function stop(): void {
    ended = true;
    clearTimeout(idle);
    options.signal.removeEventListener('abort', interrupted);
  }

  function end(failure?: PrivatemodeError): void {
    if (ended) return;
    stop();
    opened.failure = failure;
    if (failure === undefined) letGo(source);
    else source.destroy();
    opened.push(null);
  }

  function deliver(bytes: Uint8Array): void {
    if (bytes.length === 0) return;
    if (tally.chunks === 0) {
      tally.firstChunkAt = performance.now();
      options.onFirstBytes?.();
    }
    tally.chunks += 1;
    tally.bytes.toClient += bytes.length;
    if (opened.push(bytes)) return;
    waiting = true;
    source.pause();
  }

  source.on('data', (chunk: Uint8Array) => {
    if (ended) return;
    heardAt = performance.now();
    tally.bytes.fromRemote += chunk.length;
    deliver(opener.feed(chunk));
    if (opener.failure !== undefined) end(opener.failure);
    else if (opener.finished) end();
  });
  source.on('end', () => {
    if (ended) return;
    deliver(opener.flush());
    end(opener.failure);
  });
  const died = (): void => {
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
  return opened;
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
};
