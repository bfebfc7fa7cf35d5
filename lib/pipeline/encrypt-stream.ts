/** The encrypting stage: makes the bytes, or the stream of bytes, that are uploaded. */
import { Readable } from 'node:stream';
import { encryptBody } from './encrypt-body.ts';

const SHORT_BODY = 64 * 1024; // bytes; for a shorter body, a stream costs more than encryption

/** Encrypts with encryptBody into one Buffer, or into a stream that fails with the errors of encryptBody. */
export function encryptStream(...input: Parameters<typeof encryptBody>) {
  const { slices, ...announced } = encryptBody(...input);
  const isShort = announced.contentLength <= SHORT_BODY;
  return { ...announced, body: isShort ? slices.next().value! : new SliceStream(slices) };
}

/** Lets other work run before it encrypts each slice, so that a large upload does not stall responses. */
class SliceStream extends Readable {
  #slices: Iterator<Uint8Array> | undefined;

  constructor(slices: Iterator<Uint8Array>) {
    super({ highWaterMark: 1 }); // the stream holds one slice at a time, however large a slice is
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

  /** Ends `destination` after the last slice. An earlier end would hide resets (docs/architecture.md H3). */
  override pipe<T extends NodeJS.WritableStream>(destination: T): T {
    this.on('data', (slice: Uint8Array) => {
      this.pause();
      destination.write(slice, (error) => error ?? this.resume());
    });
    this.once('end', () => destination.end());
    return destination;
  }

  override _destroy(error: Error | null, callback: (error?: Error | null) => void): void {
    this.#slices = undefined; // a destroyed stream keeps nothing of the body
    callback(error);
  }
}
