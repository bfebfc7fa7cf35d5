/** The decrypting stage as a Node stream, between the upstream response and the application. */
import { type Readable, Transform, type TransformCallback } from 'node:stream';
import { asPrivatemodeError, type PrivatemodeError } from '../errors.ts';
import { brokenOff, LINGER, stalled } from '../network/upstream-failure.ts';
import type { Decrypter } from './decrypter.ts';

export interface DecryptOptions {
  /** ms without a byte from upstream after which the response counts as stalled. */
  readonly idleTimeout: number;
  /** Ends the response early; its reason is the failure. */
  readonly signal: AbortSignal;
  /** Is told how many bytes came from upstream, and as how many a chunk of them goes on. */
  readonly count: { heard(bytes: number): void; decrypted(bytes: number): void };
  /** Waits until there is memory for so many more bytes from upstream; a rejection ends the response. */
  readonly room?: ((bytes: number) => Promise<void> | undefined) | undefined;
  /** Called before the first decrypted bytes go on. */
  readonly onFirstBytes?: () => void;
  /** Called when the response turns out not to be whole; what was decrypted before may still be on its way. */
  readonly onFailure?: (failure: PrivatemodeError) => void;
}

/** The response, its decrypter, and the options. */
interface Source {
  readonly upstream: Readable;
  readonly decrypter: Decrypter;
  readonly options: DecryptOptions;
}

/** Bytes that are handed on at once: a client takes larger ones in parts, and has to have its time for each. */
const LARGEST_PIECE = 64 * 1024;

/**
 * Reads `upstream` and is readable as its decrypted bytes, one piece of up to 64 KiB for each network chunk. It never errors, since a Transform that
 * does drops what it has enqueued: what ends a response early (tampering, reset, stall, missing end, shutdown) is a value, `failure`,
 * and what was decrypted before it is delivered. A decrypter that is `finished` ends the stream there.
 */
export class DecryptStream extends Transform {
  /** Why the response is not whole; to be asked when the stream has ended. */
  failure: PrivatemodeError | undefined;
  /** Undefined once the response is over: Node keeps a stream that is written to until a full collection (docs/hazards.md 25). */
  #source: Source | undefined;
  #heardAt = performance.now();
  /** The first bytes have gone on. */
  #begun = false;
  /** For room: the silence is ours. */
  #waits = false;
  #idle: NodeJS.Timeout;

  constructor(upstream: Readable, decrypter: Decrypter, options: DecryptOptions) {
    super();
    this.#source = { upstream, decrypter, options };
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
    const room = this.#source?.options.room?.(chunk.length);
    if (room === undefined) {
      this.#take(chunk);
      done();
      return;
    }
    this.#waits = true;
    room
      .then(
        () => this.#take(chunk),
        (thrown: unknown) => this.#end(asPrivatemodeError(thrown)),
      )
      .then(() => {
        this.#waits = false;
        this.#heardAt = performance.now();
        done();
      });
  }

  #take(chunk: Uint8Array): void {
    if (this.#source === undefined) return;
    const { decrypter, options } = this.#source;
    this.#heardAt = performance.now();
    options.count.heard(chunk.length);
    this.#deliver(decrypter.feed(chunk), options);
    const { failure, finished } = decrypter;
    if (failure !== undefined || finished) this.#end(failure);
  }

  override _flush(done: TransformCallback): void {
    this.#finish(done);
  }

  #finish(done: TransformCallback): void {
    if (this.#source !== undefined) {
      const { decrypter, options } = this.#source;
      this.#deliver(decrypter.flush(), options);
      if (decrypter.pending) {
        setImmediate(() => this.#finish(done)); // others have their turn
        return;
      }
      this.#end(decrypter.failure);
    }
    done();
  }

  /** The application went away, or all has been read. */
  override _destroy(error: Error | null, done: (error?: Error | null) => void): void {
    this.#settle()?.upstream.destroy();
    done(error);
  }

  #deliver(bytes: Uint8Array, { count, onFirstBytes }: DecryptOptions): void {
    if (bytes.length === 0) return;
    if (!this.#begun) onFirstBytes?.();
    this.#begun = true;
    count.decrypted(bytes.length);
    for (let at = 0; at < bytes.length; at += LARGEST_PIECE)
      this.push(bytes.subarray(at, at + LARGEST_PIECE));
  }

  #end(reason?: PrivatemodeError): void {
    const source = this.#settle();
    if (source === undefined) return;
    const { upstream, decrypter, options } = source;
    const failure = decrypter.modelError ? undefined : reason;
    this.failure = failure;
    upstream.unpipe(this);
    if (failure === undefined) letGo(upstream);
    else {
      upstream.destroy();
      options.onFailure?.(failure);
    }
    this.push(null);
    this.end();
  }

  /** Releases the source; returns it, unless it was released before. */
  #settle(): Source | undefined {
    const source = this.#source;
    this.#source = undefined;
    clearTimeout(this.#idle);
    source?.options.signal.removeEventListener('abort', this.#aborted);
    return source;
  }

  readonly #aborted = (): void => this.#end(this.#source?.options.signal.reason as PrivatemodeError);

  readonly #broken = (): void => {
    if (this.#source === undefined || this.#source.upstream.readableEnded) return;
    this.#end(brokenOff());
  };

  // Looked at when it might be over: a timer that is set anew for every chunk costs more than a note of the time.
  readonly #checkIdle = (): void => {
    if (this.#source === undefined) return;
    const { idleTimeout } = this.#source.options;
    const left =
      this.#waits || this.writableNeedDrain ? idleTimeout : this.#heardAt + idleTimeout - performance.now();
    if (left > 0) this.#idle = setTimeout(this.#checkIdle, left);
    else this.#end(stalled());
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
