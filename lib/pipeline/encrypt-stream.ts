/** The encrypting stage, whose bytes or stream the upload takes. */
import { Readable } from 'node:stream';
import { encryptBody } from './encrypt-body.ts';

/** Bytes of a body that is sealed at once: most requests. */
const SHORT_BODY = 64 * 1024;

export type EncryptedUpload = ReturnType<typeof encryptStream>;

/**
 * Calls encryptBody, and returns its slices as a stream, or a body of at most 64 KiB as one piece of memory: a
 * stream costs a short request more than its encryption. The stream fails with `internal` if the slices do
 * not have the announced length.
 */
export function encryptStream(...input: Parameters<typeof encryptBody>) {
  const { slices, ...announced } = encryptBody(...input);
  const isShort = announced.contentLength <= SHORT_BODY;
  const body = isShort ? ([...slices][0] as Buffer) : new SliceStream(slices);
  return { ...announced, body };
}

/**
 * Seals one slice when the reader wants it and the previous one is gone. The event loop turns between two
 * slices, so that a large upload does not stall other people's tokens. The stream keeps nothing of the body
 * once it has ended or is destroyed.
 */
class SliceStream extends Readable {
  #slices: Iterator<Uint8Array> | undefined;
  #begun = false;

  constructor(slices: Iterable<Uint8Array>) {
    super({ highWaterMark: 1 }); // one slice at a time, whatever its size
    this.#slices = slices[Symbol.iterator]();
  }

  override _read(): void {
    if (this.#begun) setImmediate(() => this.#pull());
    else this.#pull();
    this.#begun = true;
  }

  /**
   * Writes a slice when the one before it has left, and ends `destination` when all have left. If
   * `destination` ended earlier, Node would make an empty write once the last slice is done. The error of a
   * connection that was reset meanwhile would go to that write, and the reset would look like an orderly end
   * (docs/hazards.md 3).
   */
  override pipe<T extends NodeJS.WritableStream>(destination: T): T {
    const next = (error?: Error | null): void => {
      if (!error) this.resume();
    };
    this.on('data', (slice: Uint8Array) => {
      this.pause();
      destination.write(slice, next);
    });
    this.once('end', () => destination.end());
    return destination;
  }

  #pull(): void {
    if (this.#slices === undefined) return;
    try {
      const { value, done } = this.#slices.next();
      if (done) this.#slices = undefined;
      this.push(done ? null : value);
    } catch (error) {
      this.destroy(error as Error);
    }
  }

  override _destroy(error: Error | null, callback: (error?: Error | null) => void): void {
    this.#slices = undefined;
    callback(error);
  }
}
