/** Translates the event stream of a chat completion into that of a Response (docs/protocol/responses.md). */
import { createParser } from 'eventsource-parser';
import { asPrivatemodeError, PrivatemodeError } from '../errors.ts';
import { type Decrypter, malformed } from '../pipeline/decrypter.ts';
import { isObject, type PlainObject } from './request-refusal.ts';
import type { ResponseContext } from './response-object.ts';
import { ChatTranslation } from './translate-chunks.ts';

/**
 * `error.code` of a Response, by the `code` of an error event: the service puts its status there, and the
 * decrypter a code for a full context window. Default: `server_error`.
 */
const ERROR_CODES: ReadonlyMap<unknown, string> = new Map<unknown, string>([
  [400, 'invalid_prompt'],
  [413, 'invalid_prompt'],
  [422, 'invalid_prompt'],
  [429, 'rate_limit_exceeded'],
  ['context_length_exceeded', 'context_length_exceeded'],
]);

/**
 * Takes the place of a chat stream's decrypter, and returns the events of a Response instead of the chat's.
 * The chat's decrypter passes `[DONE]` on only after it has accepted the whole stream.
 *
 * If the translation fails, it writes `response.failed` and sets `failure`. If the chat's decrypter or a
 * later step fails, the caller passes the failure to `fail`, whose bytes end the stream. In both cases the
 * step that writes to the client breaks the connection.
 */
export class ResponseStream implements Decrypter {
  failure: PrivatemodeError | undefined = undefined;
  finished = false;
  /**
   * Whether `failure` is an error that the service reported in its stream. The chat's stream itself is then
   * whole.
   */
  modelError = false;
  readonly #chat: Decrypter;
  readonly #translation: ChatTranslation;
  readonly #requestId: string;
  readonly #decoder = new TextDecoder('utf-8', { fatal: true });
  readonly #parser = createParser({
    onEvent: ({ data }) => this.#onEvent(data),
    // Nothing authenticates the text of a comment, and it means nothing. An empty comment keeps the
    // connection alive.
    onComment: () => this.#translation.log.comment(),
  });

  /** `maxHeld` is for tests only. */
  constructor(chat: Decrypter, context: ResponseContext, requestId: string, maxHeld?: number) {
    this.#chat = chat;
    this.#translation = new ChatTranslation(context, maxHeld);
    this.#requestId = requestId;
  }

  /** Size of the text that is kept for the last events (ChatTranslation). */
  get held(): number {
    return this.#translation.held;
  }

  get usage(): Decrypter['usage'] {
    return this.#chat.usage;
  }

  get events(): number {
    return this.#translation.log.events;
  }

  feed(chunk: Uint8Array): Uint8Array {
    return this.#translate(this.#chat.feed(chunk));
  }

  end(): void {
    this.#chat.end();
    this.#translate(new Uint8Array());
  }

  /** Returns the bytes that end the stream because of this failure; none if the stream is over already. */
  fail(failure: PrivatemodeError): Uint8Array {
    if (!this.#translation.isOver) this.#fail(failure);
    return this.#deliver();
  }

  /** Translates bytes of the chat. A failure of the chat replaces one of the translation. */
  #translate(bytes: Uint8Array): Uint8Array {
    if (bytes.length > 0 && !this.#translation.isOver) this.#read(bytes);
    const { failure, finished } = this.#chat;
    if (failure !== undefined) {
      this.failure = failure;
      this.modelError = false;
    }
    this.finished = finished;
    return this.#deliver();
  }

  #read(bytes: Uint8Array): void {
    try {
      this.#parser.feed(this.#decoder.decode(bytes, { stream: true }));
    } catch (thrown) {
      const isText = !(thrown instanceof TypeError || thrown instanceof SyntaxError);
      this.#fail(
        isText ? asPrivatemodeError(thrown) : malformed('the stream is not the JSON that was agreed'),
      );
    }
  }

  #deliver(): Uint8Array {
    return this.#translation.log.take();
  }

  #onEvent(data: string): void {
    if (this.#translation.isOver) return;
    if (data === '[DONE]') {
      this.#translation.accept();
      return;
    }
    const chunk: unknown = JSON.parse(data);
    if (!isObject(chunk)) throw malformed('an event of the stream is no object');
    const { error } = chunk;
    if (isObject(error)) this.#failByService(error);
    else this.#translation.chunk(chunk);
  }

  #failByService({ message, code }: PlainObject): void {
    const failure = new PrivatemodeError('stream_unfinished', 'the service ended the response with an error');
    this.modelError = true;
    this.#fail(failure, ERROR_CODES.get(code), typeof message === 'string' ? message : undefined);
  }

  #fail(failure: PrivatemodeError, code = 'server_error', message?: string): void {
    this.failure = failure;
    const own = `${failure.code}: ${failure.message}. ${failure.remedy} (request id ${this.#requestId})`;
    this.#translation.fail({ code, message: message ?? own });
  }
}
