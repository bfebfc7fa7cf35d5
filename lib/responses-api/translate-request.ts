/**
 * Translates a request of `POST /v1/responses` into one for a chat completion (docs/protocol/responses.md).
 */
import { createByteChain } from '../pipeline/json/byte-chain.ts';
import { createJsonIndex } from '../pipeline/json/json-index.ts';
import { piecesOf } from '../pipeline/pieces.ts';
import { Messages } from './messages.ts';
import { chatOf, demandKept, demandSupported, echoOf, isTaken, NAMES, READ } from './request-members.ts';
import { invalid, isSet, isString, listAt, objectAt, RequestRefusal } from './request-refusal.ts';
import { type Hold, NOTHING, RequestWriter } from './request-writer.ts';
import type { ResponseContext } from './response-object.ts';
import { Tools } from './tools.ts';
import { createValueReader, Span } from './value-reader.ts';

/** What the later steps need to know about a translated request. */
export interface TranslatedRequest {
  readonly streaming: boolean;
  readonly context: ResponseContext;
  /** Types of the hosted tools that were left out. */
  readonly hosted: readonly string[];
}

/** Bytes of a number as it is written. A longer one is refused: not every reader would keep it exactly. */
const LONGEST_NUMBER = 400;
/** Makes the list of items the value of a member, because a value reader reads nothing else. */
const BEFORE_ITEMS = Buffer.from('{"input":');
const AFTER_ITEMS = Buffer.from('}');

/**
 * Takes the body of a request while it arrives, and translates it item by item. Throws invalid_json,
 * duplicate_member, unsupported_member_name and body_too_large, or a RequestRefusal that names the place.
 * Only members that request-members.ts names can leave. Members that are not translated stay here, such as
 * the client's ids and metadata.
 */
export class RequestTranslation {
  readonly #chain = createByteChain();
  readonly #index = createJsonIndex({ visitors: NAMES.map((name) => this.#readerOf(name)) });
  readonly #read = new Map<string, unknown>();
  // values of the members that are set, except an `input` that is a list
  readonly #members = new Map<string, unknown>();
  readonly #spans = new Map<string, Span>(); // places of all members that are set
  readonly #tools = new Tools();

  feed(chunk: Uint8Array): void {
    this.#chain.push(chunk);
    this.#index.feed(chunk);
  }

  /**
   * A reader for the value of a member. Of a list in `input` it only enforces the limits: `#readItems` reads
   * the items once the tools are known.
   */
  #readerOf(member: string) {
    const take = (value: unknown): void => void this.#read.set(member, value);
    return createValueReader(this.#chain, {
      member,
      take,
      items: member === 'input',
      reads: READ.has(member),
    });
  }

  /**
   * Yields the chat request as JSON, in pieces, and returns what is known of the whole. Call it once, after
   * the last chunk. Other exchanges may run between two pieces: no piece takes longer than one item does, and
   * some are empty. `hold` is called before memory is taken that lasts as long as the request, and may throw.
   * Pieces that are slices of the request take no memory.
   */
  *pieces(hold: Hold = () => {}): Generator<Uint8Array, TranslatedRequest> {
    const members = this.#members;
    const tools = this.#tools;
    this.#readMembers();
    demandSupported(members);
    if (members.has('tools')) tools.add('tools', members.get('tools'));
    const include = new Set(members.has('include') ? listAt('include', members.get('include')) : []);
    const logprobs = members.has('top_logprobs') || include.has('message.output_text.logprobs');

    const output = new RequestWriter(this.#chain, hold);
    output.raw('{');
    for (const member of Object.entries(chatOf(members, logprobs))) writeMember(output, member, ',');
    output.raw('"messages":[');
    yield* this.#readInput(output, hold);
    output.raw(']');
    for (const [name, value] of Object.entries(tools.chosen(members.get('tool_choice')))) {
      output.raw(`,"${name}":`);
      output.value(value);
    }
    output.raw('}');
    yield* output.take(true);
    const model = members.get('model');
    return {
      streaming: members.get('stream') === true,
      context: {
        model: typeof model === 'string' ? model : '',
        echo: yield* this.#echo(hold),
        origins: tools.origins,
        sealsReasoning: include.has('reasoning.encrypted_content'),
        logprobs,
      },
      hosted: [...tools.hosted],
    };
  }

  *#echo(hold: Hold): Generator<Uint8Array, Buffer> {
    const copying = echoOf(this.#chain, this.#spans, hold);
    for (;;) {
      const { done, value } = copying.next();
      if (done) return value;
      yield NOTHING;
    }
  }

  #readMembers(): void {
    for (const { name, kind, start, end } of this.#index.finish()) {
      if (!isTaken(name, kind)) continue;
      if (kind === 'number') {
        const text = end - start > LONGEST_NUMBER ? 'NaN' : this.#chain.bytes(start, end).toString();
        demandKept(name, text);
      }
      this.#spans.set(name, new Span(kind, start, end));
      if (name !== 'input' || kind !== 'array') this.#members.set(name, this.#read.get(name));
    }
  }

  *#readInput(output: RequestWriter, hold: Hold): Generator<Uint8Array, void> {
    const messages = new Messages(output, this.#tools, { chain: this.#chain, hold });
    const { instructions, input } = Object.fromEntries(this.#members);
    if (isString(instructions) && instructions !== '') messages.instruct(instructions);
    if (isString(input)) messages.add('input', { role: 'user', content: input });
    else if (isSet(input)) throw invalid('input', 'a string or an array');
    else if (this.#spans.has('input')) yield* this.#readItems(messages, output);
    messages.end();
    if (messages.count > 0) return;
    throw new RequestRefusal(
      'missing_required_parameter',
      'input',
      'the request has no input',
      'Send the conversation as input.',
    );
  }

  *#readItems(messages: Messages, output: RequestWriter): Generator<Uint8Array, void> {
    const { start, end } = this.#spans.get('input') as Span;
    const items: unknown[] = [];
    const reader = createValueReader(this.#chain, {
      member: 'input',
      offset: start - BEFORE_ITEMS.length,
      take: (item) => items.push(item),
      items: true,
      reads: true,
    });
    const index = createJsonIndex({ visitors: [reader] });
    let count = 0;
    for (const bytes of [BEFORE_ITEMS, ...this.#chain.slices(start, end), AFTER_ITEMS].flatMap(piecesOf)) {
      index.feed(bytes);
      yield NOTHING;
      for (const item of items.splice(0)) {
        const place = `input[${count}]`;
        messages.add(place, objectAt(place, item));
        count += 1;
        yield NOTHING;
        yield* output.take(false);
      }
    }
  }
}

function writeMember(output: RequestWriter, [name, value]: [string, unknown], behind: string): void {
  output.raw(`"${name}":`);
  output.value(value);
  output.raw(behind);
}
