/** Translates the items of `input`, by their types. */
import { scanInTurns } from '../json/scan.ts';
import { contentAt } from './content.ts';
import type { Messages } from './messages.ts';
import { isObject, type Placed, untranslatable } from './request-refusal.ts';
import { readReasoning } from './response-object.ts';

/**
 * Adds an item to the messages. Yields between the parts of long arguments. Throws a RequestRefusal if the
 * item cannot be translated.
 */
export function* addItem(messages: Messages, item: Placed): Generator<undefined, void> {
  const { type, role, arguments: args } = item.object;
  switch (type ?? (typeof role === 'string' ? 'message' : undefined)) {
    case 'message':
      return messages.message(item);
    case 'reasoning':
      return reasoning(messages, item);
    case 'function_call':
      return messages.call(item, 'function', yield* argumentsOf(item.at('arguments').string));
    case 'custom_tool_call':
      return messages.call(item, 'custom', JSON.stringify({ input: item.at('input').string }));
    case 'tool_search_call':
      return messages.call(ofClient(item), 'tool_search', yield* argumentsOf(args));
    case 'function_call_output':
    case 'custom_tool_call_output':
      return messages.output(item, contentAt(item.at('output')));
    case 'tool_search_output': {
      const tools = messages.tools.add(ofClient(item).at('tools'));
      return messages.output(item, JSON.stringify({ tools }));
    }
    case 'additional_tools':
      return void messages.tools.add(item.at('tools'));
    default:
      throw untranslatable('an item', item);
  }
}

/** Adds the `content` of reasoning, or else the text that this translation put into `encrypted_content`. */
function reasoning(messages: Messages, item: Placed): void {
  const content = item.at('content');
  const parts = content.isSet ? content.list : [];
  for (const part of parts) messages.reason((isObject(part.value) ? part.at('text') : part).string);
  const text = parts.length === 0 ? readReasoning(item.at('encrypted_content').value) : undefined;
  if (text !== undefined) messages.reason(text);
}

/** Refuses a tool search that the application does not run itself: the search would have no `call_id`. */
function ofClient(item: Placed): Placed {
  if (item.object['execution'] === 'client') return item;
  const remedy = 'Send the searches of the application only.';
  throw item.at('execution').unsupported('the service runs no hosted tools', remedy);
}

/**
 * The arguments of an earlier call. The service refuses a whole conversation with arguments that are neither
 * empty nor a JSON object. So arguments that the service would refuse are put into an object. The model still
 * reads its own arguments, and then the message of the tool.
 */
function* argumentsOf(args: unknown): Generator<undefined, string> {
  if (isObject(args)) return JSON.stringify(args);
  if (typeof args === 'string' && (args === '' || (yield* isObjectText(args)))) return args;
  return args === undefined || args === null ? '{}' : JSON.stringify({ invalid_arguments: args });
}

function* isObjectText(text: string): Generator<undefined, boolean> {
  try {
    // The text is scanned as an element of a list, because at the top level the scan restricts member names.
    const { members } = yield* scanInTurns(Buffer.from(`[${text}]`), { array: true });
    return members.length === 1 && members[0]?.kind === 'object';
  } catch {
    return false;
  }
}
