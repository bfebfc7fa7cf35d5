/** What the two ways to decrypt a response share: their input, their errors, the interface of a stream. */
import type { RequestCipher } from '../envelope/message-cipher.ts';
import { PrivatemodeError } from '../errors.ts';
import type { ParsedBody } from './request-body.ts';
import type { TokenUsage } from './token-usage.ts';

/**
 * Decrypts one event stream while it arrives. Its states are data properties, or accessors of a class: V8
 * keeps all that the accessors of an object literal see until a full collection.
 */
export interface Decrypter {
  /** Returns the plaintext bytes that this chunk completes; may be empty. Never throws: see `failure`. */
  feed(chunk: Uint8Array): Uint8Array;
  /** Call it once, when the wire has ended. Returns the rest. Sets `failure` if the end came too early. */
  end(): Uint8Array;
  /** Set once the stream turns out to be wrong. What was delivered before stays good; nothing comes after. */
  readonly failure: PrivatemodeError | undefined;
  /** True once no more bytes are expected. Bytes that still come are dropped. */
  readonly finished: boolean;
  /** Whether the model reported an error: a `[DONE]` may follow, but the stream is whole without it. */
  readonly modelError: boolean;
  /** Events that were delivered so far. */
  readonly events: number;
  /** The usage that the stream has stated so far, whether or not the application gets it. */
  readonly usage: TokenUsage | undefined;
}

/** What opens the messages of one response. */
export type Opener = Pick<RequestCipher, 'open'>;

/** The kind of response that the request asked for; a genuine response has this kind. */
export type RequestFacts = Pick<ParsedBody, 'streaming' | 'choices' | 'format' | 'usage'>;

export const notAuthentic = (message: string) => new PrivatemodeError('response_not_authentic', message);
export const malformed = (message: string) => new PrivatemodeError('response_malformed', message);

/**
 * The value of an opened text. Each byte is one character (latin1): only strings have bytes beyond ASCII, and
 * no check reads those. Throws response_not_authentic if it is not JSON.
 */
export function openedValue(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    throw notAuthentic('a value of the response is not JSON');
  }
}
