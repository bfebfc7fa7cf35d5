/**
 * What the decrypters of a response have in common: their interface, what the request asked for, and their
 * errors.
 */
import type { RequestCipher } from '../envelope/message-cipher.ts';
import { asPrivatemodeError, PrivatemodeError } from '../errors.ts';
import type { ParsedBody } from './request-body.ts';
import type { TokenUsage } from './token-usage.ts';

/**
 * Decrypts one response while it arrives: an event stream (`decrypt-events.ts`) or a body
 * (`decrypt-body.ts`). Its states are data properties, or accessors of a class: V8 keeps all that the
 * accessors of an object literal see until a full collection.
 */
export interface Decrypter {
  /** Returns the plaintext bytes that this chunk completes; may be empty. Never throws: see `failure`. */
  feed(chunk: Uint8Array): Uint8Array;
  /**
   * Call it when the wire has ended, and again while `pending`. Returns the next bytes of the rest. Sets
   * `failure` if the end came too early.
   */
  flush(): Uint8Array;
  /** Whether `flush` has more to decrypt. Other exchanges may have their turn before its next call. */
  readonly pending: boolean;
  /**
   * Set once the response turns out to be wrong. What was delivered before stays good; nothing comes after.
   */
  readonly failure: PrivatemodeError | undefined;
  /** True once no more bytes are expected. Bytes that still come are dropped. */
  readonly finished: boolean;
  /**
   * Whether the model reported an error of its own: a `[DONE]` may follow, but the response is whole without
   * it.
   */
  readonly modelError?: boolean;
  /** Events of a stream that were delivered so far; a body has none. */
  readonly events?: number;
  /** The usage that the response has stated so far, whether or not the application gets it. */
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

/**
 * The `failure` for something thrown. The JSON scan throws errors with status 400, which blame the request.
 * In a response the service made that mistake, so it becomes response_malformed.
 */
export function failureOf(thrown: unknown, subject: 'an event' | 'the response'): PrivatemodeError {
  const error = asPrivatemodeError(thrown);
  return error.status === 400 ? malformed(`${subject} is not the JSON that was agreed`) : error;
}
