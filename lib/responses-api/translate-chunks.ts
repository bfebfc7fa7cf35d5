/**
 * Translates the chunks of one chat completion into the events of one Response, and decides when each item
 * begins and ends.
 */
import { PrivatemodeError } from '../errors.ts';
import { scanJson } from '../json/scan.ts';
import { malformed } from '../pipeline/decrypter.ts';
import { cutArguments, inputIn } from './custom-input.ts';
import { isObject, type PlainObject } from './request-refusal.ts';
import {
  type CallHead,
  callItem,
  createCallHeads,
  isText,
  logprobsOf,
  messageItem,
  newId,
  OUTCOMES,
  PART_TEXTS,
  type Part,
  partItem,
  type ResponseContext,
  type ResponseHead,
  type ResponseState,
  reasoningItem,
  responseHead,
  responseText,
} from './response-object.ts';

/** Most bytes that a response may hold for its last events (`held`): the limit of a whole body. */
const MAX_HELD = 128 * 1024 * 1024;
/** What each piece of text adds to `held` beside its characters, in bytes. */
const PIECE_COST = 64;

const tooLarge = () =>
  new PrivatemodeError('response_too_large', 'the response is larger than a translation can be');

/** Writes the events of a stream, numbered without gaps. */
class EventLog {
  /** Events written so far; also the number of the next one. */
  events = 0;
  #pieces: Uint8Array[] = []; // written bytes that come before `#out`
  #out = '';

  /**
   * Writes every event. `members` is JSON text without the braces. If `rest` is given, the last object in
   * `members` is still open: `rest` continues it, and this method closes it.
   */
  write(type: string, members: string, rest?: Uint8Array): void {
    this.#out += `event: ${type}\ndata: {"type":"${type}","sequence_number":${this.events},${members}`;
    if (rest !== undefined) {
      this.#pieces.push(Buffer.from(this.#out), rest);
      this.#out = '}';
    }
    this.#out += '}\n\n';
    this.events += 1;
  }

  event(type: string, members: object): void {
    this.write(type, membersText(members));
  }

  /** Writes an empty comment, which means nothing and keeps the connection alive. */
  comment(): void {
    this.#out += ':\n\n';
  }

  /** Returns the bytes written since the last take. */
  take(): Uint8Array {
    const text = Buffer.from(this.#out);
    const bytes = this.#pieces.length === 0 ? text : Buffer.concat([...this.#pieces, text]);
    this.#pieces = [];
    this.#out = '';
    return bytes;
  }

  /** Runs `writes`. If it throws, none of the events that it wrote remains. */
  atOnce(writes: () => void): void {
    const [pieces, out, sequence] = [this.#pieces.length, this.#out, this.events];
    try {
      writes();
    } catch (thrown) {
      this.#pieces.length = pieces;
      this.#out = out;
      this.events = sequence;
      throw thrown;
    }
  }
}

interface TextItem {
  readonly kind: 'reasoning' | 'message';
  readonly id: string;
  readonly index: number;
  readonly parts: PlacedPart[];
}

/** A tool call. It has an item as soon as the chat completion has named the tool. */
interface Call {
  id: unknown;
  args: string;
  /** Characters of `args` that deltas have sent. */
  sent: number;
  item: (CallHead & { readonly index: number }) | undefined;
}

/** How the types of a call's delta and done events begin. A tool search has only the events of its item. */
const CALL_EVENTS: Readonly<Record<CallHead['origin']['kind'], string | undefined>> = {
  function: 'response.function_call_arguments',
  custom: 'response.custom_tool_call_input',
  tool_search: undefined,
};

/**
 * A part, and its place as the JSON text with which the members of all its events begin. It is made once,
 * because each piece of text becomes an event.
 */
interface PlacedPart extends Part {
  readonly place: string;
}

/** The members as JSON text without the braces. */
const membersText = (members: object): string => JSON.stringify(members).slice(1, -1);

/** Arguments that stand for no arguments. */
const NONE = 'null';

/**
 * Returns the arguments that no delta has sent yet, and counts them as sent: all arguments before the first
 * delta, then `piece` alone. Returns nothing while the arguments may still become NONE, and for a custom
 * tool, whose input is read when its arguments are complete. After the first delta it does not read `args`,
 * because V8 would join all its pieces anew for each reading.
 */
function unsent(call: Call, piece: string): string {
  if (call.item?.origin.kind === 'custom' || (call.sent === 0 && NONE.startsWith(call.args))) return '';
  const rest = call.sent === 0 ? call.args : piece;
  call.sent += rest.length;
  return rest;
}

/**
 * The arguments of a function, or the input of a custom tool, and the `rest` that no delta has sent. Some
 * models send no arguments, or NONE, where they mean an object without members.
 */
function wholeArguments({ args, sent, item }: Call): { readonly input: string; readonly rest: string } {
  if (item?.origin.kind === 'custom') {
    const input = inputIn(args);
    return { input, rest: input };
  }
  const input = args === '' || args === NONE ? '{}' : args;
  return { input, rest: input.slice(sent) };
}

/**
 * Whether the text begins a JSON object and ends before the object does. Other texts pass: the model may have
 * got its JSON wrong, and then it reads what the tool says.
 */
function isCut(args: string): boolean {
  if (!/^\s*\{/.test(args)) return false;
  try {
    // In a list, because the scan restricts the names of members at the top.
    return scanJson(Buffer.from(`[${args}`), { array: true, partial: true }).members.length === 0;
  } catch {
    return false;
  }
}

/**
 * Translates one chat completion. An agent runs a tool as soon as the item of its call is done, whatever
 * comes later. So the calls and the message are done only in `accept`, which says that the chat completion
 * was whole; a failure before `accept` leaves them open.
 */
export class ChatTranslation {
  readonly log = new EventLog();
  isOver = false;
  #last = ''; // the beginning of the last Response object, see responseText
  /** Text that is kept for the last events: its characters, and PIECE_COST bytes for each piece. */
  held = 0;
  #head: ResponseHead | undefined;
  readonly #items: (TextItem | Call)[] = []; // by output_index
  #reasoning: TextItem | undefined; // the open one, if any
  #message: TextItem | undefined;
  readonly #calls = new Map<unknown, Call>(); // by the index in chat
  #finish: unknown;
  #usage: unknown;
  readonly #context: ResponseContext;
  readonly #callHead: ReturnType<typeof createCallHeads>;
  readonly #maxHeld: number;

  constructor(context: ResponseContext, maxHeld = MAX_HELD) {
    this.#context = context;
    this.#callHead = createCallHeads(context);
    this.#maxHeld = maxHeld;
  }

  #respond(type: string, head: ResponseHead, state: ResponseState): void {
    this.#last = responseText(head, state);
    this.log.write(type, `"response":${this.#last}`, this.#context.echo);
  }

  /** The last Response object, as JSON. */
  get response(): Buffer {
    return Buffer.concat([Buffer.from(this.#last), this.#context.echo, Buffer.from('}')]);
  }

  #begin(chunk?: PlainObject): ResponseHead {
    if (this.#head !== undefined) return this.#head;
    this.#head = responseHead(this.#context, chunk);
    this.#respond('response.created', this.#head, { status: 'in_progress' });
    this.#respond('response.in_progress', this.#head, { status: 'in_progress' });
    return this.#head;
  }

  /** Takes a chunk that is no error. Throws response_malformed and response_too_large. */
  chunk(chunk: PlainObject): void {
    this.#begin(chunk);
    if (isObject(chunk['usage'])) this.#usage = chunk['usage'];
    for (const choice of Array.isArray(chunk['choices']) ? chunk['choices'] : []) this.#choice(choice);
  }

  #choice(choice: unknown): void {
    const delta = isObject(choice) ? (choice['delta'] ?? {}) : undefined;
    if (!isObject(choice) || !isObject(delta)) throw malformed('a choice of the response is not an object');
    // The service sends the same reasoning under two names.
    const reasoning = delta['reasoning'] ?? delta['reasoning_content'];
    const { content, refusal, tool_calls: calls } = delta;
    if (isText(reasoning)) {
      this.#reasoning ??= this.#open('reasoning');
      this.#text(this.#reasoning, 'reasoning_text', reasoning);
    }
    if (isText(content)) {
      const logprobs = this.#context.logprobs ? logprobsOf(choice) : [];
      this.#text(this.#openMessage(), 'output_text', content, logprobs);
    }
    if (isText(refusal)) this.#text(this.#openMessage(), 'refusal', refusal);
    for (const [at, call] of (Array.isArray(calls) ? calls : []).entries()) this.#callPiece(call, at);
    this.#finish = choice['finish_reason'] ?? this.#finish;
  }

  #hold(size: number): void {
    this.held += size + PIECE_COST;
    if (this.held > this.#maxHeld) throw tooLarge();
  }

  #add(item: TextItem | Call, shown: object): void {
    this.log.event('response.output_item.added', { output_index: this.#items.length, item: shown });
    this.#items.push(item);
  }

  #open(kind: TextItem['kind']): TextItem {
    const id = newId(kind === 'message' ? 'msg' : 'rs');
    const item: TextItem = { kind, id, index: this.#items.length, parts: [] };
    this.#add(
      item,
      kind === 'message' ? messageItem(id, 'in_progress', []) : reasoningItem(id, 'in_progress', []),
    );
    return item;
  }

  #openMessage(): TextItem {
    this.#endReasoning();
    this.#message ??= this.#open('message');
    return this.#message;
  }

  #text(item: TextItem, type: Part['type'], delta: string, logprobs: readonly object[] = []): void {
    const logprobsText = logprobs.length > 0 ? JSON.stringify(logprobs) : '[]';
    this.#hold(delta.length + logprobsText.length);
    let part = item.parts.find((other) => other.type === type);
    if (part === undefined) {
      const index = item.parts.length;
      const place = membersText({ item_id: item.id, output_index: item.index, content_index: index });
      part = { index, type, text: '', logprobs: [], place };
      item.parts.push(part);
      this.log.write('response.content_part.added', `${place},"part":${JSON.stringify(partItem(part))}`);
    }
    part.text += delta;
    for (const one of logprobs) part.logprobs.push(one);
    const rest = type === 'output_text' ? `,"logprobs":${logprobsText}` : '';
    this.log.write(`response.${type}.delta`, `${part.place},"delta":${JSON.stringify(delta)}${rest}`);
  }

  #callPiece(piece: unknown, at: number): void {
    const { index = at, id, function: of = {} } = isObject(piece) ? piece : {};
    if (!isObject(piece) || !isObject(of)) throw malformed('a tool call of the response is not an object');
    const { name, arguments: args } = of;
    const text = isText(args) ? args : '';
    this.#endReasoning();
    this.#hold(text.length);
    let call = this.#calls.get(index);
    if (call === undefined) {
      call = { id, args: '', sent: 0, item: undefined };
      this.#calls.set(index, call);
    }
    call.id ??= id;
    call.args += text;
    if (call.item !== undefined) {
      if (isText(name) && name !== call.item.chatName)
        throw malformed('a call of the response changes its name');
      this.#callDelta(call, unsent(call, text));
    } else if (isText(name)) {
      call.item = { ...this.#callHead(name, call.id), index: this.#items.length };
      this.#add(call, callItem(call.item, 'in_progress', ''));
      this.#callDelta(call, unsent(call, text));
    }
  }

  #callDelta({ item }: Call, delta: string): void {
    const type = item && CALL_EVENTS[item.origin.kind];
    if (type === undefined || delta === '') return;
    this.log.event(`${type}.delta`, { item_id: item?.id, output_index: item?.index, delta });
  }

  #done(output_index: number, item: object): object {
    this.log.event('response.output_item.done', { output_index, item });
    return item;
  }

  #endReasoning(): void {
    const item = this.#reasoning;
    this.#reasoning = undefined;
    if (item !== undefined) this.#endText(item, 'completed');
  }

  #endText(item: TextItem, status: 'completed' | 'incomplete'): object {
    for (const part of item.parts) {
      const { type, text, logprobs, place } = part;
      const members = { [PART_TEXTS[type]]: text, ...(type === 'output_text' && { logprobs }) };
      this.log.write(`response.${type}.done`, `${place},${membersText(members)}`);
      this.log.write('response.content_part.done', `${place},"part":${JSON.stringify(partItem(part))}`);
    }
    return this.#done(item.index, this.#textItem(item, status));
  }

  #textItem({ kind, id, parts }: TextItem, status: 'completed' | 'incomplete'): object {
    const content = parts.map(partItem);
    if (kind === 'message') return messageItem(id, status, content);
    return reasoningItem(id, 'completed', content, this.#context.sealsReasoning ? parts[0]?.text : undefined);
  }

  #endCall({ item }: Call, value: string): object[] {
    if (item === undefined) return [];
    const { kind, name } = item.origin;
    const members = kind === 'custom' ? { input: value } : { name, arguments: value };
    const place = { item_id: item.id, output_index: item.index };
    if (kind !== 'tool_search') this.log.event(`${CALL_EVENTS[kind]}.done`, { ...place, ...members });
    return [this.#done(item.index, callItem(item, 'completed', value))];
  }

  /**
   * Says that the chat completion was whole: now, and only now, the calls and the message are done. Throws
   * stream_unfinished if the service ended the completion in a way that the API does not know, or cut the
   * arguments of a call; response_malformed if a call has no name, or its arguments are broken;
   * response_too_large. If it throws, nothing is done.
   */
  accept(): void {
    try {
      this.log.atOnce(() => this.#complete());
    } catch (thrown) {
      // These events hold the text four times, escaped: together they may exceed the longest string of V8.
      throw thrown instanceof RangeError ? tooLarge() : thrown;
    }
  }

  #complete(): void {
    const isEmpty = this.#items.length === 0 && this.#calls.size === 0;
    // The service may send no `finish_reason` if the model wrote no token.
    const outcome = OUTCOMES.get(this.#finish ?? (isEmpty ? 'stop' : undefined));
    if (outcome === undefined) {
      throw new PrivatemodeError('stream_unfinished', 'the service ended the response early');
    }
    const { status } = outcome;
    const ends = new Map<Call, { readonly input: string; readonly rest: string }>();
    for (const call of status === 'completed' ? this.#calls.values() : []) {
      if (call.item === undefined) throw malformed('a call of the response has no name');
      if (isCut(call.args)) throw cutArguments();
      ends.set(call, wholeArguments(call));
    }
    const head = this.#begin();
    this.#endReasoning();
    const output = this.#items.flatMap((item) => {
      if ('kind' in item)
        return [item.kind === 'message' ? this.#endText(item, status) : this.#textItem(item, status)];
      const end = ends.get(item);
      if (end === undefined) return [];
      this.#callDelta(item, end.rest);
      return this.#endCall(item, end.input);
    });
    this.#respond(`response.${status}`, head, { ...outcome, output, usage: this.#usage });
    this.isOver = true;
  }

  /** Ends the Response as failed. It then has no output, because nothing of the response may be used. */
  fail(error: { readonly code: string; readonly message: string }): void {
    if (this.isOver) return;
    this.#respond('response.failed', this.#begin(), { status: 'failed', error });
    this.isOver = true;
  }
}
