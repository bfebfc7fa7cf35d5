/** The tool calls of a response. Of each: what the chat completion says about it, its item, its arguments. */
import { PrivatemodeError } from '../errors.ts';
import { scanJson } from '../json/scan.ts';
import { isObject, jsonIn } from './request-refusal.ts';
import { type ItemStatus, newId, type ResponseContext } from './response-object.ts';
import type { ToolOrigin } from './tools.ts';

/** A tool call, as far as the chat completion has been read. */
export type Call = ReturnType<ReturnType<typeof createCalls>>;

/**
 * For each kind of tool: the prefix of item ids, the type of items, the member with the arguments or the
 * input, and the prefix of the types of delta and done events. A tool search has only the events of its item.
 */
export const CALLS = {
  function: { prefix: 'fc', type: 'function_call', member: 'arguments', event: 'function_call_arguments' },
  custom: { prefix: 'ctc', type: 'custom_tool_call', member: 'input', event: 'custom_tool_call_input' },
  tool_search: { prefix: 'tsc', type: 'tool_search_call', member: 'arguments', event: undefined },
} as const;

/**
 * Returns a function that makes the calls of one response from their names and ids in the chat completion. A
 * client tells calls apart by `call_id`, so each call gets an id that no other call has.
 */
export function createCalls({ origins }: ResponseContext) {
  const taken = new Set<unknown>(['']);
  return (chatName: string, callId: unknown, index: number) => {
    const origin: ToolOrigin = origins.get(chatName) ?? { kind: 'function', name: chatName };
    const call_id = typeof callId === 'string' && !taken.has(callId) ? callId : newId('call');
    taken.add(call_id);
    const id = newId(CALLS[origin.kind].prefix);
    // `sent`: how many characters of the arguments delta events have sent.
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

/** The text that some models send in place of empty arguments. */
const NONE = 'null';

/**
 * Adds a piece to the arguments. Returns the text of the next delta event, and counts it as sent: the first
 * delta has all arguments, a later delta only the piece. Returns an empty text while the arguments may still
 * become NONE, and for custom tools, whose input is read only from complete arguments. After the first delta,
 * `args` is not read, because V8 would join all pieces anew for each reading.
 */
export function unsent(call: Call, piece: string): string {
  call.args += piece;
  if (call.origin.kind === 'custom' || (call.sent === 0 && NONE.startsWith(call.args))) return '';
  const rest = call.sent === 0 ? call.args : piece;
  call.sent += rest.length;
  return rest;
}

/**
 * The arguments of a function, or the input of a custom tool, once they are complete. Some models send
 * nothing, or NONE, for an object without members. Throws stream_unfinished if the arguments were cut.
 */
export function wholeArguments({ args, origin }: Call): string {
  const plain = args === '' || args === NONE ? '{}' : args;
  const input = isCut(args) ? undefined : origin.kind === 'custom' ? inputIn(args) : plain;
  if (input !== undefined) return input;
  throw new PrivatemodeError('stream_unfinished', 'the arguments of a call were cut');
}

/**
 * Whether the text begins a JSON object but ends before the object does. No other text counts as cut: the
 * model may have written wrong JSON, and then reads what the tool says about its JSON.
 */
function isCut(args: string): boolean {
  if (!/^\s*\{/.test(args)) return false;
  try {
    // The text is scanned as an element of a list, because at the top level the scan restricts member names.
    return scanJson(Buffer.from(`[${args}`), { array: true, partial: true }).members.length === 0;
  } catch {
    return false;
  }
}

const BEGIN = /^\s*\{\s*"input"\s*:\s*"/;
/**
 * Matches the rest of the arguments, from the quote that ends the input. If the group is unset, the arguments
 * were cut. No second quote may follow, because then the model did not escape the quotes in the input.
 */
const END = /^"\s*(?:,\s*)?(\}[^"]*)?$/;
const ESCAPES = /\\(?:["\\/bfnrt]|u[\da-fA-F]{4})/g;

/**
 * The input in the arguments `{"input":"…"}` of the function that stands for a custom tool; undefined if the
 * arguments were cut. Models write JSON that is almost valid. So a control character in the string stands for
 * itself, and so does the backslash of an invalid escape (`\d`). If the arguments hold no input, or more than
 * one, the arguments themselves are the input. The application's tool then says what is wrong, and the model
 * reads that message.
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
