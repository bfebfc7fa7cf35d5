/** Tool calls of a response: what is known of each, and its item. */
import { scanJson } from '../json/scan.ts';
import { cutArguments, inputIn } from './custom-input.ts';
import { type ItemStatus, newId, type ResponseContext } from './response-object.ts';
import type { ToolOrigin } from './tools.ts';

/** A tool call, as far as the chat completion has told it. */
export interface Call {
  /** The name under which chat knows the tool. */
  readonly chatName: string;
  readonly origin: ToolOrigin;
  readonly id: string;
  readonly callId: string;
  readonly index: number;
  args: string;
  /** Characters of `args` that deltas have sent. */
  sent: number;
}

const ITEM_PREFIXES = { function: 'fc', custom: 'ctc', tool_search: 'tsc' } as const;

/** How the types of a call's delta and done events begin. A tool search has only the events of its item. */
export const CALL_EVENTS: Readonly<Record<ToolOrigin['kind'], string | undefined>> = {
  function: 'response.function_call_arguments',
  custom: 'response.custom_tool_call_input',
  tool_search: undefined,
};

/**
 * Returns a function that makes the calls of one response, by their names and ids in chat. A client tells the
 * calls apart by `call_id`, so no two have the same.
 */
export function createCalls({ origins }: ResponseContext) {
  const taken = new Set<unknown>(['']);
  return (chatName: string, id: unknown, index: number): Call => {
    const origin: ToolOrigin = origins.get(chatName) ?? { kind: 'function', name: chatName };
    const callId = typeof id === 'string' && !taken.has(id) ? id : newId('call');
    taken.add(callId);
    return { chatName, origin, id: newId(ITEM_PREFIXES[origin.kind]), callId, index, args: '', sent: 0 };
  };
}

/** The item of a call; `value` is its arguments, or the input of a custom tool. */
export function callItem({ id, callId, origin }: Call, status: ItemStatus, value: string): object {
  const { kind, name, namespace } = origin;
  if (kind === 'tool_search') {
    const args = status === 'in_progress' ? {} : argumentsIn(value);
    return { id, type: 'tool_search_call', call_id: callId, execution: 'client', arguments: args, status };
  }
  const named = { call_id: callId, name, ...(namespace !== undefined && { namespace }) };
  return kind === 'custom'
    ? { id, type: 'custom_tool_call', ...named, input: value, status }
    : { id, type: 'function_call', ...named, arguments: value, status };
}

function argumentsIn(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

/** Arguments that stand for no arguments. */
const NONE = 'null';

/**
 * Adds a piece of the arguments. Returns those that no delta has sent yet, and counts them as sent: all
 * arguments before the first delta, then the piece alone. Returns nothing while the arguments may still
 * become NONE, and for a custom tool, whose input is read when its arguments are complete. After the first
 * delta it does not read `args`, because V8 would join all its pieces anew for each reading.
 */
export function unsent(call: Call, piece: string): string {
  call.args += piece;
  if (call.origin.kind === 'custom' || (call.sent === 0 && NONE.startsWith(call.args))) return '';
  const rest = call.sent === 0 ? call.args : piece;
  call.sent += rest.length;
  return rest;
}

/**
 * The arguments of a function, or the input of a custom tool, once they are complete, and the `rest` that no
 * delta has sent. Some models send no arguments, or NONE, where they mean an object without members. Throws
 * stream_unfinished if the arguments were cut.
 */
export function wholeArguments({ args, sent, origin }: Call): readonly [input: string, rest: string] {
  if (isCut(args)) throw cutArguments();
  const isCustom = origin.kind === 'custom';
  const input = isCustom ? inputIn(args) : args === '' || args === NONE ? '{}' : args;
  return [input, input.slice(sent)];
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
