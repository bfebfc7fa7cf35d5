/** The decrypting stage as a Node stream, between the event stream of the service and the application. */
import { Readable } from 'node:stream';
import type { Clock, Deadline } from '../clock.ts';
import { asPrivatemodeError, type PrivatemodeError } from '../errors.ts';
import { brokenOff, stalled } from '../network/failures.ts';
import type { Decrypter } from './decrypter.ts';

export interface Source {
  readonly upstream: Readable;
  readonly decrypter: Decrypter;
  readonly clock: Clock;
  readonly deadline: Deadline; // waits for each next byte
  readonly idleTimeout: number; // ms without a byte, after which the response counts as stalled
  /** Gets the size of each chunk that came. A PrivatemodeError that it throws ends the response. */
  readonly heard: (bytes: number) => void;
  readonly decrypted: (bytes: number) => void; // gets the size of what goes on for it, before that does
  /** Called when the response turns out not to be whole; decrypted bytes may still be on their way. */
  readonly failed: (failure: PrivatemodeError) => void;
}

/**
 * Reads `upstream` and is readable as its decrypted bytes, one piece for each network chunk, until the
 * decrypter is `finished`. A stream that errors drops the bytes that it has enqueued. So this one never does:
 * what ends a response early (tampering, reset, stall, missing end, shutdown) is a value, `failure`. It is no
 * Transform: the writable half of one costs a short request as much as the decryption (bench row
 * request_cpu), and keeps what it refers to (docs/architecture.md H25).
 */
export class DecryptStream extends Readable {
  failure: PrivatemodeError | undefined; // to be read when the stream has ended
  #source: Source | undefined; // undefined once the response is over

  constructor(source: Source) {
    super();
    this.#source = source;
    source.deadline.wait(source.idleTimeout, this.#silent);
    source.upstream.on('error', this.#broken);
    source.upstream.on('close', this.#broken);
    source.upstream.on('end', this.#over);
    source.upstream.on('data', this.#take);
  }

  /** Ends the response, early with a failure. */
  stop(failure?: PrivatemodeError): void {
    const source = this.#settle();
    if (source === undefined) return;
    const { upstream, decrypter, clock } = source;
    if (failure === undefined || decrypter.modelError) letGo(upstream, clock);
    else {
      this.failure = failure;
      upstream.destroy();
      source.failed(failure);
    }
    this.push(null);
  }

  /** The reader can take more. Silence of a remote that was paused was the reader's. */
  override _read(): void {
    if (!this.#source?.upstream.isPaused()) return;
    this.#source.deadline.refresh();
    this.#source.upstream.resume();
  }

  /** The application went away, or all has been read. */
  override _destroy(error: Error | null, done: (error?: Error | null) => void): void {
    this.#settle()?.upstream.destroy();
    done(error);
  }

  readonly #take = (chunk: Uint8Array): void => {
    const { upstream, decrypter, deadline, heard, decrypted } = this.#source!;
    deadline.refresh();
    try {
      heard(chunk.length);
      const bytes = decrypter.feed(chunk);
      if (bytes.length > 0) decrypted(bytes.length);
      const hasRoom = bytes.length === 0 || this.push(bytes);
      if (decrypter.failure !== undefined || decrypter.finished) this.stop(decrypter.failure);
      else if (!hasRoom) upstream.pause();
    } catch (thrown) {
      this.stop(asPrivatemodeError(thrown));
    }
  };

  readonly #over = (): void => {
    const { decrypter } = this.#source!;
    decrypter.end();
    this.stop(decrypter.failure);
  };

  readonly #broken = (): void => {
    if (this.#source?.upstream.readableEnded === false) this.stop(brokenOff());
  };

  readonly #silent = (): void => {
    const { upstream, deadline, idleTimeout } = this.#source!;
    if (!upstream.isPaused()) this.stop(stalled());
    else deadline.wait(idleTimeout, this.#silent); // a slow reader keeps the remote waiting
  };

  /** Releases the source; returns it, unless it was released before. */
  #settle(): Source | undefined {
    const source = this.#source;
    this.#source = undefined;
    source?.deadline.rest();
    source?.upstream.off('data', this.#take).off('end', this.#over);
    return source;
  }
}

/** Drops what upstream still sends, for some seconds at most: then the connection can be used again. */
function letGo(upstream: Readable, clock: Clock): void {
  if (upstream.readableEnded || upstream.destroyed) return;
  const cancel = clock.after(clock.times.upstreamLinger, () => upstream.destroy());
  upstream.once('close', cancel);
  upstream.resume();
}
