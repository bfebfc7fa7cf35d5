import type { PrivatemodeError } from '../errors.ts';

/** What opens a response while it arrives: an event stream (`open-sse.ts`) or a body (`open-json.ts`). */
export interface ResponseOpener {
  /** The plaintext bytes this chunk completes; may be empty. Never throws: see `failure`. */
  feed(chunk: Uint8Array): Uint8Array;
  /** To be called once, where the wire ended: the rest. Sets `failure` where the end came too early. */
  flush(): Uint8Array;
  /** Set once the response turned out wrong. What was delivered before stays good; nothing comes after. */
  readonly failure: PrivatemodeError | undefined;
  /** True once nothing more is expected: what still comes is dropped. */
  readonly finished: boolean;
}
