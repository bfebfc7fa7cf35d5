/** Translates the items of `input` into the messages of a chat completion. */
import { scanInTurns } from '../json/scan.ts';
import {
  invalid,
  isObject,
  isSet,
  listAt,
  objectAt,
  type PlainObject,
  stringAt,
  unsupported,
} from './request-refusal.ts';
import { readReasoning } from './response-object.ts';
import type { ToolOrigin, Tools } from './tools.ts';

const INSTEAD = 'Send what it held as text, as a call with its output, or as an image.';

/** `detail` in chat, by the `detail` of an `input_image`. Chat does not know "original". */
const DETAILS: ReadonlyMap<unknown, string> = new Map([
  ['low', 'low'],
  ['high', 'high'],
  ['auto', 'auto'],
  ['original', 'high'],
]);

/** Translates a part of content, by its type. */
const PARTS: ReadonlyMap<unknown, (place: string, part: PlainObject) => object> = new Map([
  ['input_text', (place, { text }) => textPart(stringAt(`${place}.text`, text))],
  ['output_text', (place, { text }) => textPart(stringAt(`${place}.text`, text))],
  ['refusal', (place, { refusal }) => textPart(stringAt(`${place}.refusal`, refusal))],
  ['input_image', imagePart],
]);

/** The content of a message in the form of chat. */
type Content = string | readonly object[];

const textPart = (text: string) => ({ type: 'text', text });

function imagePart(place: string, { image_url, file_id, detail }: PlainObject): object {
  const remedy = 'Send the image itself as image_url.';
  if (isSet(file_id)) throw unsupported(`${place}.file_id`, 'the service stores no files', remedy);
  const url = stringAt(`${place}.image_url`, image_url);
  if (!isSet(detail)) return { type: 'image_url', image_url: { url } };
  const known = DETAILS.get(detail);
  if (known === undefined) throw invalid(`${place}.detail`, '"low", "high", "auto" or "original"');
  return { type: 'image_url', image_url: { url, detail: known } };
}

/** Content in the form of chat. A single text becomes a string, and no parts at all an empty one. */
function contentAt(place: string, value: unknown): Content {
  if (typeof value === 'string') return value;
  const parts = listAt(place, value).map((part, at) => {
    const where = `${place}[${at}]`;
    const object = objectAt(where, part);
    const translate = PARTS.get(object['type']);
    if (translate === undefined) {
      throw unsupported(`${where}.type`, 'content of this type cannot be translated', INSTEAD);
    }
    return translate(where, object);
  });
  const [only] = parts;
  if (only === undefined) return '';
  return parts.length === 1 && 'text' in only ? (only.text as string) : parts;
}

/**
 * The text of content, its parts joined by line ends. Throws a RequestRefusal if the content holds an image.
 */
function textAt(place: string, value: unknown): string {
  const content = contentAt(place, value);
  if (typeof content === 'string') return content;
  const texts = content.map((part, at) => {
    if ('text' in part) return part.text as string;
    throw unsupported(`${place}[${at}]`, 'instructions are text', 'Send the image in a message of the user.');
  });
  return texts.join('\n');
}

/**
 * Marks instructions that come in the middle of a conversation, for a message of the user. Several model
 * templates fail at a system message there, or drop it.
 */
function asApplication(content: Content): Content {
  const [before, after] = ['<application_instructions>\n', '\n</application_instructions>'];
  if (typeof content === 'string') return before + content + after;
  return [textPart(before), ...content, textPart(after)];
}

/** A message of chat that later items may extend. */
interface Message {
  readonly role: string;
  content?: Content;
  reasoning?: string;
  reasoning_content?: string;
  tool_call_id?: string;
  tool_calls?: object[];
}

/**
 * Makes the messages of the items, which are added in their order. Neighbouring items can share one message
 * of the assistant, and the leading instructions share one of the system.
 */
export class Messages {
  /** Messages so far. */
  count = 0;
  readonly tools: Tools;
  #complete: Message[] = []; // nothing can extend them any more
  #last: Message | undefined;
  #reasoning: string[] = []; // for the next message of the assistant

  constructor(tools: Tools) {
    this.tools = tools;
  }

  instruct(text: string): void {
    const last = this.#last;
    if (last?.role === 'system') last.content += `\n\n${text}`;
    else this.#begin({ role: 'system', content: text });
  }

  /**
   * Adds the item at `place`. Yields between the parts of long arguments. Throws a RequestRefusal if the item
   * cannot be translated.
   */
  *add(place: string, item: PlainObject): Generator<undefined, void> {
    const type = item['type'] ?? (typeof item['role'] === 'string' ? 'message' : undefined);
    const translate = typeof type === 'string' ? ITEMS.get(type) : undefined;
    if (translate === undefined)
      throw unsupported(`${place}.type`, 'an item of this type cannot be translated', INSTEAD);
    const args = yield* argumentsOf(item['arguments']);
    translate(this, place, item, args);
  }

  message(place: string, { role, content }: PlainObject): void {
    const where = `${place}.content`;
    const leads = (this.count === 0 || this.#last?.role === 'system') && this.#reasoning.length === 0;
    if (role === 'user') this.#begin({ role, content: contentAt(where, content) });
    else if (role === 'assistant') this.#assistant({ content: contentAt(where, content) });
    else if (role !== 'system' && role !== 'developer') {
      throw invalid(`${place}.role`, '"user", "assistant", "system" or "developer"');
    } else if (leads) this.instruct(textAt(where, content));
    else this.#begin({ role: 'user', content: asApplication(contentAt(where, content)) });
  }

  reason(text: string): void {
    this.#reasoning.push(text);
  }

  call(place: string, id: string, origin: ToolOrigin | undefined, args: string): void {
    const name = this.tools.nameOf(origin === undefined ? place : `${place}.name`, origin);
    if (this.#last?.role !== 'assistant' || this.#reasoning.length > 0) this.#assistant({});
    const message = this.#last as Message;
    message.tool_calls ??= [];
    message.tool_calls.push({ id, type: 'function', function: { name, arguments: args } });
  }

  output(id: string, content: Content): void {
    this.#begin({ role: 'tool', tool_call_id: id, content });
  }

  /** Returns the messages that no later item extends, each once. */
  takeComplete(): readonly object[] {
    return this.#complete.splice(0);
  }

  /** Completes the last message. The caller calls it once, after the last item. */
  end(): void {
    if (this.#last !== undefined) this.#complete.push(this.#last);
    this.#last = undefined;
  }

  #begin(message: Message): void {
    this.end();
    this.#last = message;
    this.count += 1;
    this.#reasoning = [];
  }

  #assistant(said: { readonly content?: Content }): void {
    const text = this.#reasoning.join('\n');
    const reasoning = this.#reasoning.length > 0 && { reasoning: text, reasoning_content: text };
    this.#begin({ role: 'assistant', ...reasoning, ...said });
  }
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
