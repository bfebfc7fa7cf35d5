/** The event stream of a chat completion as that of a Response (docs/protocol/responses.md). */
import { createParser } from 'eventsource-parser';
import { asPrivatemodeError, PrivatemodeError } from '../errors.ts';
import type { Decrypter } from '../pipeline/decrypter.ts';
import { isObject, type JsonObject } from './refusal.ts';
import type { ResponseContext } from './response-object.ts';
import { ChatTranslation, malformed } from './translation.ts';

const EMPTY = Buffer.alloc(0);

/** What the standard's transformers write to. */
export interface Sink {
  enqueue(chunk: Uint8Array): void;
  terminate(): void;
}

export interface StreamOptions {
  readonly requestId: string;
  /** For tests. */
  readonly maxHeld?: number;
}

/** `error.code` of a Response by the status that an error event of the service tells; else `server_error`. */
const ERROR_CODES: ReadonlyMap<unknown, string> = new Map([
  [400, 'invalid_prompt'],
  [413, 'invalid_prompt'],
  [422, 'invalid_prompt'],
  [429, 'rate_limit_exceeded'],
]);

/**
 * A transformer of the Streams standard, from the bytes of a chat stream that was decrypted and checked. Its `[DONE]` says that it was
 * accepted to its end: the decrypter withholds it otherwise. A failure is a value: `response.failed` goes out, the stream terminates,
 * and whoever writes it to the client breaks the connection.
 */
export class ResponseStream {
  /** Why the response is not whole. */
  failure: PrivatemodeError | undefined;
  /** Whether that is an error of the service, told in its stream: then the chat itself is whole. */
  modelError = false;
  readonly #translation: ChatTranslation;
  readonly #options: StreamOptions;
  readonly #decoder = new TextDecoder('utf-8', { fatal: true });
  readonly #parser = createParser({
    onEvent: ({ data }) => this.#onEvent(data),
    // The text is nobody's, and means nothing; a line keeps the connection alive.
    onComment: () => this.#translation.log.comment(),
  });

  constructor(context: ResponseContext, options: StreamOptions) {
    this.#translation = new ChatTranslation(context, options.maxHeld);
    this.#options = options;
  }

  /** Bytes of text that are kept for the last events. */
  get held(): number {
    return this.#translation.held;
  }

  /** Events so far. */
  get events(): number {
    return this.#translation.log.events;
  }

  transform(chunk: Uint8Array, sink: Sink): void {
    if (this.#translation.isOver) return;
    try {
      this.#parser.feed(this.#decoder.decode(chunk, { stream: true }));
    } catch (thrown) {
      const isText = !(thrown instanceof TypeError || thrown instanceof SyntaxError);
      this.#fail(
        isText ? asPrivatemodeError(thrown) : malformed('the stream is not the JSON that was agreed'),
      );
    }
    this.#deliver(sink);
  }

  flush(sink: Sink): void {
    if (!this.#translation.isOver)
      this.#fail(new PrivatemodeError('stream_unfinished', 'the stream ended before its last event'));
    this.#deliver(sink);
  }

  /** The bytes that end the stream because of that failure; none if it is over already. */
  fail(failure: PrivatemodeError): Uint8Array {
    if (!this.#translation.isOver) this.#fail(failure);
    return Buffer.from(this.#translation.log.take());
  }

  #deliver(sink: Sink): void {
    const text = this.#translation.log.take();
    if (text !== '') sink.enqueue(Buffer.from(text));
    if (this.failure !== undefined) sink.terminate();
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

  #failByService({ message, code }: JsonObject): void {
    const failure = new PrivatemodeError('stream_unfinished', 'the service ended the response with an error');
    this.modelError = true;
    this.#fail(failure, ERROR_CODES.get(code), typeof message === 'string' ? message : undefined);
  }

  #fail(failure: PrivatemodeError, code = 'server_error', message?: string): void {
    this.failure = failure;
    const own = `${failure.code}: ${failure.message}. ${failure.remedy} (request id ${this.#options.requestId})`;
    this.#translation.fail({ code, message: message ?? own });
  }
}

/**
 * The decrypter of a chat stream, translated: it takes the place of the other in the chain. What ends the response early and is not the
 * decrypter's to find out goes through `stream.fail`, whose bytes end it.
 */
export class TranslatedDecrypter implements Decrypter {
  failure: PrivatemodeError | undefined = undefined;
  finished = false;
  pending = false;
  modelError = false;
  usage: Decrypter['usage'] = undefined;
  readonly #chat: Decrypter;
  readonly #stream: ResponseStream;
  #delivered: Uint8Array = EMPTY;
  readonly #sink: Sink = {
    enqueue: (bytes) => {
      this.#delivered = bytes;
    },
    terminate() {},
  };

  constructor(chat: Decrypter, stream: ResponseStream) {
    this.#chat = chat;
    this.#stream = stream;
  }

  feed(chunk: Uint8Array): Uint8Array {
    return this.#translate(this.#chat.feed(chunk));
  }

  flush(): Uint8Array {
    return this.#translate(this.#chat.flush());
  }

  /** `transform` enqueues once at most. */
  #translate(bytes: Uint8Array): Uint8Array {
    this.#delivered = EMPTY;
    if (bytes.length > 0) this.#stream.transform(bytes, this.#sink);
    const { failure, finished, pending, usage } = this.#chat;
    this.failure = failure ?? this.#stream.failure;
    this.modelError = failure === undefined && this.#stream.modelError;
    this.finished = finished;
    this.pending = pending;
    this.usage = usage;
    return this.#delivered;
  }
}
