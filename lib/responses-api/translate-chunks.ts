/**
 * Translates the chunks of one chat completion into the events of one Response, and decides when each item
 * begins and ends (docs/protocol/responses.md).
 */
import { PrivatemodeError } from '../errors.ts';
import { type EventSink, malformed } from '../pipeline/decrypter.ts';
import { CALLS, type Call, callItem, createCalls, unsent, wholeArguments } from './calls.ts';
import { isObject, type PlainObject } from './request-refusal.ts';
import {
  newId,
  type Part,
  partItem,
  partText,
  type ResponseContext,
  type ResponseState,
  responseWriter,
  type TextItem,
  textItem,
} from './response-object.ts';

/** The most characters of texts, arguments and items in one response. All are kept until its end. */
const MOST_TEXT = 16 * 1024 * 1024;
/** Each piece counts as so many characters more, because V8 keeps every piece of a growing text. */
const PIECE = 16;

const tooLarge = () =>
  new PrivatemodeError('response_too_large', 'the response is too large for a translation');

/** Why a response is incomplete, by `finish_reason`. Undefined: complete. Reasons not listed are failures. */
const REASONS: ReadonlyMap<unknown, string | undefined> = new Map([
  ['stop', undefined],
  ['tool_calls', undefined],
  ['length', 'max_output_tokens'],
  ['content_filter', 'content_filter'],
]);

/**
 * The `error.code` of a Response, by the `code` in an error of the service. That `code` is an HTTP status, or
 * the code for a full context window. A `code` that is not listed becomes `server_error`.
 */
const ERROR_CODES: ReadonlyMap<unknown, string> = new Map<unknown, string>([
  [400, 'invalid_prompt'],
  [413, 'invalid_prompt'],
  [422, 'invalid_prompt'],
  [429, 'rate_limit_exceeded'],
  ['context_length_exceeded', 'context_length_exceeded'],
]);

const isText = (value: unknown): value is string => typeof value === 'string' && value !== '';

/**
 * Translates one chat completion. An agent runs a tool as soon as the item of its call is done, whatever
 * comes later. So calls and the message become done only in `accept`, which is called once the chat
 * completion is complete. After a failure before `accept`, calls and message stay open.
 */
export class ChatTranslation implements EventSink {
  /** The last Response object, as JSON. */
  response = '';
  /** How many events were written so far. The next event has this sequence number. */
  events = 0;
  #out = ''; // events written since the last `take`
  #isOver = false;
  size = 0; // characters that are kept; see MOST_TEXT
  #asJson: ReturnType<typeof responseWriter> | undefined; // undefined until something is written
  readonly #items: (TextItem | Call)[] = []; // items by output_index
  readonly #texts: { reasoning?: TextItem | undefined; message?: TextItem } = {}; // the items still open
  readonly #calls = new Map<unknown, Call>(); // calls by their index in the chat completion
  #finish: unknown;
  #usage: unknown;
  readonly #context: ResponseContext;
  readonly #newCall: ReturnType<typeof createCalls>;

  constructor(context: ResponseContext) {
    this.#context = context;
    this.#newCall = createCalls(context);
  }

  take(before: string): Uint8Array {
    const text = before + this.#out;
    this.#out = '';
    return Buffer.from(text);
  }

  /** Writes an event. `members`: what follows type and sequence number, as JSON text without the braces. */
  #write(type: string, members: string): void {
    const rest = members && `,${members}`;
    this.#out += `event: ${type}\ndata: {"type":"${type}","sequence_number":${this.events}${rest}}\n\n`;
    this.events += 1;
  }

  #event(type: string, members: object): void {
    this.#write(type, JSON.stringify(members).slice(1, -1));
  }

  #begin(chunk: PlainObject = {}): void {
    if (this.#asJson !== undefined) return;
    this.#asJson = responseWriter(this.#context, chunk);
    this.#respond('created', { status: 'in_progress' });
    this.#respond('in_progress', { status: 'in_progress' });
  }

  #respond(event: string, state: ResponseState): void {
    this.response = this.#asJson!(state);
    this.#write(`response.${event}`, `"response":${this.response}`);
  }

  /** Takes a checked chunk of the chat completion. Throws response_malformed and response_too_large. */
  chunk(chunk: PlainObject): void {
    this.#begin(chunk);
    this.#usage = chunk['usage'] ?? this.#usage;
    for (const { delta, finish_reason: finish } of chunk['choices'] as readonly PlainObject[]) {
      this.#delta(delta as PlainObject);
      this.#finish = finish ?? this.#finish;
    }
  }

  #delta({ content, refusal, tool_calls: calls, reasoning, reasoning_content }: PlainObject): void {
    const thought = reasoning ?? reasoning_content; // the service sends reasoning under two names
    if (isText(thought)) this.#text('reasoning_text', thought);
    if (isText(content)) this.#text('output_text', content);
    if (isText(refusal)) this.#text('refusal', refusal);
    for (const [at, piece] of (Array.isArray(calls) ? calls : []).entries()) this.#callPiece(piece, at);
  }

  #add<Item extends TextItem | Call>(item: Item, shown: object): Item {
    this.#hold(JSON.stringify(shown)); // the service chooses the number of items, and the names of calls
    this.#event('response.output_item.added', { output_index: item.index, item: shown });
    this.#items.push(item);
    return item;
  }

  #open(kind: TextItem['kind']): TextItem {
    const id = newId(kind === 'message' ? 'msg' : 'rs');
    const item: TextItem = { kind, id, index: this.#items.length, parts: [] };
    return this.#add(item, textItem(item, 'in_progress'));
  }

  #hold(text: string): void {
    this.size += text.length + PIECE;
    if (this.size > MOST_TEXT) throw tooLarge();
  }

  #text(type: Part['type'], delta: string): void {
    const kind = type === 'reasoning_text' ? 'reasoning' : 'message';
    this.#hold(delta);
    if (kind === 'message') this.#endReasoning();
    this.#texts[kind] ??= this.#open(kind);
    const { id, index, parts } = this.#texts[kind];
    let part = parts.find((other) => other.type === type);
    if (part === undefined) {
      part = { type, text: '', place: { item_id: id, output_index: index, content_index: parts.length } };
      parts.push(part);
      this.#event('response.content_part.added', { ...part.place, part: partItem(part) });
    }
    part.text += delta;
    const rest = type === 'output_text' && { logprobs: [] };
    this.#event(`response.${type}.delta`, { ...part.place, delta, ...rest });
  }

  #callPiece(piece: unknown, at: number): void {
    const { index = at, id, function: of } = isObject(piece) ? piece : {};
    if (!isObject(of)) throw malformed('a tool call of the response is not an object');
    const { name, arguments: args } = of;
    const text = isText(args) ? args : '';
    this.#endReasoning();
    this.#hold(text);
    let call = this.#calls.get(index);
    if (call === undefined) {
      if (!isText(name)) throw malformed('a call of the response has no name');
      call = this.#newCall(name, id, this.#items.length);
      this.#calls.set(index, this.#add(call, callItem(call, 'in_progress', '')));
    } else if (isText(name) && name !== call.chatName) {
      throw malformed('a call of the response changes its name');
    }
    this.#callDelta(call, unsent(call, text));
  }

  #callDelta({ origin, place }: Call, delta: string): void {
    const { event } = CALLS[origin.kind];
    if (event !== undefined && delta !== '') this.#event(`response.${event}.delta`, { ...place, delta });
  }

  #done(output_index: number, item: object): object {
    this.#event('response.output_item.done', { output_index, item });
    return item;
  }

  #endReasoning(): void {
    if (this.#texts.reasoning !== undefined) this.#endText(this.#texts.reasoning, 'completed');
    this.#texts.reasoning = undefined;
  }

  #endText(item: TextItem, status: 'completed' | 'incomplete'): object {
    for (const part of item.parts) {
      this.#event(`response.${part.type}.done`, { ...part.place, ...partText(part) });
      this.#event('response.content_part.done', { ...part.place, part: partItem(part) });
    }
    return this.#done(item.index, textItem(item, status, this.#context.sealsReasoning));
  }

  #endCall(call: Call, value: string): object {
    const { kind, name } = call.origin;
    const { event, member } = CALLS[kind];
    this.#callDelta(call, value.slice(call.sent));
    const whole = { ...call.place, ...(kind === 'function' && { name }), [member]: value };
    if (event !== undefined) this.#event(`response.${event}.done`, whole);
    return this.#done(call.index, callItem(call, 'completed', value));
  }

  /**
   * Ends the Response after a whole chat completion, and only then marks calls and message as done. Throws
   * response_too_large. Throws stream_unfinished if the service cut the arguments of a call, or if it ended
   * the completion in a way that the API does not know. If `accept` throws, no call and no message is done.
   */
  accept(): void {
    const [out, events] = [this.#out, this.events];
    try {
      this.#complete();
    } catch (thrown) {
      this.#out = out;
      this.events = events;
      // The last events hold the text four times, escaped: together they may exceed the longest string of V8.
      throw thrown instanceof RangeError ? tooLarge() : thrown;
    }
  }

  #complete(): void {
    // The service may send no `finish_reason` if the model wrote no token.
    const finish = this.#finish ?? (this.#items.length === 0 ? 'stop' : undefined);
    if (!REASONS.has(finish)) {
      throw new PrivatemodeError('stream_unfinished', 'the service ended the response early');
    }
    const reason = REASONS.get(finish);
    const status = reason === undefined ? 'completed' : 'incomplete';
    const calls = status === 'completed' ? [...this.#calls.values()] : [];
    const ends = new Map(calls.map((call) => [call, wholeArguments(call)]));
    this.#begin();
    this.#endReasoning();
    const output = this.#items.flatMap((item) => {
      if ('kind' in item) {
        if (item.kind === 'message') return this.#endText(item, status);
        return textItem(item, status, this.#context.sealsReasoning);
      }
      const value = ends.get(item);
      return value === undefined ? [] : this.#endCall(item, value);
    });
    this.#respond(status, { status, reason, output, usage: this.#usage });
    this.#isOver = true;
  }

  /** Keeps a stream alive: by its first events, later by `keepalive` events. OpenAI's API does the same. */
  keepAlive(): void {
    if (this.#asJson === undefined) this.#begin();
    else if (!this.#isOver) this.#event('keepalive', {});
  }

  error({ message, code }: PlainObject): never {
    this.fail(message as string, ERROR_CODES.get(code));
    throw new PrivatemodeError('stream_unfinished', 'the service ended the response with an error');
  }

  /** Ends the Response as failed. The failed Response has no output, because nobody may use such output. */
  fail(message: string, code = 'server_error'): void {
    if (this.#isOver) return;
    this.#begin();
    this.#respond('failed', { status: 'failed', error: { code, message } });
    this.#isOver = true;
  }
}
