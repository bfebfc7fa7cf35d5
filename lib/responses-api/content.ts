/** Translates the content of items into that of messages of a chat completion. */
import {
  invalid,
  isSet,
  objectAt,
  type PlainObject,
  stringAt,
  unsupported,
  untranslatable,
} from './request-refusal.ts';

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
export type ChatContent = string | readonly object[];

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

/** ChatContent in the form of chat. A single text becomes a string, and no parts at all an empty one. */
export function contentAt(place: string, value: unknown): ChatContent {
  if (typeof value === 'string') return value;
  if (!Array.isArray(value)) throw invalid(place, 'a string, or an array of parts');
  const parts = value.map((part, at) => {
    const where = `${place}[${at}]`;
    const object = objectAt(where, part);
    const translate = PARTS.get(object['type']);
    if (translate === undefined) throw untranslatable('a part', `${where}.type`, object['type']);
    return translate(where, object);
  });
  const [only] = parts;
  if (only === undefined) return '';
  return parts.length === 1 && 'text' in only ? (only.text as string) : parts;
}

/**
 * The text of content, its parts joined by line ends. Throws a RequestRefusal if the content holds an image.
 */
export function textAt(place: string, value: unknown): string {
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
export function asApplication(content: ChatContent): ChatContent {
  const [before, after] = ['<application_instructions>\n', '\n</application_instructions>'];
  if (typeof content === 'string') return before + content + after;
  return [textPart(before), ...content, textPart(after)];
}
