import type { PrivatemodeError } from '../errors.ts';
import type { TokenUsage } from './token-usage.ts';

/**
 * What opens a response while it arrives: an event stream (`open-sse.ts`) or a body (`open-json.ts`).
 *
 * Made once per request, so its states are data properties: V8 allocates the accessors of an object literal, like function
 * literals that are assigned to a property, in the old generation, where they keep all that they see until a full collection.
 */
export interface ResponseOpener {
  /** The plaintext bytes this chunk completes; may be empty. Never throws: see `failure`. */
  feed(chunk: Uint8Array): Uint8Array;
  /** To be called where the wire ended, and again while it is `pending`: the rest. Sets `failure` where the end came too early. */
  flush(): Uint8Array;
  /** Whether there is more to open; others may have their turn before that. */
  readonly pending: boolean;
  /** Set once the response turned out wrong. What was delivered before stays good; nothing comes after. */
  readonly failure: PrivatemodeError | undefined;
  /** True once nothing more is expected: what still comes is dropped. */
  readonly finished: boolean;
  /** Set once the response has told its usage, delivered or not. */
  readonly usage: TokenUsage | undefined;
}
