/**
 * Translates a request of `POST /v1/responses` into one for a chat completion (docs/protocol/responses.md).
 */
import { isParsable, type Member, scanInTurns } from '../json/scan.ts';
import { ExactNumbers } from './exact-numbers.ts';
import { addItem } from './items.ts';
import { Messages } from './messages.ts';
import { chatOf, demandExact, demandSupported, echoOf, isTaken } from './request-members.ts';
import { invalid, listAt, objectAt, RequestRefusal, tooLarge } from './request-refusal.ts';
import type { ResponseContext } from './response-object.ts';
import { Tools } from './tools.ts';

/** The chat request, and what the later steps need to know. */
export interface TranslatedRequest {
  /** JSON in UTF-8. */
  readonly chat: Buffer;
  readonly streaming: boolean;
  readonly context: ResponseContext;
  /** Types of the hosted tools that were left out. */
  readonly hosted: readonly string[];
}

/** Bytes of a request. It is parsed, and for a moment takes several times as much memory. */
const MOST_BYTES = 16 * 1024 * 1024;

/**
 * Translates the body of a request. Yields wherever other exchanges may have their turn: after each item of
 * `input`, each tool and each other member. Throws invalid_json, duplicate_member, unsupported_member_name
 * and body_too_large, or a RequestRefusal that names the place. Only members that request-members.ts names
 * can leave. Members that are not translated stay here, such as the client's ids and metadata.
 */
export function* translateRequest(body: Buffer): Generator<undefined, TranslatedRequest> {
  if (body.length > MOST_BYTES) throw tooLarge('request', `more than ${MOST_BYTES} bytes`);
  const scanned = yield* scanInTurns(body, { numbers: true });
  if (!isParsable(scanned))
    throw tooLarge('request', 'more than 200,000 values, 20,000 members of objects or 64 levels');
  const taken = new Map(scanned.members.filter(isTaken).map((member) => [member.name, member]));
  const numbers = new ExactNumbers();
  const members = new Map<string, unknown>();
  for (const member of taken.values()) {
    if (member.name === 'input' && member.kind === 'array') continue; // it is parsed item by item
    members.set(member.name, parsed(body, member, numbers));
    yield;
  }
  demandSupported(members);
  const tools = new Tools();
  if (members.has('tools')) tools.add('tools', members.get('tools'));
  const include = new Set(members.has('include') ? listAt('include', members.get('include')) : []);

  const text = new ChatText(numbers);
  const head = Object.entries(chatOf(members));
  text.add(`{${head.map(([name, value]) => `"${name}":${numbers.stringify(value)},`).join('')}"messages":[`);
  const messages = new Messages(tools);
  const { instructions, input } = Object.fromEntries(members);
  if (typeof instructions === 'string' && instructions !== '') messages.instruct(instructions);
  if (typeof input === 'string') messages.message('input', { role: 'user', content: input });
  else if (input !== undefined) throw invalid('input', 'a string or an array');
  const list = taken.get('input');
  if (list?.kind === 'array') {
    const items = body.subarray(list.start, list.end);
    const { members } = yield* scanInTurns(items, { array: true, numbers: true });
    for (const [k, item] of members.entries()) {
      const place = `input[${k}]`;
      const value = objectAt(place, numbers.parse(items, item));
      yield;
      yield* addItem(messages, place, value);
    }
  }
  const conversation = messages.list();
  yield* text.elements(conversation);
  if (conversation.length === 0) {
    const remedy = 'Send the conversation as input.';
    throw new RequestRefusal('missing_required_parameter', 'input', 'the request has no input', remedy);
  }
  text.add(']');
  const { tools: functions = [], tool_choice } = tools.chosen(members.get('tool_choice'));
  if (functions.length > 0) {
    text.add(',"tools":[');
    yield* text.elements(functions);
    text.add(']');
  }
  text.add(tool_choice === undefined ? '}' : `,"tool_choice":${JSON.stringify(tool_choice)}}`);
  const model = members.get('model');
  return {
    chat: text.bytes(),
    streaming: members.get('stream') === true,
    context: {
      model: typeof model === 'string' ? model : '',
      echo: numbers.stringify(echoOf(members)).slice(1, -1),
      origins: tools.origins,
      sealsReasoning: include.has('reasoning.encrypted_content'),
    },
    hosted: [...tools.hosted],
  };
}

/** The value of a member. A number of its own is exact, or refused. */
function parsed(body: Buffer, member: Member, numbers: ExactNumbers): unknown {
  if (member.kind !== 'number') return numbers.parse(body, member);
  const value: unknown = JSON.parse(body.toString('latin1', member.start, member.end));
  demandExact(member.name, value);
  return value;
}

/** The text of the chat request, as it grows. */
class ChatText {
  readonly #numbers: ExactNumbers;
  readonly #parts: Buffer[] = [];
  #comma = '';

  constructor(numbers: ExactNumbers) {
    this.#numbers = numbers;
  }

  add(text: string): void {
    this.#parts.push(Buffer.from(text));
    this.#comma = '';
  }

  /** Adds elements of a list, behind those that were added since the last text. Yields for each. */
  *elements(values: readonly object[]): Generator<undefined, void> {
    for (const value of values) {
      const text = this.#comma + this.#numbers.stringify(value);
      yield;
      this.add(text);
      this.#comma = ',';
      yield;
    }
  }

  bytes(): Buffer {
    return Buffer.concat(this.#parts);
  }
}
