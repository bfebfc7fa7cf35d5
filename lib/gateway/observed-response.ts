/** A response that a receipt and a dump can observe, whichever module writes it and however it ends. */
import { createHash } from 'node:crypto';
import type { IncomingMessage, OutgoingHttpHeaders } from 'node:http';
import type { BodyDigest } from '../receipts/receipt.ts';
import { ChunkedResponse } from './chunked-response.ts';

/** Hashes bytes with SHA-256 as they come, and counts them. */
export class BodyHash {
  readonly #hash = createHash('sha256');
  #bytes = 0;

  update(chunk: Uint8Array | string): void {
    this.#hash.update(chunk);
    this.#bytes += Buffer.byteLength(chunk);
  }

  /** Call it once. */
  digest(): BodyDigest {
    return { sha256: this.#hash.digest('hex'), bytes: this.#bytes };
  }
}

/** Gets what the application gets, as it is written. */
export interface ResponseObserver {
  responseHead?(status: number, headers: readonly (readonly [name: string, value: string])[]): void;
  responseBody(chunk: Uint8Array | string): void;
}

type Method<Result> = (...args: unknown[]) => Result;

/** Takes the place of Node's response on the listener of the gateway. */
export class ObservedResponse<
  Request extends IncomingMessage = IncomingMessage,
> extends ChunkedResponse<Request> {
  readonly #observers: ResponseObserver[] = [];

  /** Shows the observer all that is written from now on. */
  observe(observer: ResponseObserver): void {
    this.#observers.push(observer);
  }

  override writeHead(...args: unknown[]): this {
    const returned = (super.writeHead as Method<this>)(...args);
    if (this.#observers.length === 0) return returned;
    const given = args.at(-1);
    const headers = Object.entries(
      typeof given === 'object' ? (given as OutgoingHttpHeaders) : this.getHeaders(),
    ).flatMap(([name, value]) => [value ?? ''].flat().map((one) => [name, String(one)] as const));
    for (const observer of this.#observers) observer.responseHead?.(this.statusCode, headers);
    return returned;
  }

  override write(chunk: unknown, encoding?: unknown, callback?: unknown): boolean {
    if (this.#observers.length > 0) this.#show(chunk); // this is called for each chunk of a stream
    return super.write(chunk, encoding, callback);
  }

  override end(...args: unknown[]): this {
    this.#show(args[0]);
    return (super.end as Method<this>)(...args);
  }

  /**
   * Shows the observers a chunk that Node will send. Node drops the body of a response to HEAD, and
   * everything after the end.
   */
  #show(chunk: unknown): void {
    if (this.writableEnded || this.destroyed || this.req.method === 'HEAD') return;
    if (!(chunk instanceof Uint8Array || typeof chunk === 'string')) return;
    for (const observer of this.#observers) observer.responseBody(chunk);
  }
}
