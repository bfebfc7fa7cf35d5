/** Tool calls of a response: what is known of each, its item, and what its arguments mean. */
import { PrivatemodeError } from '../errors.ts';
import { scanJson } from '../json/scan.ts';
import { isObject, jsonIn } from './request-refusal.ts';
import { type ItemStatus, newId, type ResponseContext } from './response-object.ts';
import type { ToolOrigin } from './tools.ts';

/** A tool call, as far as the chat completion has told it. */
export type Call = ReturnType<ReturnType<typeof createCalls>>;

/**
 * By the kind of tool: how the ids of the items begin, their type, the member that has the arguments or the
 * input, and how the types of delta and done events begin. A tool search has only the events of its item.
 */
export const CALLS = {
  function: { prefix: 'fc', type: 'function_call', member: 'arguments', event: 'function_call_arguments' },
  custom: { prefix: 'ctc', type: 'custom_tool_call', member: 'input', event: 'custom_tool_call_input' },
  tool_search: { prefix: 'tsc', type: 'tool_search_call', member: 'arguments', event: undefined },
} as const;

/**
 * Returns a function that makes the calls of one response, by their names and ids in chat. A client tells the
 * calls apart by `call_id`, so no two have the same.
 */
export function createCalls({ origins }: ResponseContext) {
  const taken = new Set<unknown>(['']);
  return (chatName: string, callId: unknown, index: number) => {
    const origin: ToolOrigin = origins.get(chatName) ?? { kind: 'function', name: chatName };
    const call_id = typeof callId === 'string' && !taken.has(callId) ? callId : newId('call');
    taken.add(call_id);
    const id = newId(CALLS[origin.kind].prefix);
    // `sent`: characters of the arguments that deltas have sent.
    const told = { args: '', sent: 0 };
    return { chatName, origin, id, call_id, place: { item_id: id, output_index: index }, index, ...told };
  };
}

/** The item of a call; `value` is its arguments, or the input of a custom tool. */
export function callItem({ id, call_id, origin }: Call, status: ItemStatus, value: string): object {
  const { kind, name, namespace } = origin;
  const { type, member } = CALLS[kind];
  if (kind !== 'tool_search') {
    return { id, type, call_id, name, ...(namespace && { namespace }), [member]: value, status };
  }
  const args = status === 'in_progress' ? {} : (jsonIn(value) ?? value);
  return { id, type, call_id, execution: 'client', arguments: args, status };
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
 * The arguments of a function, or the input of a custom tool, once they are complete. Some models send no
 * arguments, or NONE, where they mean an object without members. Throws stream_unfinished if they were cut.
 */
export function wholeArguments({ args, origin }: Call): string {
  const plain = args === '' || args === NONE ? '{}' : args;
  const input = isCut(args) ? undefined : origin.kind === 'custom' ? inputIn(args) : plain;
  if (input !== undefined) return input;
  throw new PrivatemodeError('stream_unfinished', 'the arguments of a call were cut');
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

const BEGIN = /^\s*\{\s*"input"\s*:\s*"/;
/**
 * The rest of the arguments, from the quote that ends the input; without the group, they were cut. Another
 * quote behind it would mean that the input has quotes of its own, which the model did not escape.
 */
const END = /^"\s*(?:,\s*)?(\}[^"]*)?$/;
const ESCAPES = /\\(?:["\\/bfnrt]|u[\da-fA-F]{4})/g;

/**
 * The input in the arguments `{"input":"…"}` of the function that stands for a custom tool; undefined if they
 * were cut. Models write JSON that is almost valid. So in the string, a control character stands for itself,
 * and so does the backslash of an invalid escape (`\d`). If the arguments hold no input, or more than one,
 * they themselves are the input: the application's tool says what is wrong with it, and the model reads that.
 */
function inputIn(args: string): string | undefined {
  const json = jsonIn(args);
  const parsed = isObject(json) && typeof json['input'] === 'string' ? json['input'] : undefined;
  const begin = BEGIN.exec(args)?.[0].length;
  if (begin === undefined) return parsed ?? args;
  let end = begin;
  while (end < args.length && args[end] !== '"') end += args[end] === '\\' ? 2 : 1;
  const rest = END.exec(args.slice(end));
  if (parsed === undefined && (end >= args.length || (rest && rest[1] === undefined))) return undefined;
  const input = args.slice(begin, end).replace(ESCAPES, (one) => JSON.parse(`"${one}"`) as string);
  return input === parsed || (rest && parsed === undefined) ? input : args;
}
