/** `POST /v1/responses` as a chat completion: the request (docs/protocol/responses.md). */
import { PrivatemodeError } from '../errors.ts';
import { type ByteChain, createByteChain } from '../pipeline/json/byte-chain.ts';
import { createJsonIndex, type JsonVisitor } from '../pipeline/json/json-index.ts';
import { Messages } from './messages.ts';
import { invalid, isSet, listAt, objectAt, RequestRefusal } from './refusal.ts';
import { chatOf, demandSupported, echoOf, isTaken, NAMES } from './request-members.ts';
import type { ResponseContext } from './response-object.ts';
import { Tools } from './tools.ts';

/** What is to be known of a request that was translated. */
export interface TranslatedRequest {
  readonly streaming: boolean;
  readonly context: ResponseContext;
  /** Types of the hosted tools that were left out. */
  readonly hosted: readonly string[];
}

/** Bytes of one item, or of another member: it is read and written at once, and everybody else waits for that. */
const MOST_AT_ONCE = 8 * 1024 * 1024;
/** Objects, arrays and strings in it: these take the reader 20 ms, and 8 MiB of `{},` more than ten times as long. */
const MOST_VALUES = 200_000;
/** Bytes that are looked through, or delivered, at a time. */
const AT_A_TIME = 64 * 1024;
const NOTHING = Buffer.alloc(0);

/** Where in the body a value stands. */
interface Span {
  readonly start: number;
  readonly end: number;
}

const tooLarge = (param: string, what: string) =>
  new PrivatemodeError('body_too_large', `${param} ${what}`, {
    remedy: 'Send smaller texts and images, each in an item of its own.',
    api: { param, code: 'invalid_value' },
  });

/** The value there, which an index has found to be JSON. Throws body_too_large. */
function valueAt(param: string, chain: ByteChain, { start, end }: Span): unknown {
  if (end - start > MOST_AT_ONCE) throw tooLarge(param, `is larger than ${MOST_AT_ONCE} bytes`);
  return JSON.parse(chain.bytes(start, end).toString('utf8'));
}

/** Counts the values in a member, in `input` those of each item. Throws body_too_large. */
function createValueLimit(member: string): JsonVisitor {
  const around = member === 'input' ? 1 : 0;
  let depth = 0;
  let values = 0;
  const begin = (): void => {
    if (depth === around) values = 0;
    values += 1;
    if (values > MOST_VALUES) throw tooLarge(member, `has more than ${MOST_VALUES} values in one place`);
  };
  return {
    member,
    opened() {
      begin();
      depth += 1;
    },
    closed() {
      depth -= 1;
    },
    stringBegan() {
      begin();
      return false;
    },
    stringBytes: () => false,
    escaped: () => false,
    stringEnded() {},
  };
}

/**
 * Takes the body of a request while it arrives, and translates it item by item. Throws invalid_json, duplicate_member,
 * unsupported_member_name and body_too_large, or a RequestRefusal that names the place. Only members that request-members.ts names can leave: what
 * is not translated stays here, ids of the client and its metadata among it.
 */
export class RequestTranslation {
  readonly #chain = createByteChain();
  readonly #index = createJsonIndex({ visitors: NAMES.map(createValueLimit) });
  readonly #members = new Map<string, unknown>(); // that are set, but for an `input` of items
  readonly #tools = new Tools();
  readonly #messages = new Messages(this.#tools);
  #text = ''; // of messages, not delivered yet
  #written = 0; // messages

  feed(chunk: Uint8Array): void {
    this.#chain.push(chunk);
    this.#index.feed(chunk);
  }

  /**
   * The chat request as JSON, in pieces; what it returns is said of the whole. To be called once, after the last chunk. Between two
   * pieces, of which some are empty, others may have their turn: none takes longer than one item does.
   */
  *pieces(): Generator<Buffer, TranslatedRequest> {
    try {
      return yield* this.#translate();
    } catch (thrown) {
      // The JSON writer of the engine recurses; its reader does not.
      if (!(thrown instanceof RangeError)) throw thrown;
      throw new PrivatemodeError('invalid_json', 'the request body is nested too deeply');
    }
  }

  *#translate(): ReturnType<RequestTranslation['pieces']> {
    const members = this.#members;
    const tools = this.#tools;
    const items = yield* this.#readMembers();
    demandSupported(members);
    if (members.has('tools')) tools.add('tools', members.get('tools'));
    const include = new Set(members.has('include') ? listAt('include', members.get('include')) : []);
    const logprobs = members.has('top_logprobs') || include.has('message.output_text.logprobs');

    const head = JSON.stringify(chatOf(members, logprobs)).slice(0, -1);
    yield* slices(`${head}${head === '{' ? '' : ','}"messages":[`);
    yield* this.#readInput(items);
    const chosen = JSON.stringify(tools.chosen(members.get('tool_choice'))).slice(1);
    yield* slices(`]${chosen === '}' ? '' : ','}${chosen}`);
    return {
      streaming: members.get('stream') === true,
      context: {
        model: (members.get('model') ?? '') as string,
        echo: echoOf(members),
        origins: tools.origins,
        sealsReasoning: include.has('reasoning.encrypted_content'),
        logprobs,
      },
      hosted: [...tools.hosted],
    };
  }

  /** Reads the members but for an `input` of items, and returns the place of that. */
  *#readMembers(): Generator<Buffer, Span | undefined> {
    let items: Span | undefined;
    for (const { name, kind, start, end } of this.#index.finish()) {
      if (!isTaken(name, kind)) continue;
      if (name === 'input' && kind === 'array') items = { start, end };
      else this.#members.set(name, valueAt(name, this.#chain, { start, end }));
      yield NOTHING;
    }
    return items;
  }

  *#readInput(items: Span | undefined): Generator<Buffer, void> {
    const messages = this.#messages;
    const { instructions, input } = Object.fromEntries(this.#members);
    if (typeof instructions === 'string' && instructions !== '') messages.instruct(instructions);
    if (typeof input === 'string') messages.add('input', { role: 'user', content: input });
    else if (isSet(input)) throw invalid('input', 'a string or an array');
    if (items !== undefined) yield* this.#readItems(items);
    yield* this.#write(true);
    if (this.#written > 0) return;
    throw new RequestRefusal(
      'missing_required_parameter',
      'input',
      'the request has no input',
      'Send the conversation as input.',
    );
  }

  *#readItems({ start, end }: Span): Generator<Buffer, void> {
    const index = createJsonIndex({ arrays: 'any' });
    let at = 0;
    for (const bytes of this.#chain.slices(start, end).flatMap(parts)) {
      index.feed(bytes);
      yield NOTHING;
      for (; at < index.members.length; at++) {
        const item = index.members[at] as Span;
        const place = `input[${at}]`;
        const value = valueAt(place, this.#chain, { start: start + item.start, end: start + item.end });
        this.#messages.add(place, objectAt(place, value));
        yield NOTHING;
        yield* this.#write(false);
      }
    }
  }

  /** The messages that are complete; with `ended`, all that were not written yet. */
  *#write(ended: boolean): Generator<Buffer, void> {
    for (const message of this.#messages.take(ended)) {
      this.#text += `${this.#written === 0 ? '' : ','}${JSON.stringify(message)}`;
      this.#written += 1;
    }
    if (!ended && this.#text.length < AT_A_TIME) return;
    yield* slices(this.#text);
    this.#text = '';
  }
}

function parts(bytes: Uint8Array): Uint8Array[] {
  const found: Uint8Array[] = [];
  for (let at = 0; at < bytes.length; at += AT_A_TIME) found.push(bytes.subarray(at, at + AT_A_TIME));
  return found;
}

const slices = (text: string): Buffer[] => parts(Buffer.from(text)) as Buffer[];
