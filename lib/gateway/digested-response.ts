/** A response that knows the digest of its body, for a receipt: whichever module writes it, and however it ends. */
import { createHash } from 'node:crypto';
import type { IncomingMessage } from 'node:http';
import type { BodyDigest } from '../transparency/receipt.ts';
import { ChunkedResponse } from './chunked-response.ts';

/** SHA-256 over bytes as they come, and their number. */
export class BodyHash {
  readonly #hash = createHash('sha256');
  #bytes = 0;

  update(chunk: Uint8Array | string): void {
    this.#hash.update(chunk);
    this.#bytes += Buffer.byteLength(chunk);
  }

  /** To be called once. */
  digest(): BodyDigest {
    return { sha256: this.#hash.digest('hex'), bytes: this.#bytes };
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
