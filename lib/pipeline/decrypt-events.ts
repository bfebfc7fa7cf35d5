/** Decrypts event streams (docs/protocol/inference.md 6.2). */
import { createParser, type EventSourceMessage } from 'eventsource-parser';
import type { Endpoint } from '../api/endpoints.ts';
import { asPrivatemodeError, PrivatemodeError } from '../errors.ts';
import { overflowError } from './context-overflow.ts';
import { Crumbs } from './crumbs.ts';
import type { Decrypter, EventSink, Opener, RequestFacts } from './decrypter.ts';
import { jsonOf, type Members, malformed, notAuthentic, own, tokenUsage } from './decrypter.ts';
import { blocksOrder, type EventOrder } from './event-order.ts';
import { fitsRow, type GrammarRow, grammarOf, hasNames, type ResponseGrammar } from './response-grammar.ts';
import { objectText, type SealedObject } from './sealed-json.ts';

const MAX_BYTES = 32 * 1024 * 1024; // a larger event is refused, because events are held in memory
const NOT_LARGE = 16 * 1024;

/**
 * Parses each event, opens and checks its messages, and writes the event anew from what was understood.
 * `feed` returns complete events with `data` in one line, and `retry` fields. With a `sink`, `feed` returns
 * the events of the sink instead. Comments pass without text; ids and unknown fields are dropped. Clients may
 * skip an event because of its name, which nothing authenticates. So only events of the Messages API keep a
 * name, which must equal their `type`. `failure` is response_not_authentic (a wrong tag or sequence, a plain
 * value for a message, an event that breaks the grammar), response_malformed, response_too_large,
 * stream_unfinished or what the sink throws. Events before a failure are delivered. The constructor throws
 * what grammarOf throws, and response_malformed if there are no streams. `maxBytes` is for tests.
 */
export class EventDecrypter implements Decrypter {
  failure: PrivatemodeError | undefined = undefined;
  finished = false;
  modelError = false;
  sink: EventSink | undefined = undefined; // the caller sets the sink before it feeds the first byte

  readonly #cipher: Opener;
  readonly #usageWanted: RequestFacts['usage'];
  readonly #maxBytes: number;
  readonly #grammar: ResponseGrammar;
  readonly #named: boolean; // whether events have names; they do in the Messages API
  readonly #follow: EventOrder;
  // Without onError, the parser makes no error object for each line that it does not know.
  readonly #parser = createParser({
    onEvent: (event) => this.#onEvent(event),
    onRetry: (milliseconds) => this.#deliver(`retry: ${milliseconds}\n`),
    onComment: () => this.#deliver(':\n\n'), // a comment keeps the connection alive
  });
  /** Members that are equal in all events. For each name: JSON text and value in the first event. */
  readonly #constants = new Map<string, { text: string; value: unknown }>();
  #complete = false; // whether the response is complete, so that its last event may come
  #delivered = ''; // what the current chunk has delivered so far; each character is one byte
  #unended = 0; // bytes on the wire since the last complete event
  readonly #crumbs = new Crumbs();
  #events = 0;
  #usage: unknown; // the last `usage` that the service sent as a plain member
  #startUsage: unknown; // the `usage` in the event message_start

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

  /** Bytes of memory, at most, of a large event without an end: its lines are strings of their own. */
  get held(): number {
    return this.#unended > NOT_LARGE ? 12 * this.#unended : 0;
  }

  /** The latest token counts. If the client leaves early, the counts cover the tokens of one choice only. */
  get usage() {
    return tokenUsage(this.#usage, tokenUsage(this.#startUsage));
  }

  feed(chunk: Uint8Array): Uint8Array {
    if (this.finished) return Buffer.alloc(0);
    try {
      this.#crumbs.count(chunk);
      this.#unended += chunk.length;
      this.#parser.feed(Buffer.from(chunk.buffer, chunk.byteOffset, chunk.byteLength).toString('latin1'));
      // The limit of the parser counts only the data of lines, but lines without data also cost time.
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

  /** The failures here say "ended without": by these words the agent pi knows that it may ask again. */
  end(): void {
    if (!this.finished && !this.modelError) {
      this.failure = new PrivatemodeError('stream_unfinished', 'the stream ended without its last event');
    }
  }

  #deliver(text: string): void {
    if (!this.finished) this.#delivered += text;
  }

  /** Delivers an event. Throws if a terminal event comes too early: clients would take it for success. */
  #write(event: string, isLast: boolean): void {
    if (isLast && !this.#complete && !this.modelError) {
      throw new PrivatemodeError('stream_unfinished', 'the stream ended without the end of the answer');
    }
    if (this.sink === undefined) this.#deliver(event);
    else this.sink.accept();
    this.#events += 1;
    this.finished = isLast;
  }

  #onEvent({ data, event: name }: EventSourceMessage): void {
    this.#unended = 0;
    if (this.finished || data === '') return; // an event without data is a heartbeat; it hides nothing sealed
    if (data.length === 6 && data.toUpperCase() === '[DONE]') {
      // In the Messages API `[DONE]` means nothing. `[DONE]` is sent in capitals, which all clients know.
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
    if (isClosing && this.#usageWanted === 'none') return; // a closing chunk holds nothing but usage
    const hasUsage = this.#usageWanted === 'every' || (isClosing && this.#usageWanted === 'last');
    const json = objectText(layout, values, hasUsage ? undefined : 'usage');
    // A line end in JSON means the same as a blank, but clients that read line by line would lose the event.
    const line = json.includes('\n') || json.includes('\r') ? json.replace(/\r\n?|\n/g, ' ') : json;
    const isLast = type === 'message_stop' || (type === 'error' && this.#named); // `[DONE]` ends chat streams
    this.#write(`${this.#named ? `event: ${type}\n` : ''}data: ${line}\n\n`, isLast);
  }

  /**
   * Opens and checks the messages of the next event, and puts the plaintext of each message into `values`. Of
   * the required members, one is neither `index` nor equal in all events: its parsed value is returned.
   */
  #open(type: string, row: GrammarRow, { layout: { names, sealed }, values }: SealedObject): unknown {
    const opened = this.#cipher.open(sealed.map((at) => values[at]!));
    this.#crumbs.reset();
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
