/** The common shape of the three request codecs: a stage that collects, a body that can be sealed, the sealed body. */
import type { RequestCipher } from '../envelope/request-cipher.ts';

/**
 * `last`: only the closing chunk, which has no choices. `none`: no chunk, and the closing one, which has nothing else to say, is
 * left out.
 */
export type UsageWanted = 'every' | 'last' | 'none';

/** A request body on its way in: fed as it arrives, ready when it is complete. */
export interface RequestBodyStage<T = PreparedBody> {
  /** Takes the next chunk, by reference. Throws a typed 400 as soon as the body cannot become valid. */
  feed(chunk: Uint8Array): void;
  /** To be called once, after the last chunk. Throws, or rejects with, a typed 400. */
  finish(): T | Promise<T>;
}

/** A complete, valid request body, not yet sealed: each attempt seals it anew with a cipher of its own. */
export interface PreparedBody {
  /** For the target-model header; undefined where the endpoint names none. */
  readonly model: string | undefined;
  /** For the shard-key header; undefined where no salt is effective. */
  readonly shardKey: string | undefined;
  /** Whether the body asked for an event stream (`stream` is true). */
  readonly streaming: boolean;
  /** How many choices an honest response has: `n`, for each prompt; 1 where the API has no choices. */
  readonly choices: number;
  /** The `response_format` of a transcription as it was sent, which decides the response's members; else undefined. */
  readonly format: string | undefined;
  /** Which chunks of a stream were asked to have their `usage`. */
  readonly usage: UsageWanted;
  seal(cipher: RequestCipher): SealedBody;
}

/** A sealed body as a pull source. */
export interface SealedBody {
  /** Exact, known before the first slice. */
  readonly contentLength: number;
  /** Where the request's own content type must be replaced (forms: the boundary). */
  readonly contentType?: string;
  /**
   * The body, once, in slices of at most 512 KiB; each is sealed when it is pulled, and good until the next but one is: there
   * its memory is used again.
   */
  slices(): Generator<Uint8Array, void, undefined>;
  /** To be called when all the slices have left: the memory of the last ones goes to another body. */
  release(): void;
}
