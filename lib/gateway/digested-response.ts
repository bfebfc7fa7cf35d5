/** A response that knows the digest of its body, for a receipt: whichever module writes it, and however it ends. */
import { createHash, type Hash } from 'node:crypto';
import { type IncomingMessage, ServerResponse } from 'node:http';
import type { BodyDigest } from '../transparency/receipt.ts';

/** SHA-256 of no bytes. */
const OF_NOTHING = createHash('sha256').digest('hex');

/** SHA-256 over bytes as they come, and their number. */
export class BodyHash {
  #hash: Hash | undefined;
  #bytes = 0;

  update(chunk: Uint8Array | string): void {
    this.#hash ??= createHash('sha256');
    this.#hash.update(chunk);
    this.#bytes += typeof chunk === 'string' ? Buffer.byteLength(chunk) : chunk.length;
  }

  /** To be called once. */
  digest(): BodyDigest {
    return { sha256: this.#hash?.digest('hex') ?? OF_NOTHING, bytes: this.#bytes };
  }
}

/** Takes the place of Node's response on a listener whose requests get receipts. */
export class DigestedResponse<
  Request extends IncomingMessage = IncomingMessage,
> extends ServerResponse<Request> {
  readonly body = new BodyHash();

  override write(chunk: unknown, ...rest: unknown[]): boolean {
    this.#note(chunk);
    return (super.write as (...args: unknown[]) => boolean)(chunk, ...rest);
  }

  override end(...args: unknown[]): this {
    this.#note(args[0]);
    return (super.end as (...args: unknown[]) => this)(...args);
  }

  /** Node drops the body of a response to HEAD, and all that comes after the end. */
  #note(chunk: unknown): void {
    if (this.writableEnded || this.destroyed || this.req.method === 'HEAD') return;
    if (chunk instanceof Uint8Array || typeof chunk === 'string') this.body.update(chunk);
  }
}
