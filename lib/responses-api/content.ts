/** Translates the content of items into the content of chat messages. */
import { type Placed, untranslatable } from './request-refusal.ts';

/** The content of a message, in the form that a chat completion takes. */
export type ChatContent = string | readonly object[];

const textPart = (text: string) => ({ type: 'text', text });

/** How each type of part is translated. */
const PARTS: ReadonlyMap<unknown, (part: Placed) => object> = new Map([
  ['input_text', (part) => textPart(part.at('text').string)],
  ['output_text', (part) => textPart(part.at('text').string)],
  ['refusal', (part) => textPart(part.at('refusal').string)],
  ['input_image', imagePart],
]);

function imagePart(part: Placed): object {
  const file = part.at('file_id');
  if (file.isSet)
    throw file.unsupported('the service stores no files', 'Send the image itself as image_url.');
  const url = part.at('image_url').string;
  const detail = part.at('detail').value ?? undefined;
  // The API of chat completions does not know the detail "original".
  return { type: 'image_url', image_url: { url, detail: detail === 'original' ? 'high' : detail } };
}

/** Content as a chat completion takes it. A single text becomes a string, an empty list an empty string. */
export function contentAt(place: Placed): ChatContent {
  if (typeof place.value === 'string') return place.value;
  if (!Array.isArray(place.value)) throw place.invalid('a string, or an array of parts');
  const parts = place.list.map((part) => {
    const translate = PARTS.get(part.at('type').value);
    if (translate === undefined) throw untranslatable('a part', part);
    return translate(part);
  });
  const [only] = parts;
  if (only === undefined) return '';
  return parts.length === 1 && 'text' in only ? (only.text as string) : parts;
}

/** The text of content: line ends join its parts. Throws a RequestRefusal if the content holds an image. */
export function textAt(place: Placed): string {
  const content = contentAt(place);
  const parts = typeof content === 'string' ? [textPart(content)] : content;
  const texts = parts.map((part, k) => {
    if ('text' in part) return part.text;
    throw place.list[k]!.unsupported('instructions are text', 'Send the image in a message of the user.');
  });
  return texts.join('\n');
}

/** Joins several contents into one. */
export const joined = (contents: readonly ChatContent[]): ChatContent =>
  contents.every((content) => typeof content === 'string')
    ? contents.join('\n')
    : contents.flatMap((content) => (typeof content === 'string' ? textPart(content) : content));

/**
 * Marks instructions from the middle of a conversation. A message of the user can then hold the instructions.
 * Several model templates fail at a system message in the middle, or drop it.
 */
export function asApplication(content: ChatContent): ChatContent {
  const [before, after] = ['<application_instructions>\n', '\n</application_instructions>'];
  if (typeof content === 'string') return before + content + after;
  return [textPart(before), ...content, textPart(after)];
}
