/** The decrypting stage as a Node stream, between the upstream response and the application. */
import { type Readable, Transform, type TransformCallback } from 'node:stream';
import type { Clock } from '../clock.ts';
import { asPrivatemodeError, type PrivatemodeError } from '../errors.ts';
import { brokenOff, stalled } from '../network/failures.ts';
import type { Decrypter } from './decrypter.ts';
import { piecesOf } from './pieces.ts';

export interface DecryptOptions {
  /** ms without a byte from upstream after which the response counts as stalled. */
  readonly idleTimeout: number;
  readonly clock: Clock;
  /** Ends the response early; its reason is the failure. */
  readonly signal: AbortSignal;
  /**
   * `heard` gets the number of bytes that came from upstream, `decrypted` the number that go on for a chunk
   * of them.
   */
  readonly count: { heard(bytes: number): void; decrypted(bytes: number): void };
  /**
   * Waits until there is memory for that many more bytes from upstream; undefined if there is already. A
   * rejection ends the response.
   */
  readonly room?: ((bytes: number) => Promise<void> | undefined) | undefined;
  /** Called before the first decrypted bytes go on. */
  readonly onFirstBytes?: () => void;
  /**
   * Called when the response turns out not to be whole; what was decrypted before may still be on its way.
   */
  readonly onFailure?: (failure: PrivatemodeError) => void;
}

/** The response, its decrypter, and the options. */
interface Source {
  readonly upstream: Readable;
  readonly decrypter: Decrypter;
  readonly options: DecryptOptions;
}

/**
 * Reads `upstream` and is readable as its decrypted bytes, in pieces of up to 64 KiB for each network chunk.
 * The stream never errors, because a Transform that errors drops the bytes that it has enqueued. What ends a
 * response early (tampering, reset, stall, missing end, shutdown) is a value, `failure`, and the bytes
 * decrypted before it are delivered. A decrypter that is `finished` ends the stream there.
 */
export class DecryptStream extends Transform {
  /** Why the response is not whole. Read it when the stream has ended. */
  failure: PrivatemodeError | undefined;
  /**
   * Undefined once the response is over: Node keeps a stream that something writes to until a full collection
   * (docs/hazards.md 25).
   */
  #source: Source | undefined;
  #heardAt: number;
  readonly #clock: Clock;
  /** Whether the reader of this stream has been given the first bytes. */
  #begun = false;
  #endIdle: () => void;
  #lastLook: NodeJS.Immediate | undefined;

  constructor(upstream: Readable, decrypter: Decrypter, options: DecryptOptions) {
    super();
    this.#source = { upstream, decrypter, options };
    this.#clock = options.clock;
    this.#heardAt = this.#clock.monotonic();
    this.#endIdle = this.#clock.after(options.idleTimeout, this.#checkIdle, 'waiting');
    upstream.on('error', this.#broken);
    upstream.on('close', this.#broken);
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
    room
      .then(
        () => this.#take(chunk),
        (thrown: unknown) => this.#end(asPrivatemodeError(thrown)),
      )
      .then(() => {
        this.#heardAt = this.#clock.monotonic();
        done();
      });
  }

  /** Runs when the reader can take more. Silence until then was the reader's. */
  override read(size?: number): unknown {
    if (this.writableLength > 0) this.#heardAt = this.#clock.monotonic();
    return super.read(size);
  }

  #take(chunk: Uint8Array): void {
    if (this.#source === undefined) return;
    const { decrypter, options } = this.#source;
    this.#heardAt = this.#clock.monotonic();
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
    for (const piece of piecesOf(bytes)) this.push(piece);
  }

  #end(reason?: PrivatemodeError): void {
    const source = this.#settle();
    if (source === undefined) return;
    const { upstream, decrypter, options } = source;
    const failure = decrypter.modelError ? undefined : reason;
    this.failure = failure;
    upstream.unpipe(this);
    if (failure === undefined) letGo(upstream, this.#clock);
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
    this.#endIdle();
    clearImmediate(this.#lastLook);
    source?.options.signal.removeEventListener('abort', this.#aborted);
    return source;
  }

  readonly #aborted = (): void => this.#end(this.#source?.options.signal.reason as PrivatemodeError);

  readonly #broken = (): void => {
    if (this.#source === undefined || this.#source.upstream.readableEnded) return;
    this.#end(brokenOff());
  };

  // Runs when the time might be over. Setting a timer anew for every chunk costs more than noting the time.
  // Silence does not count while a chunk waits in here for a slow reader, or for `room`.
  // Bytes that wait in the socket, as after a pause of the process, are read before that counts as silence.
  readonly #checkIdle = (looked = false): void => {
    if (this.#source === undefined) return;
    const { idleTimeout } = this.#source.options;
    const left =
      this.writableLength > 0 ? idleTimeout : this.#heardAt + idleTimeout - this.#clock.monotonic();
    if (left > 0) this.#endIdle = this.#clock.after(left, this.#checkIdle, 'waiting');
    else if (looked) this.#end(stalled());
    else this.#lastLook = setImmediate(this.#checkIdle, true);
  };
}

function letGo(upstream: Readable, clock: Clock): void {
  if (upstream.readableEnded || upstream.destroyed) return;
  upstream.once(
    'close',
    clock.after(clock.times.upstreamLinger, () => upstream.destroy()),
  );
  upstream.resume();
}

/** Passes bytes on as they are: for endpoints without encryption, and for errors that say they are plain. */
export const UNENCRYPTED: Decrypter = {
  feed: (chunk) => chunk,
  flush: () => new Uint8Array(),
  failure: undefined,
  finished: false,
  pending: false,
  usage: undefined,
};
