/** The decrypting stage as a Node stream, between the event stream of the service and the application. */
import { Readable } from 'node:stream';
import type { Clock, Deadline } from '../clock.ts';
import { asPrivatemodeError, type PrivatemodeError } from '../errors.ts';
import { brokenOff, stalled } from '../network/transport-errors.ts';
import type { Decrypter } from './decrypter.ts';

export interface Source {
  readonly upstream: Readable;
  readonly decrypter: Decrypter;
  readonly clock: Clock;
  readonly deadline: Deadline; // runs out if upstream sends no byte for `idleTimeout`
  readonly idleTimeout: number; // milliseconds without a byte after which the response has stalled
  /** Called with the size of each arriving chunk. If it throws a PrivatemodeError, the response ends. */
  readonly heard: (bytes: number) => void;
  readonly decrypted: (bytes: number) => void; // called with the size of decrypted bytes before they are sent
  /** Called when the response proves incomplete, perhaps before all its decrypted bytes have left. */
  readonly failed: (failure: PrivatemodeError) => void;
}

/**
 * Reads `upstream`, and gives its decrypted bytes, one piece for each network chunk, until the decrypter is
 * `finished`. A Node stream that emits an error drops the bytes in its queue, so this stream emits none:
 * `failure` says what ended a response early (tampering, reset, stall, missing end, shutdown). The class is
 * no Transform, because the writable half of a Transform costs a short request as much time as the decryption
 * (bench row request_cpu), and keeps the objects to which it refers in memory (docs/architecture.md H25).
 */
export class DecryptStream extends Readable {
  failure: PrivatemodeError | undefined; // the failure is known once the stream has ended
  #source: Source | undefined; // the source is undefined once the response is over

  constructor(source: Source) {
    super();
    this.#source = source;
    source.deadline.wait(source.idleTimeout, this.#silent);
    source.upstream.on('error', this.#broken);
    source.upstream.on('close', this.#broken);
    source.upstream.on('end', this.#over);
    source.upstream.on('data', this.#take);
  }

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

  /** Called when the reader wants more. Silence of a paused upstream does not count: the wait restarts. */
  override _read(): void {
    if (!this.#source?.upstream.isPaused()) return;
    this.#source.deadline.refresh();
    this.#source.upstream.resume();
  }

  /** Called when the application has left, or when the whole response has been read. */
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
    else deadline.wait(idleTimeout, this.#silent); // upstream is paused because the reader is slow
  };

  #settle(): Source | undefined {
    const source = this.#source;
    this.#source = undefined;
    source?.deadline.rest();
    source?.upstream.off('data', this.#take).off('end', this.#over);
    return source;
  }
}

/** Drops what upstream still sends, to use the connection again. Ends the connection after some seconds. */
function letGo(upstream: Readable, clock: Clock): void {
  if (upstream.readableEnded || upstream.destroyed) return;
  const cancel = clock.after(clock.times.upstreamLinger, () => upstream.destroy());
  upstream.once('close', cancel);
  upstream.resume();
}
