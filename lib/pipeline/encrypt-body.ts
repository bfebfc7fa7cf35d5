/** Third step of a request: every value is sealed with the cipher of one attempt, while the upload pulls it. */
import { randomBytes } from 'node:crypto';
import { Readable } from 'node:stream';
import type { RequestCipher } from '../envelope/request-cipher.ts';
import { formPieces } from './form/encrypt-form.ts';
import type { SaltedBody } from './inject-salt.ts';
import { memberPieces } from './json/encrypt-members.ts';
import { giveBack, lengthOf, type Piece, sealedSlices } from './sealed-slices.ts';

/** A body on its way to the service. */
export interface EncryptedBody {
  /** Seals a slice when it is pulled. Each stays valid until two more have been pulled. */
  readonly stream: Readable;
  /** Exact, known before the first slice. */
  readonly contentLength: number;
  /** Replaces the request's own content type (forms: the boundary). */
  readonly contentType?: string;
}

const randomBoundary = (): string => randomBytes(30).toString('hex');

/**
 * Encrypts the body for one attempt; call it again with another cipher for a retry. `boundary` of a form: tests only.
 * The stream fails with `internal` where the sealed bytes do not have the length that was announced.
 */
export function encryptBody(
  body: SaltedBody,
  cipher: RequestCipher,
  boundary: () => string = randomBoundary,
): EncryptedBody {
  const { content } = body;
  switch (content.kind) {
    case 'json':
      return encrypted(memberPieces(content, cipher), cipher);
    case 'form': {
      const drawn = boundary();
      const contentType = `multipart/form-data; boundary=${drawn}`;
      return { ...encrypted(formPieces(content, cipher, drawn), cipher), contentType };
    }
    case 'raw': // one message, also where the body is empty (docs/protocol/inference.md 6.4)
      return encrypted([{ bytes: content.bytes, sealer: cipher.seal() }], cipher);
  }
}

function encrypted(pieces: readonly Piece[], cipher: RequestCipher): EncryptedBody {
  const contentLength = lengthOf(pieces, cipher);
  return { contentLength, stream: new SliceStream(pieces, contentLength) };
}

/**
 * Seals one slice when the reader wants it and the previous one is gone. The event loop turns between two slices, so that a large
 * upload does not stall other people's tokens. Holds nothing of the body once it has ended or is destroyed.
 */
class SliceStream extends Readable {
  readonly #buffers: Buffer[] = [];
  #slices: Generator<Uint8Array, void, undefined> | undefined;
  #begun = false;

  constructor(pieces: readonly Piece[], contentLength: number) {
    super({ highWaterMark: 1 }); // one slice at a time, whatever its size
    this.#slices = sealedSlices(pieces, contentLength, this.#buffers);
  }

  override _read(): void {
    if (this.#begun) setImmediate(() => this.#pull());
    else this.#pull();
    this.#begun = true;
  }

  /**
   * Gives a slice when the one before it has left, and ends `destination` when all have. Ended earlier, Node makes an empty write
   * once the last one is done, and the error of a connection that was reset meanwhile goes to that write: the reset would look
   * like an orderly end (docs/hazards.md 3).
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
    this.#slices?.return();
    this.#slices = undefined;
    // Cut off, a slice may still be on its way.
    if (this.readableEnded) giveBack(this.#buffers);
    else this.#buffers.length = 0;
    callback(error);
  }
}
