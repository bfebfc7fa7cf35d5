/** Translates the items of `input` into the messages of a chat completion. */
import type { ByteChain } from '../pipeline/json/byte-chain.ts';
import {
  invalid,
  isObject,
  isPassedOn,
  isSet,
  isString,
  listAt,
  objectAt,
  type PlainObject,
  stringAt,
  unsupported,
  wordAt,
} from './request-refusal.ts';
import { type Hold, Joined, ObjectText, Quoted, RequestWriter, type Text } from './request-writer.ts';
import { readReasoning } from './response-object.ts';
import type { ToolOrigin, Tools } from './tools.ts';
import { decoded, Span } from './value-reader.ts';

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

const textPart = (text: Text) => ({ type: 'text', text });

function imagePart(place: string, { image_url, file_id, detail }: PlainObject): object {
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

/** Content in the form of chat. A single text becomes a string, and no parts at all an empty one. */
function contentAt(place: string, value: unknown): Text | object[] {
  if (isString(value)) return value;
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
  return parts.length === 1 && 'text' in only ? (only.text as Text) : parts;
}

/**
 * The text of content, its parts joined by line ends. Throws a RequestRefusal if the content holds an image.
 */
function textAt(place: string, value: unknown): Text {
  const content = contentAt(place, value);
  if (!Array.isArray(content)) return content;
  const texts = content.map((part, at) => {
    if ('text' in part) return part.text as Text;
    throw unsupported(`${place}[${at}]`, 'instructions are text', 'Send the image in a message of the user.');
  });
  return new Joined(texts.flatMap((text, at) => (at === 0 ? [text] : ['\n', text])));
}

/**
 * Marks instructions that come in the middle of a conversation, for a message of the user. Several model
 * templates fail at a system message there, or drop it.
 */
function asApplication(content: Text | object[]): Text | object[] {
  const [before, after] = ['<application_instructions>\n', '\n</application_instructions>'];
  if (!Array.isArray(content)) return new Joined([before, content, after]);
  return [textPart(before), ...content, textPart(after)];
}

/**
 * Writes the messages into `output` as their items come. Neighbouring items can share one message of the
 * assistant, and the leading instructions share one of the system. Such a message is never kept in memory: it
 * stays open in `output`, and later items extend it.
 */
export class Messages {
  /** Messages so far. */
  count = 0;
  readonly #chain: ByteChain;
  readonly #hold: Hold;
  readonly #output: RequestWriter;
  readonly #tools: Tools;
  #open: 'system' | 'assistant' | undefined;
  #calls = 0; // tool calls in the open message
  #reasoning: RequestWriter | undefined; // for the next message of the assistant, without its quotes

  /** `hold` reserves memory for reasoning, which is kept until the message after it is written. */
  constructor(output: RequestWriter, tools: Tools, { chain, hold }: { chain: ByteChain; hold: Hold }) {
    this.#output = output;
    this.#tools = tools;
    this.#chain = chain;
    this.#hold = hold;
  }

  instruct(text: Text): void {
    if (this.#open === 'system') this.#output.raw('\\n\\n');
    else this.#begin('{"role":"system","content":"', 'system');
    this.#output.inside(text);
  }

  add(place: string, item: PlainObject): void {
    const type = item['type'] ?? (typeof item['role'] === 'string' ? 'message' : undefined);
    const translate = typeof type === 'string' ? ITEMS.get(type) : undefined;
    if (translate === undefined)
      throw unsupported(`${place}.type`, 'an item of this type cannot be translated', INSTEAD);
    translate(this, place, item, this.#tools);
  }

  message(place: string, { role, content }: PlainObject): void {
    const leads = (this.count === 0 || this.#open === 'system') && this.#reasoning === undefined;
    if (role === 'user') this.#whole({ role, content: contentAt(`${place}.content`, content) });
    else if (role === 'assistant') this.#assistant(contentAt(`${place}.content`, content));
    else if (role !== 'system' && role !== 'developer') {
      throw invalid(`${place}.role`, '"user", "assistant", "system" or "developer"');
    } else if (leads) this.instruct(textAt(`${place}.content`, content));
    else this.#whole({ role: 'user', content: asApplication(contentAt(`${place}.content`, content)) });
  }

  reason(texts: readonly Text[]): void {
    const isFirst = this.#reasoning === undefined;
    this.#reasoning ??= new RequestWriter(this.#chain, this.#hold);
    for (const [at, text] of texts.entries()) {
      if (at > 0 || !isFirst) this.#reasoning.raw('\\n');
      this.#reasoning.inside(text);
    }
  }

  /**
   * Adds reasoning from `encrypted_content` that this translation wrote (readReasoning). Content that others
   * wrote is left out.
   */
  reasonSealed(sealed: string | Span): void {
    if (typeof sealed !== 'string') this.#hold(sealed.end - sealed.start);
    const text = readReasoning(
      typeof sealed === 'string' ? sealed : decoded(this.#chain, sealed.start, sealed.end),
    );
    if (text !== undefined) this.reason([text]);
  }

  call(place: string, id: Text, origin: ToolOrigin | undefined, args: Arguments): void {
    const tools = this.#tools;
    const name = origin === undefined ? tools.nameOfSearch(place) : tools.nameOf(`${place}.name`, origin);
    if (this.#open !== 'assistant' || this.#reasoning !== undefined) this.#assistant();
    this.#output.raw(this.#calls === 0 ? ',"tool_calls":[' : ',');
    this.#calls += 1;
    this.#output.value({ id, type: 'function', function: { name, arguments: args } });
  }

  output(id: Text, content: Text | object[]): void {
    this.#whole({ role: 'tool', tool_call_id: id, content });
  }

  /** Ends the open message. The caller of `add` calls it once, after the last item. */
  end(): void {
    if (this.#open === 'system') this.#output.raw('"}');
    else if (this.#open === 'assistant') this.#output.raw(this.#calls === 0 ? '}' : ']}');
    this.#open = undefined;
  }

  #begin(text: string, open: 'system' | 'assistant' | undefined): void {
    this.end();
    this.#output.raw(this.count === 0 ? text : `,${text}`);
    this.count += 1;
    this.#open = open;
    this.#calls = 0;
  }

  #whole(message: object): void {
    this.#begin('', undefined);
    this.#output.value(message);
    this.#reasoning = undefined;
  }

  #assistant(content?: Text | object[]): void {
    const output = this.#output;
    const reasoning = this.#reasoning;
    this.#reasoning = undefined;
    this.#begin('{"role":"assistant"', 'assistant');
    for (const name of reasoning === undefined ? [] : ['reasoning', 'reasoning_content']) {
      output.raw(`,"${name}":"`);
      output.append(reasoning as RequestWriter);
      output.raw('"');
    }
    if (content === undefined) return;
    output.raw(',"content":');
    output.value(content);
  }
}

const originOf = (
  kind: 'function' | 'custom',
  place: string,
  { name, namespace }: PlainObject,
): ToolOrigin => ({
  kind,
  name: wordAt(`${place}.name`, name),
  namespace: isSet(namespace) ? wordAt(`${place}.namespace`, namespace) : undefined,
});

function callIdAt(place: string, { call_id }: PlainObject): Text {
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
  if (execution === 'client') return;
  throw unsupported(
    `${place}.execution`,
    'the service runs no hosted tools',
    'Send the searches of the application only.',
  );
}

type Arguments = string | Quoted | ObjectText;

/** Arguments whose only member is `name`. Its value is one that the value reader does not look into. */
const argumentsOf = (name: string, value: unknown): string | Quoted =>
  value instanceof Span ? new Quoted(`{"${name}":`, value, '}') : JSON.stringify({ [name]: value });

/**
 * Arguments that are not a JSON object. The service parses those of each earlier call, and refuses the whole
 * conversation if it cannot. The model still reads what it wrote, above what the tool said of it.
 */
const invalidArguments = (args: unknown) => argumentsOf('invalid_arguments', args);

function isObjectText(text: string): boolean {
  try {
    return isObject(JSON.parse(text));
  } catch {
    return false;
  }
}

/** The arguments of an earlier call. Empty ones pass: the service takes them for an empty object. */
function givenArguments(args: string | Span): Arguments {
  if (typeof args === 'string') return args === '' || isObjectText(args) ? args : invalidArguments(args);
  return new ObjectText(args, invalidArguments(args) as Quoted);
}

function searchArguments(args: unknown): Arguments {
  if (isString(args)) return givenArguments(args);
  if (isPassedOn(args)) return new Quoted('', args, '');
  return isSet(args) ? invalidArguments(args) : '{}';
}

type ItemRule = (messages: Messages, place: string, item: PlainObject, tools: Tools) => void;

/** Translates an item, by its type. Items of other types are refused. */
const ITEMS: ReadonlyMap<string, ItemRule> = new Map<string, ItemRule>([
  ['message', (messages, place, item) => messages.message(place, item)],
  [
    'function_call',
    (messages, place, item) => {
      const args = stringAt(`${place}.arguments`, item['arguments']);
      messages.call(place, callIdAt(place, item), originOf('function', place, item), givenArguments(args));
    },
  ],
  [
    'custom_tool_call',
    (messages, place, item) => {
      const input = stringAt(`${place}.input`, item['input']);
      messages.call(
        place,
        callIdAt(place, item),
        originOf('custom', place, item),
        argumentsOf('input', input),
      );
    },
  ],
  [
    'tool_search_call',
    (messages, place, item) => {
      demandClient(place, item);
      messages.call(place, callIdAt(place, item), undefined, searchArguments(item['arguments']));
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
        messages.reason(texts);
        return;
      }
      if (isString(sealed)) messages.reasonSealed(sealed);
    },
  ],
]);
