/** Translates a `POST /v1/responses` request into a chat completion request (docs/protocol/responses.md). */
import { isParsable, scanInTurns } from '../json/scan.ts';
import { ExactNumbers } from './exact-numbers.ts';
import { addItem } from './items.ts';
import { Messages } from './messages.ts';
import { chatOf, demandSupported, echoOf, isTaken } from './request-members.ts';
import { Placed, RequestRefusal, tooLarge } from './request-refusal.ts';
import type { ResponseContext } from './response-object.ts';
import { Tools } from './tools.ts';

/** The chat request, together with what later steps need to know about the original request. */
export interface TranslatedRequest {
  /** The chat request, as JSON in UTF-8. */
  readonly chat: Buffer;
  readonly context: ResponseContext;
  /** Types of the hosted tools that were left out. */
  readonly hosted: readonly string[];
}

/** The most bytes of all members beside `input`. Several events repeat these members in the Response. */
const MOST_BESIDE_INPUT = 16 * 1024 * 1024;

/**
 * Translates the body of a request. Yields wherever other exchanges may have their turn: after each item of
 * `input`, each tool, and each further member. Throws invalid_json, duplicate_member, unsupported_member_name
 * and body_too_large, or a RequestRefusal that names the place. Only members in request-members.ts can be
 * sent on. Members without a translation stay in the proxy. Metadata and ids of the client are such members.
 */
export function* translateRequest(body: Buffer): Generator<undefined, TranslatedRequest> {
  const scanned = yield* scanInTurns(body, { numbers: true });
  if (!isParsable(scanned))
    throw tooLarge('request', 'more than 200,000 values, 20,000 members of objects or 64 levels');
  const numbers = new ExactNumbers();
  const members: Record<string, unknown> = {};
  let items: Buffer | undefined; // the items of `input`, parsed one by one below
  let beside = 0;
  for (const member of scanned.members.filter(isTaken)) {
    const { name, kind, start, end } = member;
    beside += name === 'input' ? 0 : end - start;
    if (beside > MOST_BESIDE_INPUT)
      throw tooLarge('request', `more than ${MOST_BESIDE_INPUT} bytes beside input`);
    if (name === 'input' && kind === 'array') items = body.subarray(start, end);
    else members[name] = numbers.parse(name, body, member);
    yield;
  }
  const request = new Placed('', members);
  demandSupported(request);
  const tools = new Tools();
  if ('tools' in members) tools.add(request.at('tools'));
  const chat = chatOf(request);

  const messages = new Messages(tools);
  const { instructions, input, model } = members;
  if (typeof instructions === 'string' && instructions !== '') messages.instructions.push(instructions);
  if (typeof input === 'string') messages.message(new Placed('input', { role: 'user', content: input }));
  else if (input !== undefined) throw request.at('input').invalid('a string or an array');
  if (items !== undefined) {
    const list = yield* scanInTurns(items, { array: true, numbers: true });
    for (const [k, item] of list.members.entries()) {
      const name = `input[${k}]`;
      const value = numbers.parse(name, items, item);
      yield;
      yield* addItem(messages, new Placed(name, value));
    }
  }
  const conversation = messages.list();
  if (conversation.length === 0) {
    const remedy = 'Send the conversation as input.';
    throw new RequestRefusal('missing_required_parameter', 'input', 'the request has no input', remedy);
  }
  const [functions, tool_choice] = tools.chosen(request.at('tool_choice'));
  const parts = [Buffer.from('{"messages":[')];
  yield* write(conversation);
  if (functions.length > 0) {
    parts.push(Buffer.from('],"tools":['));
    yield* write(functions);
  }
  const others = numbers.stringify({ ...chat, tool_choice }).slice(1);
  parts.push(Buffer.from(others === '}' ? ']}' : `],${others}`));
  return {
    chat: Buffer.concat(parts),
    context: {
      model: typeof model === 'string' ? model : '',
      echo: numbers.stringify(echoOf(request)).slice(1, -1),
      origins: tools.origins,
      sealsReasoning: ((members['include'] ?? []) as unknown[]).includes('reasoning.encrypted_content'),
    },
    hosted: [...tools.hosted],
  };

  /** Adds the elements of a list to the parts of the chat request. */
  function* write(values: readonly object[]): Generator<undefined, void> {
    for (const [k, value] of values.entries()) {
      const text = numbers.stringify(value);
      yield;
      parts.push(Buffer.from(k === 0 ? text : `,${text}`));
      yield;
    }
  }
}
