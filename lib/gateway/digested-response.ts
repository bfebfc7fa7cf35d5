/** A response that knows the digest of its body, for a receipt: whichever module writes it, and however it ends. */
import { createHash, type Hash } from 'node:crypto';
import type { IncomingMessage } from 'node:http';
import type { BodyDigest } from '../transparency/receipt.ts';
import { ChunkedResponse } from './chunked-response.ts';

/** SHA-256 of no bytes. */
const OF_NOTHING = createHash('sha256').digest('hex');

/** Bytes that are gathered before they are hashed: a call for each event of a stream costs 3 us, a copy next to nothing. */
const GATHERED_BYTES = 4096;

/** SHA-256 over bytes as they come, and their number. */
export class BodyHash {
  #hash: Hash | undefined;
  #gathered: Buffer | undefined;
  #filled = 0;
  #bytes = 0;

  update(chunk: Uint8Array | string): void {
    const piece = typeof chunk === 'string' ? Buffer.from(chunk) : chunk;
    this.#bytes += piece.length;
    if (this.#filled + piece.length > GATHERED_BYTES) this.#flush();
    if (piece.length > GATHERED_BYTES / 2) {
      this.#flush();
      this.#hash = (this.#hash ?? createHash('sha256')).update(piece);
    } else {
      this.#gathered ??= Buffer.allocUnsafeSlow(GATHERED_BYTES);
      this.#gathered.set(piece, this.#filled);
      this.#filled += piece.length;
    }
  }

  /** To be called once. */
  digest(): BodyDigest {
    this.#flush();
    return { sha256: this.#hash?.digest('hex') ?? OF_NOTHING, bytes: this.#bytes };
  }

  /** Hashes what was gathered. */
  #flush(): void {
    if (this.#filled === 0) return;
    this.#hash = (this.#hash ?? createHash('sha256')).update(this.#gathered!.subarray(0, this.#filled));
    this.#filled = 0;
  }
}

type Write<Result> = (chunk: unknown, encoding: unknown, callback: unknown) => Result;

/** Takes the place of Node's response on a listener whose requests get receipts. */
export class DigestedResponse<
  Request extends IncomingMessage = IncomingMessage,
> extends ChunkedResponse<Request> {
  readonly body = new BodyHash();

  override write(chunk: unknown, encoding?: unknown, callback?: unknown): boolean {
    this.#note(chunk);
    return (super.write as Write<boolean>)(chunk, encoding, callback);
  }

  override end(chunk?: unknown, encoding?: unknown, callback?: unknown): this {
    this.#note(chunk);
    return (super.end as Write<this>)(chunk, encoding, callback);
  }

  /** Node drops the body of a response to HEAD, and all that comes after the end. */
  #note(chunk: unknown): void {
    if (this.writableEnded || this.destroyed || this.req.method === 'HEAD') return;
    if (chunk instanceof Uint8Array || typeof chunk === 'string') this.body.update(chunk);
  }
}
