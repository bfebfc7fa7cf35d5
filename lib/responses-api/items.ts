/** Translates the items of `input`, by their types. */
import { scanInTurns } from '../json/scan.ts';
import { contentAt } from './content.ts';
import type { Messages } from './messages.ts';
import {
  invalid,
  isObject,
  isSet,
  listAt,
  type PlainObject,
  stringAt,
  unsupported,
  untranslatable,
} from './request-refusal.ts';
import { readReasoning } from './response-object.ts';
import type { ToolOrigin } from './tools.ts';

/**
 * Adds the item at `place` to the messages. Yields between the parts of long arguments. Throws a
 * RequestRefusal if the item cannot be translated.
 */
export function* addItem(messages: Messages, place: string, item: PlainObject): Generator<undefined, void> {
  const type = item['type'] ?? (typeof item['role'] === 'string' ? 'message' : undefined);
  const translate = typeof type === 'string' ? ITEMS.get(type) : undefined;
  if (translate === undefined) throw untranslatable('an item', `${place}.type`, type);
  const args = yield* argumentsOf(item['arguments']);
  translate(messages, place, item, args);
}

const originOf = (
  kind: 'function' | 'custom',
  place: string,
  { name, namespace }: PlainObject,
): ToolOrigin => ({
  kind,
  name: stringAt(`${place}.name`, name),
  namespace: isSet(namespace) ? stringAt(`${place}.namespace`, namespace) : undefined,
});

function callIdAt(place: string, { call_id }: PlainObject): string {
  const id = stringAt(`${place}.call_id`, call_id);
  if (id === '') throw invalid(`${place}.call_id`, 'the id of the call');
  return id;
}

function output(messages: Messages, place: string, item: PlainObject): void {
  messages.output(callIdAt(place, item), contentAt(`${place}.output`, item['output']));
}

/**
 * Throws a RequestRefusal unless the application runs this search itself. A search that the service runs
 * would have no `call_id`.
 */
function demandClient(place: string, { execution }: PlainObject): void {
  const remedy = 'Send the searches of the application only.';
  if (execution !== 'client')
    throw unsupported(`${place}.execution`, 'the service runs no hosted tools', remedy);
}

/**
 * The arguments of an earlier call. The service parses them, and refuses the whole conversation if they are
 * neither empty nor a JSON object. So others are put into one: the model still reads what it wrote, above
 * what the tool said of it.
 */
function* argumentsOf(args: unknown): Generator<undefined, string> {
  if (!isSet(args)) return '{}';
  if (isObject(args)) return JSON.stringify(args);
  if (typeof args === 'string' && (args === '' || (yield* isObjectText(args)))) return args;
  return JSON.stringify({ invalid_arguments: args });
}

function* isObjectText(text: string): Generator<undefined, boolean> {
  try {
    // In a list, because the scan restricts the names of members at the top.
    const { members } = yield* scanInTurns(Buffer.from(`[${text}]`), { array: true });
    return members.length === 1 && members[0]?.kind === 'object';
  } catch {
    return false;
  }
}

function functionCall(messages: Messages, place: string, item: PlainObject, args: string): void {
  stringAt(`${place}.arguments`, item['arguments']);
  const id = callIdAt(place, item);
  messages.call(place, id, originOf('function', place, item), args);
}

function customCall(messages: Messages, place: string, item: PlainObject): void {
  const input = stringAt(`${place}.input`, item['input']);
  const id = callIdAt(place, item);
  messages.call(place, id, originOf('custom', place, item), JSON.stringify({ input }));
}

function searchCall(messages: Messages, place: string, item: PlainObject, args: string): void {
  demandClient(place, item);
  messages.call(place, callIdAt(place, item), undefined, args);
}

function searchOutput(messages: Messages, place: string, item: PlainObject): void {
  demandClient(place, item);
  const found = messages.tools.add(`${place}.tools`, item['tools']);
  messages.output(callIdAt(place, item), JSON.stringify({ tools: found }));
}

function additionalTools({ tools }: Messages, place: string, item: PlainObject): void {
  tools.add(`${place}.tools`, item['tools']);
}

/** The text of reasoning that this translation sealed counts only without `content`; others' is left out. */
function reasoning(messages: Messages, place: string, { content, encrypted_content }: PlainObject): void {
  if (isSet(content) && !(Array.isArray(content) && content.length === 0)) {
    for (const [at, part] of listAt(`${place}.content`, content).entries()) {
      const where = `${place}.content[${at}]`;
      messages.reason(isObject(part) ? stringAt(`${where}.text`, part['text']) : stringAt(where, part));
    }
    return;
  }
  const text = typeof encrypted_content === 'string' ? readReasoning(encrypted_content) : undefined;
  if (text !== undefined) messages.reason(text);
}

/** `args`: the `arguments` of the item, in the form that the service accepts. */
type ItemRule = (messages: Messages, place: string, item: PlainObject, args: string) => void;

/** Translates an item, by its type. Items of other types are refused. */
const ITEMS: ReadonlyMap<string, ItemRule> = new Map<string, ItemRule>([
  ['message', (messages, place, item) => messages.message(place, item)],
  ['function_call', functionCall],
  ['custom_tool_call', customCall],
  ['tool_search_call', searchCall],
  ['function_call_output', output],
  ['custom_tool_call_output', output],
  ['tool_search_output', searchOutput],
  ['additional_tools', additionalTools],
  ['reasoning', reasoning],
]);
