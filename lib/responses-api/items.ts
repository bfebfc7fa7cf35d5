/** Translates the items of `input`, by their types. */
import { scanInTurns } from '../json/scan.ts';
import { contentAt } from './content.ts';
import type { Messages } from './messages.ts';
import { isObject, type Placed, untranslatable } from './request-refusal.ts';
import { readReasoning } from './response-object.ts';

/** `args`: the `arguments` of the item, in the form that the service accepts. */
type ItemRule = (messages: Messages, item: Placed, args: string) => void;

/** By type. Items of other types are refused. */
const ITEMS: ReadonlyMap<unknown, ItemRule> = new Map<unknown, ItemRule>([
  ['message', (messages, item) => messages.message(item)],
  ['reasoning', reasoning],
  [
    'function_call',
    (messages, item, args) => {
      item.at('arguments').string;
      messages.call(item, 'function', args);
    },
  ],
  [
    'custom_tool_call',
    (messages, item) => messages.call(item, 'custom', JSON.stringify({ input: item.at('input').string })),
  ],
  ['tool_search_call', (messages, item, args) => messages.call(ofClient(item), 'tool_search', args)],
  ['function_call_output', (messages, item) => messages.output(item, contentAt(item.at('output')))],
  ['custom_tool_call_output', (messages, item) => messages.output(item, contentAt(item.at('output')))],
  [
    'tool_search_output',
    (messages, item) => {
      const found = messages.tools.add(ofClient(item).at('tools'));
      messages.output(item, JSON.stringify({ tools: found }));
    },
  ],
  ['additional_tools', (messages, item) => void messages.tools.add(item.at('tools'))],
]);

/**
 * Adds an item to the messages. Yields between the parts of long arguments. Throws a RequestRefusal if the
 * item cannot be translated.
 */
export function* addItem(messages: Messages, item: Placed): Generator<undefined, void> {
  const { type, role, arguments: args } = item.object;
  const rule = ITEMS.get(type ?? (typeof role === 'string' ? 'message' : undefined));
  if (rule === undefined) throw untranslatable('an item', item);
  rule(messages, item, yield* argumentsOf(args));
}

/** The text of reasoning that this translation sealed counts only without `content`; others' is left out. */
function reasoning(messages: Messages, item: Placed): void {
  const content = item.at('content');
  const parts = content.isSet ? content.list : [];
  for (const part of parts) messages.reason((isObject(part.value) ? part.at('text') : part).string);
  const text = parts.length === 0 ? readReasoning(item.at('encrypted_content').value) : undefined;
  if (text !== undefined) messages.reason(text);
}

/**
 * The search, if the application runs it itself: one that the service runs would have no `call_id`. Else
 * throws a RequestRefusal.
 */
function ofClient(item: Placed): Placed {
  const execution = item.at('execution');
  if (execution.value === 'client') return item;
  const remedy = 'Send the searches of the application only.';
  throw execution.unsupported('the service runs no hosted tools', remedy);
}

/**
 * The arguments of an earlier call. The service parses them, and refuses the whole conversation if they are
 * neither empty nor a JSON object. So others are put into one: the model still reads what it wrote, above
 * what the tool said of it.
 */
function* argumentsOf(args: unknown): Generator<undefined, string> {
  if (isObject(args)) return JSON.stringify(args);
  if (typeof args === 'string' && (args === '' || (yield* isObjectText(args)))) return args;
  return args === undefined || args === null ? '{}' : JSON.stringify({ invalid_arguments: args });
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
