/**
 * The errors of a request that cannot be translated: each names the place in the request, and what to do. The
 * functions below check one value, and throw such an error.
 */
import { PrivatemodeError } from '../errors.ts';

/** `code` of the error object, as the API names it. */
export type RefusalCode = 'unsupported_parameter' | 'invalid_value' | 'missing_required_parameter';

/** A 400 of the Responses API. `param` is the place in the request, such as `input[3].content[0]`. */
export class RequestRefusal extends PrivatemodeError {
  constructor(code: RefusalCode, param: string, message: string, remedy: string) {
    super('not_supported', message, { remedy, api: { param, code } });
  }
}

export const unsupported = (param: string, message: string, remedy: string) =>
  new RequestRefusal('unsupported_parameter', param, message, remedy);

/** `expected` completes the sentence "Send …". */
export const invalid = (param: string, expected: string) =>
  new RequestRefusal(
    'invalid_value',
    param,
    `${param} has a value that cannot be translated`,
    `Send ${expected}.`,
  );

const STORED = 'Set `store: false` in the client, so that it sends the items themselves: nothing is stored.';
const AS_TOOL = 'Define the tool as a function or a custom tool.';
const AS_TEXT = 'Send what it held as text, as a call with its output, or as an image.';

/** What to do instead, by the types of items and parts that the API has and that have no translation. */
const INSTEAD: ReadonlyMap<unknown, string> = new Map([
  ['item_reference', STORED],
  ['compaction', 'Send the conversation itself.'],
  ['compaction_trigger', 'Let the client shorten the conversation.'],
  ['configuration_update', 'Set the members of the request.'],
  ['input_file', 'Send its text, or its pages as images.'],
  ['input_audio', 'Send its words as text.'],
  ...['apply_patch_call', 'local_shell_call', 'shell_call'].flatMap((type): [string, string][] => [
    [type, AS_TOOL],
    [`${type}_output`, AS_TOOL],
  ]),
  ...[
    ...['code_interpreter_call', 'computer_call', 'computer_call_output', 'file_search_call'],
    ...['image_generation_call', 'mcp_approval_request', 'mcp_approval_response', 'mcp_call'],
    ...['mcp_list_tools', 'program', 'program_output', 'web_search_call'],
  ].map((type): [string, string] => [type, AS_TEXT]),
]);

/** A refused item or part, which is named if its type is the API's: any other is the client's own word. */
export function untranslatable(what: 'an item' | 'a part', param: string, type: unknown): RequestRefusal {
  const known = INSTEAD.get(type);
  const which = known === undefined ? 'an unknown type' : `type ${type}`;
  return unsupported(param, `${what} of ${which} cannot be translated`, known ?? AS_TEXT);
}

/** A 413. `what` completes the sentence "… has". */
export const tooLarge = (param: string, what: string) =>
  new PrivatemodeError('body_too_large', `the ${param} has ${what}`, {
    remedy: 'Send smaller texts and images, and fewer items.',
    api: { param, code: 'invalid_value' },
  });

export type PlainObject = Readonly<Record<string, unknown>>;

export const isObject = (value: unknown): value is PlainObject =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

/** Whether a member counts as set: null counts as absent. */
export const isSet = (value: unknown): boolean => value !== undefined && value !== null;

/** Returns the value as an object. Throws a RequestRefusal for any other value, and never quotes it. */
export function objectAt(param: string, value: unknown): PlainObject {
  if (!isObject(value)) throw invalid(param, 'an object');
  return value;
}

export function stringAt(param: string, value: unknown): string {
  if (typeof value !== 'string') throw invalid(param, 'a string');
  return value;
}

export function listAt(param: string, value: unknown): readonly unknown[] {
  if (!Array.isArray(value)) throw invalid(param, 'an array');
  return value;
}
