/**
 * Decrypts an event stream: parses each event, opens its messages, checks them against the grammar, and
 * writes the event anew from what was understood (docs/protocol/inference.md, section 6.2).
 */
import { createParser, type EventSourceMessage } from 'eventsource-parser';
import type { Endpoint } from '../api/endpoints.ts';
import { asPrivatemodeError, PrivatemodeError } from '../errors.ts';
import { overflowError } from './context-overflow.ts';
import {
  type Decrypter,
  malformed,
  notAuthentic,
  type Opener,
  openedValue,
  type RequestFacts,
} from './decrypter.ts';
import { type EventOrder, orderOf } from './event-order.ts';
import {
  fitsRow,
  type GrammarRow,
  grammarOf,
  hasNames,
  type PlainMembers,
  requiredKind,
  type StreamGrammar,
} from './response-grammar.ts';
import { type SealedObject, SealedReader } from './sealed-json.ts';
import { type TokenUsage, tokenUsage } from './token-usage.ts';

/** Most bytes of an event on the wire. A larger event ends the stream, so that it is not held in memory. */
const MAX_EVENT_BYTES = 32 * 1024 * 1024;

const EMPTY = Buffer.alloc(0);
const LINE_END = /\r\n|\r|\n/g;

/** A kind of event: all events with the same members in the same order. */
interface EventKind {
  readonly names: readonly string[];
  /** Its plain member `type` as it was written, if that names its type. */
  readonly written: string | undefined;
  /** Its type in the grammar. */
  readonly type: string;
  readonly row: GrammarRow;
}

/**
 * Decrypts an event stream of that endpoint as it arrives. `feed` returns complete events as bytes: `data` in
 * one line, its members in the order in which they came, and `retry`. Comments are passed on without their
 * text; ids and unknown fields are dropped. Nobody authenticates the name of an event, and clients skip
 * events by it, so only events of messages keep theirs, which must agree with their plain member `type`.
 * `asked` says which chunks keep their `usage` (the service puts it into all of them) and how many choices
 * must finish.
 *
 * Fails with response_not_authentic (a wrong tag or sequence, a plain value in place of a message, an event
 * that breaks the grammar), response_malformed, response_too_large or stream_unfinished (event-order.ts).
 * Events before the failing one are delivered, even those of the same chunk. The constructor throws
 * response_malformed if the endpoint has no streams, `internal` if its responses are not encrypted.
 * `maxEventBytes` is for tests only.
 */
export class EventDecrypter implements Decrypter {
  failure: PrivatemodeError | undefined = undefined;
  finished = false;
  /** Events delivered so far, the terminal one included. */
  events = 0;
  modelError = false;

  readonly #cipher: Opener;
  readonly #events: StreamGrammar['events'];
  readonly #named: boolean; // its events are
  readonly #plain: PlainMembers;
  readonly #order: EventOrder;
  readonly #usageWanted: RequestFacts['usage'];
  readonly #maxEventBytes: number;
  readonly #reader: SealedReader;
  // It has no onError: the parser would make an error object for each line that means nothing.
  readonly #parser = createParser({
    onEvent: (event) => this.#onEvent(event),
    onRetry: (milliseconds) => this.#deliver(`retry: ${milliseconds}\n`),
    onComment: () => this.#deliver(':\n\n'), // keeps the connection alive
  });
  #last: EventKind | undefined;
  /** By member: its value, which is the same in all events that have it. */
  readonly #constants = new Map<string, string>();
  #delivered = ''; // by the chunk that is being read; each character is one byte
  #ended = false; // no more bytes are looked at
  #unended = 0; // bytes on the wire since the last event
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
    this.#events = stream.events;
    this.#named = stream.order === 'blocks';
    this.#plain = plain;
    this.#order = orderOf(stream, choices);
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
    if (this.#ended) return EMPTY;
    try {
      this.#unended += chunk.length;
      this.#parser.feed(Buffer.from(chunk.buffer, chunk.byteOffset, chunk.byteLength).toString('latin1'));
      // The parser's own limit counts only the data of the lines, and lines without any cost something too.
      if (this.#unended > this.#maxEventBytes) {
        const message = `an event of the stream is larger than ${this.#maxEventBytes} bytes`;
        throw new PrivatemodeError('response_too_large', message);
      }
    } catch (thrown) {
      this.#ended = true;
      if (!this.modelError) this.failure = asPrivatemodeError(thrown);
    }
    const delivered = this.#delivered;
    this.#delivered = '';
    return Buffer.from(delivered, 'latin1');
  }

  end(): Uint8Array {
    if (!this.#ended && !this.modelError) {
      this.failure = new PrivatemodeError('stream_unfinished', 'the stream ended before its last event');
    }
    return EMPTY;
  }

  #deliver(text: string): void {
    if (!this.#ended) this.#delivered += text;
  }

  #onEvent({ data, event: name }: EventSourceMessage): void {
    this.#unended = 0;
    if (this.#ended) return;
    if (data === '') return; // some servers send it as a heartbeat, and nothing sealed can hide in it
    if (data.length === 6 && data.toUpperCase() === '[DONE]') {
      // Part of the OpenAI-style APIs only; elsewhere it means nothing and is dropped.
      if (!this.#named) this.#end('data: [DONE]\n\n'); // some clients know it in capitals only
      return;
    }
    if (this.modelError) return;
    const object = this.#reader.object(data);
    const kind = this.#kindOf(object);
    if (this.#named && name !== kind.type) throw notAuthentic('the name of an event is not its type');
    if (object.sealed.length > 0) this.#decrypt(kind, object);
    else if (kind.type === 'message_stop') this.#end(this.#written(kind, object, true));
    else this.#write(this.#written(kind, object, true));
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
    if (!this.#order.complete && !this.modelError) {
      throw new PrivatemodeError('stream_unfinished', 'the stream ended before the answer did');
    }
    this.#write(event);
    this.#ended = true;
    this.finished = true;
  }

  /** The kind of an event. Throws response_not_authentic if the API has no such event. */
  #kindOf({ names, values, sealed }: SealedObject): EventKind {
    const written = this.#named ? values[names.indexOf('type')] : undefined;
    const last = this.#last;
    if (last?.names === names && last.written === written) return last;
    const unnamed = names.includes('error') && !names.includes('choices') ? 'error' : 'chunk';
    const type = this.#named ? (written ?? '').slice(1, -1) : unnamed;
    const row = Object.hasOwn(this.#events, type) ? this.#events[type] : undefined;
    if (row === undefined || !hasNames(row, sealed, this.#plain)) {
      throw notAuthentic('an event is not one of this API');
    }
    this.#last = { names, written, type, row };
    return this.#last;
  }

  /** Opens, checks and delivers an event. */
  #decrypt(kind: EventKind, object: SealedObject): void {
    const { names, values, sealed } = object;
    const messages: string[] = [];
    for (const { at } of sealed) messages.push(values[at]!);
    const opened = this.#cipher.open(messages);
    const content = this.#check(kind, sealed, opened);
    for (let k = 0; k < sealed.length; k++) values[sealed[k]!.at] = opened[k]!;
    if (kind.type === 'message_start') this.#promptUsage = tokenUsage((content as { usage?: unknown }).usage);
    if (kind.type === 'error') {
      const shown = overflowError(content, this.#named ? 'anthropic' : 'openai');
      if (shown !== undefined) values[names.indexOf('error')] = JSON.stringify(shown);
      this.modelError = true;
      this.finished = this.#named; // elsewhere `[DONE]` follows
    }
    const isClosing = Array.isArray(content) && content.length === 0;
    if (isClosing && this.#usageWanted === 'none') return; // the closing chunk has nothing else to say
    const hasUsage = this.#usageWanted === 'every' || (isClosing && this.#usageWanted === 'last');
    this.#write(this.#written(kind, object, hasUsage));
  }

  /**
   * Checks the opened messages of the next event. Returns the parsed value of its member `content`, if its
   * row has one. Throws response_not_authentic if a check fails.
   */
  #check({ type, row }: EventKind, sealed: SealedObject['sealed'], opened: readonly string[]): unknown {
    let content: unknown;
    let index: unknown;
    for (let k = 0; k < sealed.length; k++) {
      const { name } = sealed[k]!;
      const text = opened[k]!;
      const first = this.#constants.get(name);
      if (first !== undefined) {
        if (text !== first) throw notAuthentic('the events are not of one response');
        continue;
      }
      const value = openedValue(text);
      if (!fitsRow(row, name, value)) throw notAuthentic('the members of an event are not its own');
      if (name === row.content) content = value;
      else if (name === 'index') index = value;
      else if (row.object !== undefined && requiredKind(row, name)) this.#constants.set(name, text);
    }
    this.#order.take(type, content, index);
    return content;
  }

  /**
   * The text of an event with these values. Line ends in JSON text mean the same as blanks; clients that read
   * each line on its own would lose the event.
   */
  #written({ type }: EventKind, { names, values }: SealedObject, hasUsage: boolean): string {
    let data = '';
    for (let k = 0; k < names.length; k++) {
      const name = names[k]!;
      if (name === 'usage' && !hasUsage) continue;
      data += `${data === '' ? '{' : ','}"${name}":${values[k]!}`;
    }
    const line = data.includes('\n') || data.includes('\r') ? data.replace(LINE_END, ' ') : data;
    return `${this.#named ? `event: ${type}\n` : ''}data: ${line}}\n\n`;
  }
}
