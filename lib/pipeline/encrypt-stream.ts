/** The encrypting stage, whose bytes or stream the upload takes. */
import { Readable } from 'node:stream';
import { encryptBody } from './encrypt-body.ts';

const SHORT_BODY = 64 * 1024; // bytes; a stream costs such a request more than its encryption

/** Encrypts as encryptBody does, into one piece of memory or a stream, which fails with what that throws. */
export function encryptStream(...input: Parameters<typeof encryptBody>) {
  const { slices, ...announced } = encryptBody(...input);
  const isShort = announced.contentLength <= SHORT_BODY;
  return { ...announced, body: isShort ? slices.next().value! : new SliceStream(slices) };
}

/** Before each slice is sealed, others have a turn: a large upload must not stall their tokens. */
class SliceStream extends Readable {
  #slices: Iterator<Uint8Array> | undefined;

  constructor(slices: Iterator<Uint8Array>) {
    super({ highWaterMark: 1 }); // one slice at a time, whatever its size
    this.#slices = slices;
  }

  override _read(): void {
    setImmediate(() => {
      try {
        if (this.#slices !== undefined) this.push(this.#slices.next().value ?? null);
      } catch (error) {
        this.destroy(error as Error);
      }
    });
  }

  /** Ends `destination` when all slices have left: an end before hides resets (docs/architecture.md H3). */
  override pipe<T extends NodeJS.WritableStream>(destination: T): T {
    this.on('data', (slice: Uint8Array) => {
      this.pause();
      destination.write(slice, (error) => error ?? this.resume());
    });
    this.once('end', () => destination.end());
    return destination;
  }

  override _destroy(error: Error | null, callback: (error?: Error | null) => void): void {
    this.#slices = undefined; // a stream that is over keeps nothing of the body
    callback(error);
  }
}
