/** Decrypts event streams (docs/protocol/inference.md 6.2). */
import { createParser, type EventSourceMessage } from 'eventsource-parser';
import type { Endpoint } from '../api/endpoints.ts';
import { asPrivatemodeError, PrivatemodeError } from '../errors.ts';
import { overflowError } from './context-overflow.ts';
import type { Decrypter, EventSink, Opener, RequestFacts } from './decrypter.ts';
import { jsonOf, type Members, malformed, notAuthentic, own, tokenUsage } from './decrypter.ts';
import { blocksOrder, type EventOrder } from './event-order.ts';
import { fitsRow, type GrammarRow, grammarOf, hasNames, type ResponseGrammar } from './response-grammar.ts';
import { objectText, type SealedObject } from './sealed-json.ts';

const MAX_BYTES = 32 * 1024 * 1024; // of an event on the wire; a larger one is not held in memory

/**
 * Parses each event, opens and checks its messages, and writes it anew from what was understood. `feed`
 * returns complete events: `data` in one line, and `retry`; with a `sink`, what that writes in place of those
 * of a chat. Comments pass without their text; ids and unknown fields do not. Nobody authenticates the name
 * of an event, by which clients skip it: so only events of messages keep theirs, which must be their `type`.
 * Fails with response_not_authentic (a wrong tag or sequence, a plain value in place of a message, an event
 * that breaks the grammar), response_malformed, response_too_large, stream_unfinished or what the sink
 * throws; events before the failing one are delivered. The constructor throws response_malformed if the
 * endpoint has no streams, and as grammarOf does. `maxBytes` is for tests only.
 */
export class EventDecrypter implements Decrypter {
  failure: PrivatemodeError | undefined = undefined;
  finished = false;
  modelError = false;
  sink: EventSink | undefined = undefined; // set before the first byte

  readonly #cipher: Opener;
  readonly #usageWanted: RequestFacts['usage'];
  readonly #maxBytes: number;
  readonly #grammar: ResponseGrammar;
  readonly #named: boolean; // its events are
  readonly #follow: EventOrder;
  // It has no onError: the parser would make an error object for each line that means nothing.
  readonly #parser = createParser({
    onEvent: (event) => this.#onEvent(event),
    onRetry: (milliseconds) => this.#deliver(`retry: ${milliseconds}\n`),
    onComment: () => this.#deliver(':\n\n'), // keeps the connection alive
  });
  readonly #constants = new Map<string, { text: string; value: unknown }>(); // of all events that have it
  #complete = false; // the event that ends the stream would be true now
  #delivered = ''; // by the chunk that is being read; each character is one byte
  #unended = 0; // bytes on the wire since the last event
  #events = 0;
  #usage: unknown; // the latest plain member of that name
  #startUsage: unknown; // of message_start

  constructor(endpoint: Pick<Endpoint, 'id'>, cipher: Opener, asked: RequestFacts, maxBytes = MAX_BYTES) {
    this.#grammar = grammarOf(endpoint);
    const { order } = this.#grammar;
    if (order === undefined) throw malformed('the service answered with an event stream');
    this.#named = order === blocksOrder;
    this.#follow = order(asked.choices);
    this.#usageWanted = asked.usage;
    this.#cipher = cipher;
    this.#maxBytes = maxBytes;
  }

  get events() {
    return this.sink?.events ?? this.#events;
  }

  /** The latest counts: before the end, those of one choice so far, which count if the client leaves. */
  get usage() {
    return tokenUsage(this.#usage, tokenUsage(this.#startUsage));
  }

  feed(chunk: Uint8Array): Uint8Array {
    if (this.finished) return Buffer.alloc(0);
    try {
      this.#unended += chunk.length;
      this.#parser.feed(Buffer.from(chunk.buffer, chunk.byteOffset, chunk.byteLength).toString('latin1'));
      // The parser's own limit counts only the data of the lines, and lines without any cost something too.
      if (this.#unended > this.#maxBytes) {
        const message = `an event of the stream is larger than ${this.#maxBytes} bytes`;
        throw new PrivatemodeError('response_too_large', message);
      }
    } catch (thrown) {
      this.finished = true;
      if (!this.modelError || this.sink !== undefined) this.failure ??= asPrivatemodeError(thrown);
    }
    const delivered = this.#delivered;
    this.#delivered = '';
    return this.sink?.take(delivered) ?? Buffer.from(delivered, 'latin1');
  }

  end(): void {
    if (!this.finished && !this.modelError) {
      this.failure = new PrivatemodeError('stream_unfinished', 'the stream ended before its last event');
    }
  }

  #deliver(text: string): void {
    if (!this.finished) this.#delivered += text;
  }

  /** Delivers an event. Throws if it ends a stream that is unfinished: clients take it for success. */
  #write(event: string, isLast: boolean): void {
    if (isLast && !this.#complete && !this.modelError) {
      throw new PrivatemodeError('stream_unfinished', 'the stream ended before the answer did');
    }
    if (this.sink === undefined) this.#deliver(event);
    else this.sink.accept();
    this.#events += 1;
    this.finished = isLast;
  }

  #onEvent({ data, event: name }: EventSourceMessage): void {
    this.#unended = 0;
    if (this.finished || data === '') return; // an empty one is a heartbeat: nothing sealed can hide in it
    if (data.length === 6 && data.toUpperCase() === '[DONE]') {
      // Elsewhere it means nothing. Some clients know it in capitals only.
      if (!this.#named) this.#write('data: [DONE]\n\n', true);
      return;
    }
    if (this.modelError) return;
    const object = this.#grammar.read(data);
    const { layout, values } = object;
    const { names } = layout;
    const unnamed = names.includes('error') && !names.includes('choices') ? 'error' : 'chunk';
    const type = this.#named ? (object.type ?? '') : unnamed;
    const row = own(this.#grammar.events!, type);
    if (row === undefined || !hasNames(row, layout, this.#grammar.plain)) {
      throw notAuthentic('an event is not one of this API');
    }
    if (this.#named && name !== type) throw notAuthentic('the name of an event is not its type');
    const content = this.#open(type, row, object);
    if (object.usage !== undefined) this.#usage = object.usage;
    if (type === 'message_start') this.#startUsage = (content as { usage?: unknown }).usage;
    if (type === 'error') {
      this.modelError = true;
      const at = names.indexOf('error');
      const error: unknown = JSON.parse(Buffer.from(values[at]!, 'latin1').toString());
      const shown = overflowError(error, this.#named ? 'anthropic' : 'openai');
      if (shown !== undefined) values[at] = Buffer.from(JSON.stringify(shown)).toString('latin1');
      this.sink?.error((shown ?? error) as Members);
    }
    if (this.sink !== undefined) {
      const [created, model] = ['created', 'model'].map((name) => this.#constants.get(name)?.value);
      return void this.sink.chunk({ created, model, choices: content, usage: object.usage });
    }
    const isClosing = Array.isArray(content) && content.length === 0;
    if (isClosing && this.#usageWanted === 'none') return; // the closing chunk has nothing else to say
    const hasUsage = this.#usageWanted === 'every' || (isClosing && this.#usageWanted === 'last');
    const json = objectText(layout, values, hasUsage ? undefined : 'usage');
    // In JSON, line ends mean the same as blanks; clients that read line by line would lose the event.
    const line = json.includes('\n') || json.includes('\r') ? json.replace(/\r\n?|\n/g, ' ') : json;
    const isLast = type === 'message_stop' || (type === 'error' && this.#named); // elsewhere `[DONE]` follows
    this.#write(`${this.#named ? `event: ${type}\n` : ''}data: ${line}\n\n`, isLast);
  }

  /**
   * Opens and checks the messages of the next event, and puts what they hold in their places. Returns the
   * parsed value of the required member that is neither `index` nor the same in all events.
   */
  #open(type: string, row: GrammarRow, { layout: { names, sealed }, values }: SealedObject): unknown {
    const opened = this.#cipher.open(sealed.map((at) => values[at]!));
    let content: unknown;
    let index: unknown;
    for (let k = 0; k < sealed.length; k++) {
      const name = names[sealed[k]!]!;
      const text = opened[k]!;
      values[sealed[k]!] = text;
      const first = this.#constants.get(name)?.text;
      if (text === first) continue;
      if (first !== undefined) throw notAuthentic('the events are not of one response');
      const isShown = this.sink !== undefined && /[^\x00-\x7f]/.test(text);
      const value = jsonOf(isShown ? Buffer.from(text, 'latin1').toString() : text);
      if (!fitsRow(row, name, value)) throw notAuthentic('the members of an event are not its own');
      if (!Object.hasOwn(row.required, name)) continue;
      if (name === 'index') index = value;
      else if (row.object !== undefined && name !== 'choices') this.#constants.set(name, { text, value });
      else content = value;
    }
    this.#complete = this.#follow(type, content, index);
    return content;
  }
}
