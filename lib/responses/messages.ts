/** The items of `input` as the messages of a chat. */
import {
  invalid,
  isObject,
  isSet,
  type JsonObject,
  listAt,
  objectAt,
  stringAt,
  unsupported,
} from './refusal.ts';
import { readReasoning } from './response-object.ts';
import type { ToolOrigin, Tools } from './tools.ts';

interface AssistantMessage {
  readonly role: 'assistant';
  content?: unknown;
  reasoning?: string;
  reasoning_content?: string;
  tool_calls?: object[];
}

const INSTEAD = 'Send what it held as text, as a call with its output, or as an image.';

/** `input_image` knows one more than chat does. */
const DETAILS: ReadonlyMap<unknown, string> = new Map([
  ['low', 'low'],
  ['high', 'high'],
  ['auto', 'auto'],
  ['original', 'high'],
]);

/** Parts of content by their type. */
const PARTS: ReadonlyMap<unknown, (place: string, part: JsonObject) => object> = new Map([
  ['input_text', (place, { text }) => textPart(stringAt(`${place}.text`, text))],
  ['output_text', (place, { text }) => textPart(stringAt(`${place}.text`, text))],
  ['refusal', (place, { refusal }) => textPart(stringAt(`${place}.refusal`, refusal))],
  ['input_image', imagePart],
]);

const textPart = (text: string) => ({ type: 'text', text });

function imagePart(place: string, { image_url, file_id, detail }: JsonObject): object {
  if (isSet(file_id)) {
    throw unsupported(
      `${place}.file_id`,
      'the service stores no files',
      'Send the image itself as image_url.',
    );
  }
  const url = stringAt(`${place}.image_url`, image_url);
  if (!isSet(detail)) return { type: 'image_url', image_url: { url } };
  const known = DETAILS.get(detail);
  if (known === undefined) throw invalid(`${place}.detail`, '"low", "high", "auto" or "original"');
  return { type: 'image_url', image_url: { url, detail: known } };
}

/** Content as chat has it: one text alone is a string. */
function contentAt(place: string, value: unknown): string | object[] {
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

/** Text of content that may hold no image. */
function textAt(place: string, value: unknown): string {
  const content = contentAt(place, value);
  if (typeof content === 'string') return content;
  return content
    .map((part, at) => {
      if ('text' in part) return part.text as string;
      throw unsupported(
        `${place}[${at}]`,
        'instructions are text',
        'Send the image in a message of the user.',
      );
    })
    .join('\n');
}

/** Several model templates raise at a system message in mid-conversation, or drop it. */
function asApplication(content: string | object[]): string | object[] {
  const [before, after] = ['<application_instructions>\n', '\n</application_instructions>'];
  if (typeof content === 'string') return before + content + after;
  return [textPart(before), ...content, textPart(after)];
}

export class Messages {
  readonly #instructions: string[] = [];
  readonly #messages: object[] = [];
  #begun = false; // a message came; no instruction goes before it any more
  readonly #tools: Tools;
  #last: AssistantMessage | undefined; // if it is the last message
  #reasoning: string | undefined; // for the assistant message that follows

  constructor(tools: Tools) {
    this.#tools = tools;
  }

  instruct(text: string): void {
    this.#instructions.push(text);
  }

  /** The messages that will not change any more, or all, with one system message first; each once. */
  take(ended: boolean): readonly object[] {
    const isOpen = !ended && this.#last !== undefined;
    const taken: object[] = this.#messages.splice(0, this.#messages.length - Number(isOpen));
    const system = this.#begun || ended ? this.#instructions.splice(0) : [];
    return system.length === 0 ? taken : [{ role: 'system', content: system.join('\n\n') }, ...taken];
  }

  add(place: string, item: JsonObject): void {
    const type = item['type'] ?? (typeof item['role'] === 'string' ? 'message' : undefined);
    const translate = typeof type === 'string' ? ITEMS.get(type) : undefined;
    if (translate === undefined)
      throw unsupported(`${place}.type`, 'an item of this type cannot be translated', INSTEAD);
    translate(this, place, item, this.#tools);
  }

  message(place: string, { role, content }: JsonObject): void {
    if (role === 'user') this.#push({ role, content: contentAt(`${place}.content`, content) });
    else if (role === 'assistant') {
      this.#assistant().content = contentAt(`${place}.content`, content);
    } else if (role !== 'system' && role !== 'developer') {
      throw invalid(`${place}.role`, '"user", "assistant", "system" or "developer"');
    } else if (!this.#begun && this.#reasoning === undefined) {
      this.#instructions.push(textAt(`${place}.content`, content));
    } else this.#push({ role: 'user', content: asApplication(contentAt(`${place}.content`, content)) });
  }

  reason(text: string): void {
    this.#reasoning = this.#reasoning === undefined ? text : `${this.#reasoning}\n${text}`;
  }

  call(place: string, id: string, origin: ToolOrigin | undefined, args: string): void {
    const tools = this.#tools;
    const name = origin === undefined ? tools.nameOfSearch(place) : tools.nameOf(`${place}.name`, origin);
    const message = this.#reasoning === undefined ? (this.#last ?? this.#assistant()) : this.#assistant();
    message.tool_calls ??= [];
    message.tool_calls.push({ id, type: 'function', function: { name, arguments: args } });
  }

  output(id: string, content: string | object[]): void {
    this.#push({ role: 'tool', tool_call_id: id, content });
  }

  #push(message: object): void {
    this.#messages.push(message);
    this.#begun = true;
    this.#last = undefined;
    this.#reasoning = undefined;
  }

  #assistant(): AssistantMessage {
    const reasoning = this.#reasoning;
    const message: AssistantMessage = {
      role: 'assistant',
      ...(reasoning !== undefined && { reasoning, reasoning_content: reasoning }),
    };
    this.#push(message);
    this.#last = message;
    return message;
  }
}

const originOf = (
  kind: 'function' | 'custom',
  place: string,
  { name, namespace }: JsonObject,
): ToolOrigin => ({
  kind,
  name: stringAt(`${place}.name`, name),
  namespace: isSet(namespace) ? stringAt(`${place}.namespace`, namespace) : undefined,
});

function callIdAt(place: string, { call_id }: JsonObject): string {
  const id = stringAt(`${place}.call_id`, call_id);
  if (id === '') throw invalid(`${place}.call_id`, 'the id of the call');
  return id;
}

function output(messages: Messages, place: string, item: JsonObject): void {
  messages.output(callIdAt(place, item), contentAt(`${place}.output`, item['output']));
}

/** A search that the application runs itself; one of the service would have no id. */
function demandClient(place: string, { execution }: JsonObject): void {
  if (execution === 'client') return;
  throw unsupported(
    `${place}.execution`,
    'the service runs no hosted tools',
    'Send the searches of the application only.',
  );
}

type ItemRule = (messages: Messages, place: string, item: JsonObject, tools: Tools) => void;

/** Items by their type; any other one is refused. */
const ITEMS: ReadonlyMap<string, ItemRule> = new Map<string, ItemRule>([
  ['message', (messages, place, item) => messages.message(place, item)],
  [
    'function_call',
    (messages, place, item) => {
      const args = stringAt(`${place}.arguments`, item['arguments']);
      messages.call(place, callIdAt(place, item), originOf('function', place, item), args);
    },
  ],
  [
    'custom_tool_call',
    (messages, place, item) => {
      const input = stringAt(`${place}.input`, item['input']);
      messages.call(place, callIdAt(place, item), originOf('custom', place, item), JSON.stringify({ input }));
    },
  ],
  [
    'tool_search_call',
    (messages, place, item) => {
      demandClient(place, item);
      const args = item['arguments'] ?? {};
      messages.call(
        place,
        callIdAt(place, item),
        undefined,
        typeof args === 'string' ? args : JSON.stringify(args),
      );
    },
  ],
  ['function_call_output', output],
  ['custom_tool_call_output', output],
  [
    'tool_search_output',
    (messages, place, item, tools) => {
      demandClient(place, item);
      const found = tools.add(`${place}.tools`, item['tools']);
      messages.output(callIdAt(place, item), JSON.stringify({ tools: found }));
    },
  ],
  ['additional_tools', (_messages, place, item, tools) => void tools.add(`${place}.tools`, item['tools'])],
  [
    'reasoning',
    (messages, place, item) => {
      const { content, encrypted_content: sealed } = item;
      if (isSet(content) && !(Array.isArray(content) && content.length === 0)) {
        const texts = listAt(`${place}.content`, content).map((part, at) =>
          isObject(part)
            ? stringAt(`${place}.content[${at}].text`, part['text'])
            : stringAt(`${place}.content[${at}]`, part),
        );
        messages.reason(texts.join('\n'));
        return;
      }
      const text = typeof sealed === 'string' ? readReasoning(sealed) : undefined;
      if (text !== undefined) messages.reason(text);
    },
  ],
]);
