/** The decrypting stage as a Node stream, between the event stream of the service and the application. */
import { Readable } from 'node:stream';
import type { Clock, Deadline } from '../clock.ts';
import { asPrivatemodeError, type PrivatemodeError } from '../errors.ts';
import { brokenOff, stalled } from '../network/failures.ts';
import type { Decrypter } from './decrypter.ts';

export interface DecryptOptions {
  /** ms without a byte from upstream after which the response counts as stalled. */
  readonly idleTimeout: number;
  /** Waits for each next byte. */
  readonly deadline: Deadline;
  readonly clock: Clock;
  /** Gets the size of each chunk that came. A PrivatemodeError that it throws ends the response. */
  readonly heard: (bytes: number) => void;
  /** Gets the size of what goes on for it, before that does. */
  readonly decrypted: (bytes: number) => void;
  /** Called when the response turns out not to be whole; decrypted bytes may still be on their way. */
  readonly failed: (failure: PrivatemodeError) => void;
}

interface Source {
  readonly upstream: Readable;
  readonly decrypter: Decrypter;
  readonly options: DecryptOptions;
}

/**
 * Reads `upstream` and is readable as its decrypted bytes, one piece for each network chunk. The stream never
 * errors, because a stream that errors drops the bytes that it has enqueued. What ends a response early
 * (tampering, reset, stall, missing end, shutdown) is a value, `failure`, and the bytes decrypted before it
 * are delivered. A decrypter that is `finished` ends the stream there. It is no Transform: the writable half
 * of one costs a short request as much as the decryption (bench row request_cpu), and keeps all that it
 * refers to until a full collection (docs/hazards.md 25).
 */
export class DecryptStream extends Readable {
  /** Why the response is not whole. Read it when the stream has ended. */
  failure: PrivatemodeError | undefined;
  /** Undefined once the response is over. */
  #source: Source | undefined;
  readonly #idle: Deadline;

  constructor(upstream: Readable, decrypter: Decrypter, options: DecryptOptions) {
    super();
    this.#source = { upstream, decrypter, options };
    this.#idle = options.deadline.wait(options.idleTimeout, this.#silent);
    upstream.on('error', this.#broken);
    upstream.on('close', this.#broken);
    upstream.on('end', this.#over);
    upstream.on('data', this.#take);
  }

  /** Ends the response early, with this failure. */
  stop(failure: PrivatemodeError): void {
    this.#end(failure);
  }

  /** Runs when the reader can take more. If the remote was paused, the silence until then was the reader's. */
  override _read(): void {
    const { upstream } = this.#source ?? {};
    if (!upstream?.isPaused()) return;
    this.#idle.refresh();
    upstream.resume();
  }

  /** Runs when the application went away, or all has been read. */
  override _destroy(error: Error | null, done: (error?: Error | null) => void): void {
    this.#settle()?.upstream.destroy();
    done(error);
  }

  readonly #take = (chunk: Uint8Array): void => {
    const { upstream, decrypter, options } = this.#source as Source;
    this.#idle.refresh();
    try {
      options.heard(chunk.length);
      const hasRoom = this.#deliver(decrypter.feed(chunk), options);
      if (decrypter.failure !== undefined || decrypter.finished) this.#end(decrypter.failure);
      else if (!hasRoom) upstream.pause();
    } catch (thrown) {
      this.#end(asPrivatemodeError(thrown));
    }
  };

  readonly #over = (): void => {
    const { decrypter, options } = this.#source as Source;
    this.#deliver(decrypter.end(), options);
    this.#end(decrypter.failure);
  };

  readonly #broken = (): void => {
    if (this.#source?.upstream.readableEnded === false) this.#end(brokenOff());
  };

  // Silence does not count while a slow reader keeps the remote waiting.
  readonly #silent = (): void => {
    const { upstream, options } = this.#source as Source;
    if (upstream.isPaused()) this.#idle.wait(options.idleTimeout, this.#silent);
    else this.#end(stalled());
  };

  /** Returns whether the reader can take more. */
  #deliver(bytes: Uint8Array, { decrypted }: DecryptOptions): boolean {
    if (bytes.length === 0) return true;
    decrypted(bytes.length);
    return this.push(bytes);
  }

  #end(reason?: PrivatemodeError): void {
    const source = this.#settle();
    if (source === undefined) return;
    const { upstream, decrypter, options } = source;
    if (reason === undefined || decrypter.modelError) letGo(upstream, options.clock);
    else {
      this.failure = reason;
      upstream.destroy();
      options.failed(reason);
    }
    this.push(null);
  }

  /** Releases the source; returns it, unless it was released before. */
  #settle(): Source | undefined {
    const source = this.#source;
    this.#source = undefined;
    this.#idle.rest();
    source?.upstream.off('data', this.#take).off('end', this.#over);
    return source;
  }
}

/** Drops what upstream still sends, for some seconds at most: then the connection can be used again. */
function letGo(upstream: Readable, clock: Clock): void {
  if (upstream.readableEnded || upstream.destroyed) return;
  upstream.once(
    'close',
    clock.after(clock.times.upstreamLinger, () => upstream.destroy()),
  );
  upstream.resume();
}
