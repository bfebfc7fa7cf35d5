/** The chunks of one chat completion as the events of one Response: what is open, what is done, and when. */
import { PrivatemodeError } from '../errors.ts';
import { createJsonIndex } from '../pipeline/json/json-index.ts';
import { CustomInput } from './custom-input.ts';
import { isObject, type JsonObject } from './refusal.ts';
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

/** Bytes that a response may hold for its last events: as many as a whole body may have. */
const MAX_HELD = 128 * 1024 * 1024;
/** What a piece of text costs beside its characters. */
const PIECE_COST = 64;

export const malformed = (message: string) => new PrivatemodeError('response_malformed', message);

const tooLarge = () =>
  new PrivatemodeError('response_too_large', 'the response is larger than a translation can be');

/** Events of a stream as they go out, numbered without gaps. */
class EventLog {
  /** Events so far. */
  events = 0;
  #pieces: Uint8Array[] = []; // before the text
  #out = '';

  /** The one place where events are made. `members` is JSON text without the braces, whose last object goes on with `rest` if that is given. */
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

  /** A line that means nothing, and keeps the connection alive. */
  comment(): void {
    this.#out += ':\n\n';
  }

  /** The bytes since the last time. */
  take(): Uint8Array {
    const text = Buffer.from(this.#out);
    const bytes = this.#pieces.length === 0 ? text : Buffer.concat([...this.#pieces, text]);
    this.#pieces = [];
    this.#out = '';
    return bytes;
  }

  /** Does what writes events; if it throws, none of them was written. */
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

/** A call; it has an item once chat has told its name. */
interface Call {
  id: unknown;
  args: string;
  /** Characters of `args` that deltas have told. */
  told: number;
  item: (CallHead & { readonly index: number }) | undefined;
  custom: CustomInput | undefined;
}

/** How the events of a call begin; a search has none between its first and its last. */
const CALL_EVENTS: Readonly<Record<CallHead['origin']['kind'], string | undefined>> = {
  function: 'response.function_call_arguments',
  custom: 'response.custom_tool_call_input',
  tool_search: undefined,
};

/** A part, with its place as the JSON text that begins all of its events: each piece of text has one, and most of it is the same. */
interface PlacedPart extends Part {
  readonly place: string;
}

/** The members as JSON text without the braces. */
const membersText = (members: object): string => JSON.stringify(members).slice(1, -1);

/** Arguments that say there are none. */
const NONE = 'null';

/** What of the arguments no delta has told; nothing yet while they may become NONE. */
function untold(call: Call): string {
  if (NONE.startsWith(call.args)) return '';
  const rest = call.args.slice(call.told);
  call.told = call.args.length;
  return rest;
}

/** The arguments of a function, and what of them no delta has told: some models send none where they mean an object without members. */
function wholeArguments({ args, told }: Call): { readonly input: string; readonly rest: string } {
  const input = args === '' || args === NONE ? '{}' : args;
  return { input, rest: input.slice(told) };
}

/** Whether the text begins a JSON object and ends within it. Other texts may be JSON that the model got wrong: it reads what its tool says. */
function isCut(args: string): boolean {
  if (!/^\s*\{/.test(args)) return false;
  const index = createJsonIndex({ arrays: 'any' }); // in a list, so that names may be any
  try {
    index.feed(Buffer.from(`[${args}`));
  } catch {
    return false;
  }
  try {
    index.feed(Buffer.from(']'));
    index.finish();
    return false;
  } catch {
    return true;
  }
}

/**
 * An agent runs a tool once its item is done, whatever comes after. So `accept`, which says that the chat completion was whole, is what
 * makes calls and message done; a failure before it leaves them open.
 */
export class ChatTranslation {
  readonly log = new EventLog();
  isOver = false;
  #last = ''; // the last Response object, without its end
  /** Bytes of text that are kept for the last events. */
  held = 0;
  #head: ResponseHead | undefined;
  readonly #items: (TextItem | Call)[] = []; // by output_index
  #reasoning: TextItem | undefined; // if it is open
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

  #begin(chunk?: JsonObject): ResponseHead {
    if (this.#head !== undefined) return this.#head;
    this.#head = responseHead(this.#context, chunk);
    this.#respond('response.created', this.#head, { status: 'in_progress' });
    this.#respond('response.in_progress', this.#head, { status: 'in_progress' });
    return this.#head;
  }

  /** Takes a chunk that is no error. Throws response_malformed and response_too_large. */
  chunk(chunk: JsonObject): void {
    this.#begin(chunk);
    if (isObject(chunk['usage'])) this.#usage = chunk['usage'];
    for (const choice of Array.isArray(chunk['choices']) ? chunk['choices'] : []) this.#choice(choice);
  }

  #choice(choice: unknown): void {
    const delta = isObject(choice) ? (choice['delta'] ?? {}) : undefined;
    if (!isObject(choice) || !isObject(delta)) throw malformed('a choice of the response is none');
    // The service sends reasoning under two names, the same in both.
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
    if (!isObject(piece) || !isObject(of)) throw malformed('a call of the response is none');
    const { name, arguments: args } = of;
    const text = isText(args) ? args : '';
    this.#endReasoning();
    this.#hold(text.length);
    let call = this.#calls.get(index);
    if (call === undefined) {
      call = { id, args: '', told: 0, item: undefined, custom: undefined };
      this.#calls.set(index, call);
    }
    call.id ??= id;
    call.args += text;
    if (call.item !== undefined) {
      if (isText(name) && name !== call.item.chatName)
        throw malformed('a call of the response changes its name');
      this.#callDelta(call, call.custom?.feed(text) ?? untold(call));
    } else if (isText(name)) {
      call.item = { ...this.#callHead(name, call.id), index: this.#items.length };
      if (call.item.origin.kind === 'custom') call.custom = new CustomInput();
      this.#add(call, callItem(call.item, 'in_progress', ''));
      this.#callDelta(call, call.custom?.feed(call.args) ?? untold(call));
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
      const told = { [PART_TEXTS[type]]: text, ...(type === 'output_text' && { logprobs }) };
      this.log.write(`response.${type}.done`, `${place},${membersText(told)}`);
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
    const told = kind === 'custom' ? { input: value } : { name, arguments: value };
    const place = { item_id: item.id, output_index: item.index };
    if (kind !== 'tool_search') this.log.event(`${CALL_EVENTS[kind]}.done`, { ...place, ...told });
    return [this.#done(item.index, callItem(item, 'completed', value))];
  }

  /**
   * The chat completion was whole: now, and only now, calls and message are done. Throws stream_unfinished where the service ended it in
   * a way that the API does not know, or a call within its arguments, and response_malformed where a call is not one; then nothing is done.
   */
  accept(): void {
    try {
      this.log.atOnce(() => this.#complete());
    } catch (thrown) {
      // Escaped, and four times in these events, text may be longer than a string can be.
      throw thrown instanceof RangeError ? tooLarge() : thrown;
    }
  }

  #complete(): void {
    const isEmpty = this.#items.length === 0 && this.#calls.size === 0;
    // The service may name no finish where there was no token.
    const outcome = OUTCOMES.get(this.#finish ?? (isEmpty ? 'stop' : undefined));
    if (outcome === undefined) {
      throw new PrivatemodeError('stream_unfinished', 'the service ended the response early');
    }
    const { status } = outcome;
    const ends = new Map<Call, { readonly input: string; readonly rest: string }>();
    for (const call of status === 'completed' ? this.#calls.values() : []) {
      if (call.item === undefined) throw malformed('a call of the response has no name');
      if (isCut(call.args))
        throw new PrivatemodeError('stream_unfinished', 'the arguments of a call were cut');
      ends.set(call, call.custom?.finish() ?? wholeArguments(call));
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

  /** Ends the response, which then has no output: nothing in it may be used. */
  fail(error: { readonly code: string; readonly message: string }): void {
    if (this.isOver) return;
    this.#respond('response.failed', this.#begin(), { status: 'failed', error });
    this.isOver = true;
  }
}
