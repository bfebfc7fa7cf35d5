/**
 * Decrypts an event stream: parses each event, opens its messages, checks them against the grammar, and
 * writes the event anew from what was understood (docs/protocol/inference.md, section 6.2).
 */
import { createParser, type EventSourceMessage } from 'eventsource-parser';
import type { Endpoint } from '../api/endpoints.ts';
import { PrivatemodeError } from '../errors.ts';
import { overflowInEvent } from './context-overflow.ts';
import {
  type Decrypter,
  failureOf,
  malformed,
  notAuthentic,
  type Opener,
  type RequestFacts,
} from './decrypter.ts';
import { EventChecks, type EventKind } from './event-checks.ts';
import { grammarOf } from './response-grammar.ts';
import { type SealedObject, SealedReader } from './sealed-json.ts';
import { type TokenUsage, tokenUsage } from './token-usage.ts';

/** Most bytes of an event on the wire. A larger event ends the stream, so that it is not held in memory. */
const MAX_EVENT_BYTES = 32 * 1024 * 1024;
/** Added to it, so that an event of the largest size fits with its field name and line end. */
const FIELD_BYTES = 16;

const EMPTY = Buffer.alloc(0);
const LINE_END = /\r\n|\r|\n/g;

/**
 * Decrypts an event stream of that endpoint as it arrives. `feed` returns complete events as bytes: `data` in
 * one line, its members in the order in which they came, and `retry`. Comments are passed on without their
 * text; ids and unknown fields are dropped. Nobody authenticates the name of an event, and clients skip
 * events by their names, or for lack of one. So only events of messages keep theirs, where each has one that
 * agrees with its plain member `type`. `asked` says which chunks keep their `usage` (the service puts it into
 * all of them) and how many choices there are, each of which must finish.
 *
 * Fails with response_not_authentic (a wrong tag or sequence, a plain value in place of a message, an event
 * that breaks the grammar), response_malformed, response_too_large or stream_unfinished (event-checks.ts).
 * Events before the failing one are delivered, even those of the same chunk. The constructor throws
 * response_malformed if the endpoint has no streams, `internal` if its responses are not encrypted.
 * `maxEventBytes` is for tests only.
 */
export class EventDecrypter implements Decrypter {
  failure: PrivatemodeError | undefined = undefined;
  finished = false;
  readonly pending = false;
  /** Events delivered so far, the terminal one included. */
  events = 0;
  modelError = false;

  readonly #cipher: Opener;
  readonly #checks: EventChecks;
  readonly #usageWanted: RequestFacts['usage'];
  readonly #maxEventBytes: number;
  readonly #reader: SealedReader;
  // It has no onError: the parser would make an error object for each line that means nothing.
  readonly #parser = createParser({
    onEvent: (event) => this.#onEvent(event),
    onRetry: (milliseconds) => this.#deliver(`retry: ${milliseconds}\n`),
    onComment: () => this.#deliver(':\n\n'), // keeps the connection alive
  });
  #delivered = ''; // by the chunk that is being read; each character is one byte
  #ended = false; // no more bytes are looked at
  #unended = 0; // bytes on the wire since the last blank line
  #tail = ''; // the last character of the chunk before
  #promptUsage: TokenUsage | undefined; // of message_start

  constructor(
    endpoint: Pick<Endpoint, 'id'>,
    cipher: Opener,
    { choices, usage }: RequestFacts,
    maxEventBytes = MAX_EVENT_BYTES,
  ) {
    const { stream, plain } = grammarOf(endpoint);
    if (stream === undefined) throw malformed('the service answered with an event stream');
    this.#cipher = cipher;
    this.#checks = new EventChecks(stream, plain, choices);
    this.#usageWanted = usage;
    this.#maxEventBytes = maxEventBytes;
    this.#reader = new SealedReader(plain);
  }

  /**
   * The latest counts. At the end of a stream they are those of the whole response. Before, each chunk in
   * OpenAI's format has those of its choice so far, which count if the client leaves early.
   */
  get usage(): TokenUsage | undefined {
    return tokenUsage(this.#reader.usage, this.#promptUsage);
  }

  feed(chunk: Uint8Array): Uint8Array {
    if (this.failure !== undefined || this.#ended) return EMPTY;
    try {
      this.#take(Buffer.from(chunk.buffer, chunk.byteOffset, chunk.byteLength).toString('latin1'));
    } catch (thrown) {
      this.failure = failureOf(thrown, 'an event');
    }
    const delivered = this.#delivered;
    this.#delivered = '';
    return Buffer.from(delivered, 'latin1');
  }

  flush(): Uint8Array {
    if (this.failure === undefined && !this.#ended && !this.modelError) {
      this.failure = new PrivatemodeError('stream_unfinished', 'the stream ended before its last event');
    }
    return EMPTY;
  }

  #take(text: string): void {
    const behind = text.endsWith('\n\n') ? 0 : afterBlankLine(this.#tail + text);
    this.#unended = behind ?? this.#unended + text.length;
    this.#tail = text.at(-1) ?? this.#tail;
    this.#parser.feed(text);
    if (this.#ended) return;
    // Counted here, because the parser's own limit counts only the data of the lines. Lines may have little
    // data, and each costs something.
    if (this.#unended > this.#maxEventBytes + FIELD_BYTES) {
      this.#ended = true;
      if (!this.modelError) throw this.#tooLarge();
    }
  }

  #deliver(text: string): void {
    if (!this.#ended) this.#delivered += text;
  }

  #onEvent({ data, event: name }: EventSourceMessage): void {
    if (this.#ended) return;
    if (data === '') return; // some servers send it as a heartbeat, and nothing sealed can hide in it
    if (data.length > this.#maxEventBytes) throw this.#tooLarge();
    const { named } = this.#checks.grammar;
    if (data.length === 6 && data.toUpperCase() === '[DONE]') {
      // Part of the OpenAI-style APIs only; elsewhere it means nothing and is dropped.
      if (!named) this.#end('data: [DONE]\n\n'); // some clients know it in capitals only
      return;
    }
    if (this.modelError) return;
    const members = this.#reader.object(data);
    const kind = this.#checks.kindOf(members);
    if (named && name !== kind.type) throw notAuthentic('the name of an event is not its type');
    if (kind.sealed.length > 0) this.#decrypt(kind, members);
    else if (kind.type === 'message_stop') this.#end(this.#written(kind, members.values, true));
    else this.#write(this.#written(kind, members.values, true));
  }

  #tooLarge(): PrivatemodeError {
    const message = `an event of the stream is larger than ${this.#maxEventBytes} bytes`;
    return new PrivatemodeError('response_too_large', message);
  }

  #write(event: string): void {
    this.#deliver(event);
    this.events += 1;
  }

  /**
   * Delivers the event that ends a stream. If the stream is unfinished it throws instead, because clients
   * take that event for success.
   */
  #end(event: string): void {
    if (!this.#checks.order.complete && !this.modelError) {
      throw new PrivatemodeError('stream_unfinished', 'the stream ended before the answer did');
    }
    this.#write(event);
    this.#ended = true;
    this.finished = true;
  }

  /** Opens, checks and delivers an event. */
  #decrypt(kind: EventKind, { values }: SealedObject): void {
    const { type, sealed } = kind;
    const { named } = this.#checks.grammar;
    const messages: string[] = [];
    for (let k = 0; k < sealed.length; k++) messages.push(values[sealed[k]!.at]!);
    const opened = this.#cipher.open(messages);
    const content = this.#checks.accept(kind, opened);
    const isClosing = Array.isArray(content) && content.length === 0;
    if (type === 'message_start') this.#promptUsage = tokenUsage((content as { usage?: unknown }).usage);
    if (type === 'error') {
      this.modelError = true;
      this.finished = named; // elsewhere `[DONE]` follows
    }
    if (isClosing && this.#usageWanted === 'none') return; // the closing chunk has nothing else to say
    for (let k = 0; k < sealed.length; k++) {
      const { name, at } = sealed[k]!;
      values[at] = type === 'error' && name === 'error' ? this.#reworded(opened[k]!) : opened[k]!;
    }
    const hasUsage = this.#usageWanted === 'every' || (isClosing && this.#usageWanted === 'last');
    this.#write(this.#written(kind, values, hasUsage));
  }

  /** An error event about a full context window gets the words that agents act on. */
  #reworded(error: string): string {
    const format = this.#checks.grammar.named ? 'anthropic' : 'openai';
    return overflowInEvent(Buffer.from(error, 'latin1'), format)?.toString('latin1') ?? error;
  }

  /**
   * The text of an event with these values. Line ends in JSON text mean the same as blanks; clients that read
   * each line on its own would lose the event.
   */
  #written({ type, names }: EventKind, values: readonly string[], hasUsage: boolean): string {
    let data = '';
    for (let k = 0; k < names.length; k++) {
      const name = names[k]!;
      if (name === 'usage' && !hasUsage) continue;
      data += `${data === '' ? '{' : ','}"${name}":${values[k]!}`;
    }
    const line = data.includes('\n') || data.includes('\r') ? data.replace(LINE_END, ' ') : data;
    return `${this.#checks.grammar.named ? `event: ${type}\n` : ''}data: ${line}}\n\n`;
  }
}

/** How many characters stand behind the last blank line; undefined if there is none. */
function afterBlankLine(text: string): number | undefined {
  const ends = text.includes('\r') ? ['\n\n', '\r\r', '\n\r'] : ['\n\n'];
  const last = Math.max(...ends.map((end) => text.lastIndexOf(end)));
  return last < 0 ? undefined : text.length - last - 2;
}
