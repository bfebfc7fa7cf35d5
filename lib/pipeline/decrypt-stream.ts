/** The decrypting stage as a Node stream, between the upstream response and the application. */
import { type Readable, Transform, type TransformCallback } from 'node:stream';
import { PrivatemodeError } from '../errors.ts';
import type { Decrypter } from './decrypter.ts';

export interface DecryptOptions {
  /** ms without a byte from upstream after which the response counts as stalled. */
  readonly idleTimeout: number;
  /** Ends the response early; its reason is the failure. */
  readonly signal: AbortSignal;
  /** Counts what comes and goes; `firstChunkAt` by performance.now(). */
  readonly stats: {
    firstChunkAt: number | undefined;
    chunks: number;
    readonly bytes: { fromRemote: number; toClient: number };
  };
  /** Called before the first decrypted bytes go on. */
  readonly onFirstBytes?: () => void;
  /** Called when the response turns out not to be whole; what was decrypted before may still be on its way. */
  readonly onFailure?: (failure: PrivatemodeError) => void;
}

/** ms in which the rest of a response that is complete must end, for its connection to be used again. */
const LINGER = 5_000;

/**
 * Reads `upstream` and is readable as its decrypted bytes, one piece for each network chunk. It never errors, since a Transform that
 * does drops what it has enqueued: what ends a response early (tampering, reset, stall, missing end, shutdown) is a value, `failure`,
 * and what was decrypted before it is delivered. A decrypter that is `finished` ends the stream there.
 */
export class DecryptStream extends Transform {
  /** Why the response is not whole; to be asked when the stream has ended. */
  failure: PrivatemodeError | undefined;
  readonly #upstream: Readable;
  readonly #decrypter: Decrypter;
  readonly #options: DecryptOptions;
  #over = false;
  #heardAt = performance.now();
  #idle: NodeJS.Timeout;

  constructor(upstream: Readable, decrypter: Decrypter, options: DecryptOptions) {
    super();
    this.#upstream = upstream;
    this.#decrypter = decrypter;
    this.#options = options;
    this.#idle = setTimeout(this.#checkIdle, options.idleTimeout);
    upstream.on('error', this.#broken);
    upstream.on('close', this.#broken);
    // From here on the silence is the service's; before, a slow reader made it wait.
    this.on('drain', () => {
      this.#heardAt = performance.now();
    });
    if (options.signal.aborted) this.#aborted();
    else {
      options.signal.addEventListener('abort', this.#aborted);
      upstream.pipe(this);
    }
  }

  override _transform(chunk: Uint8Array, _encoding: string, done: TransformCallback): void {
    if (!this.#over) {
      this.#heardAt = performance.now();
      this.#options.stats.bytes.fromRemote += chunk.length;
      this.#deliver(this.#decrypter.feed(chunk));
      const { failure, finished } = this.#decrypter;
      if (failure !== undefined || finished) this.#end(failure);
    }
    done();
  }

  override _flush(done: TransformCallback): void {
    if (!this.#over) this.#deliver(this.#decrypter.flush());
    if (!this.#over && this.#decrypter.pending) {
      setImmediate(() => this._flush(done)); // others have their turn
      return;
    }
    this.#end(this.#decrypter.failure);
    done();
  }

  /** The application went away, or all has been read. */
  override _destroy(error: Error | null, done: (error?: Error | null) => void): void {
    if (!this.#over) {
      this.#settle();
      this.#upstream.destroy();
    }
    done(error);
  }

  #deliver(bytes: Uint8Array): void {
    if (bytes.length === 0) return;
    const { stats, onFirstBytes } = this.#options;
    if (stats.chunks === 0) {
      stats.firstChunkAt = performance.now();
      onFirstBytes?.();
    }
    stats.chunks += 1;
    stats.bytes.toClient += bytes.length;
    this.push(bytes);
  }

  #end(reason?: PrivatemodeError): void {
    if (this.#over) return;
    const failure = this.#decrypter.modelError ? undefined : reason;
    this.failure = failure;
    this.#settle();
    this.#upstream.unpipe(this);
    if (failure === undefined) letGo(this.#upstream);
    else {
      this.#upstream.destroy();
      this.#options.onFailure?.(failure);
    }
    this.push(null);
    this.end();
  }

  #settle(): void {
    this.#over = true;
    clearTimeout(this.#idle);
    this.#options.signal.removeEventListener('abort', this.#aborted);
  }

  readonly #aborted = (): void => this.#end(this.#options.signal.reason as PrivatemodeError);

  readonly #broken = (): void => {
    if (this.#upstream.readableEnded) return;
    const message = 'the connection to the service broke in the middle of the answer';
    this.#end(new PrivatemodeError('stream_unfinished', message));
  };

  // Looked at when it might be over: a timer that is set anew for every chunk costs more than a note of the time.
  readonly #checkIdle = (): void => {
    const { idleTimeout } = this.#options;
    const left = this.writableNeedDrain ? idleTimeout : this.#heardAt + idleTimeout - performance.now();
    const message = 'the service stopped sending in the middle of the answer';
    if (left > 0) this.#idle = setTimeout(this.#checkIdle, left);
    else this.#end(new PrivatemodeError('stream_idle_timeout', message));
  };
}

function letGo(upstream: Readable): void {
  if (upstream.readableEnded || upstream.destroyed) return;
  const impatience = setTimeout(() => upstream.destroy(), LINGER).unref();
  upstream.once('close', () => clearTimeout(impatience));
  upstream.resume();
}

/** Passes bytes on as they are: for endpoints without encryption, and errors that say of themselves that they are plain. */
export const UNENCRYPTED: Decrypter = {
  feed: (chunk) => chunk,
  flush: () => new Uint8Array(),
  failure: undefined,
  finished: false,
  pending: false,
  usage: undefined,
};
