import type { RequestCipher } from '../envelope/message-cipher.ts';
import { asPrivatemodeError, PrivatemodeError } from '../errors.ts';
import type { ParsedBody } from './request-body.ts';
import type { TokenUsage } from './token-usage.ts';

/**
 * Decrypts one response while it arrives: an event stream (`decrypt-events.ts`) or a body (`decrypt-body.ts`). Its states are data
 * properties: V8 keeps all that the accessors of an object literal see until a full collection.
 */
export interface Decrypter {
  /** Returns the plaintext bytes that this chunk completes; may be empty. Never throws: see `failure`. */
  feed(chunk: Uint8Array): Uint8Array;
  /** To be called where the wire ended, and again while it is `pending`: the rest. Sets `failure` if the end came too early. */
  flush(): Uint8Array;
  /** Whether there is more to decrypt; other exchanges may have their turn before that. */
  readonly pending: boolean;
  /** Set once the response turned out wrong. What was delivered before stays good; nothing comes after. */
  readonly failure: PrivatemodeError | undefined;
  /** True once nothing more is expected: what still comes is dropped. */
  readonly finished: boolean;
  /** Whether the model reported an error of its own: a `[DONE]` may follow, but the response is whole without it. */
  readonly modelError?: boolean;
  /** Set once the response has told its usage, delivered or not. */
  readonly usage: TokenUsage | undefined;
}

/** What opens the messages of one response. */
export type Opener = Pick<RequestCipher, 'openAll'>;

/** The kind of response that the request asked for; a genuine response has this kind. */
export type Asked = Pick<ParsedBody, 'streaming' | 'choices' | 'format' | 'usage'>;

/** By requests without a body. */
export const NOTHING_ASKED: Asked = { streaming: false, choices: 1, format: undefined, usage: 'every' };

export const notAuthentic = (message: string) => new PrivatemodeError('response_not_authentic', message);
export const malformed = (message: string) => new PrivatemodeError('response_malformed', message);

/** What `failure` becomes of something thrown. The JSON scanner speaks of requests: of a response, its errors are the service's. */
export function failureOf(thrown: unknown, subject: 'an event' | 'the response'): PrivatemodeError {
  const error = asPrivatemodeError(thrown);
  return error.status === 400 ? malformed(`${subject} is not the JSON that was agreed`) : error;
}
