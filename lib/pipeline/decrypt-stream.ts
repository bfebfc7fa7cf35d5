/** The decrypting stage as a Node stream, between the event stream of the service and the application. */
import { type Readable, Transform, type TransformCallback } from 'node:stream';
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
  /** Ends the response early; its reason is the failure. */
  readonly signal: AbortSignal;
  /**
   * Get the sizes of what came and of what goes on for it. A PrivatemodeError that `heard` throws ends the
   * response.
   */
  readonly count: { heard(bytes: number): void; decrypted(bytes: number): void };
  /** Called before the first decrypted bytes go on. */
  readonly onFirstBytes?: () => void;
  /** Called when the response turns out not to be whole; decrypted bytes may still be on their way. */
  readonly onFailure?: (failure: PrivatemodeError) => void;
}

interface Source {
  readonly upstream: Readable;
  readonly decrypter: Decrypter;
  readonly options: DecryptOptions;
}

/**
 * Reads `upstream` and is readable as its decrypted bytes, one piece for each network chunk. The stream never
 * errors, because a Transform that errors drops the bytes that it has enqueued. What ends a response early
 * (tampering, reset, stall, missing end, shutdown) is a value, `failure`, and the bytes decrypted before it
 * are delivered. A decrypter that is `finished` ends the stream there.
 */
export class DecryptStream extends Transform {
  /** Why the response is not whole. Read it when the stream has ended. */
  failure: PrivatemodeError | undefined;
  /**
   * Undefined once the response is over: Node keeps a stream that something writes to until a full collection
   * (docs/hazards.md 25).
   */
  #source: Source | undefined;
  /** Whether the reader of this stream has been given the first bytes. */
  #begun = false;
  readonly #idle: Deadline;

  constructor(upstream: Readable, decrypter: Decrypter, options: DecryptOptions) {
    super();
    const { deadline, idleTimeout, signal } = options;
    this.#source = { upstream, decrypter, options };
    this.#idle = deadline.wait(idleTimeout, this.#silent);
    upstream.on('error', this.#broken);
    upstream.on('close', this.#broken);
    signal.addEventListener('abort', this.#aborted);
    if (signal.aborted) this.#aborted();
    else upstream.pipe(this);
  }

  override _transform(chunk: Uint8Array, _encoding: string, done: TransformCallback): void {
    if (this.#source !== undefined) {
      const { decrypter, options } = this.#source;
      this.#idle.refresh();
      try {
        options.count.heard(chunk.length);
        this.#deliver(decrypter.feed(chunk), options);
        if (decrypter.failure !== undefined || decrypter.finished) this.#end(decrypter.failure);
      } catch (thrown) {
        this.#end(asPrivatemodeError(thrown));
      }
    }
    done();
  }

  override _flush(done: TransformCallback): void {
    if (this.#source !== undefined) {
      const { decrypter, options } = this.#source;
      this.#deliver(decrypter.end(), options);
      this.#end(decrypter.failure);
    }
    done();
  }

  /** Runs when the reader can take more. Silence until then was the reader's. */
  override read(size?: number): unknown {
    if (this.writableLength > 0) this.#idle.refresh();
    return super.read(size);
  }

  /** Runs when the application went away, or all has been read. */
  override _destroy(error: Error | null, done: (error?: Error | null) => void): void {
    this.#settle()?.upstream.destroy();
    done(error);
  }

  #deliver(bytes: Uint8Array, { count, onFirstBytes }: DecryptOptions): void {
    if (bytes.length === 0) return;
    if (!this.#begun) onFirstBytes?.();
    this.#begun = true;
    count.decrypted(bytes.length);
    this.push(bytes);
  }

  #end(reason?: PrivatemodeError): void {
    const source = this.#settle();
    if (source === undefined) return;
    const { upstream, decrypter, options } = source;
    upstream.unpipe(this);
    if (reason === undefined || decrypter.modelError) letGo(upstream, options.clock);
    else {
      this.failure = reason;
      upstream.destroy();
      options.onFailure?.(reason);
    }
    this.push(null);
    this.end();
  }

  /** Releases the source; returns it, unless it was released before. */
  #settle(): Source | undefined {
    const source = this.#source;
    this.#source = undefined;
    this.#idle.rest();
    source?.options.signal.removeEventListener('abort', this.#aborted);
    return source;
  }

  readonly #aborted = (): void => this.#end(this.#source?.options.signal.reason as PrivatemodeError);

  readonly #broken = (): void => {
    if (this.#source?.upstream.readableEnded === false) this.#end(brokenOff());
  };

  // Silence does not count while a chunk waits in here for a slow reader.
  readonly #silent = (): void => {
    if (this.writableLength === 0) this.#end(stalled());
    else this.#idle.wait(this.#source!.options.idleTimeout, this.#silent);
  };
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
