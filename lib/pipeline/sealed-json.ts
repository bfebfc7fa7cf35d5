/**
 * Reads the outer JSON of a response: messages and a few plain members (docs/protocol/inference.md 6).
 * Nothing authenticates the outer JSON. So it is read by a grammar narrower than JSON, and never parsed as a
 * whole: hostile text costs no more than honest text. Most objects differ from an earlier object only in
 * their values. So the values are cut out, and the rest, the frame, is analysed once and later only compared.
 */
import { encryptionOrder } from '../json/names.ts';
import { jsonOf, type Members, malformed, notAuthentic } from './decrypter.ts';

const MAX_MEMBERS = 64; // the most members of an object; honest objects have about fifteen
const MAX_BETWEEN = 600; // the most bytes between two values; a match of MEMBER is shorter
const MAX_ELEMENTS = 100_000; // the most in an array; a document has some dozens of elements per page
const MAX_PLAIN_BYTES = 16 * 1024; // the most bytes of a plain member; honest ones are counts and short names
const MAX_LAYOUTS = 64; // the most layouts kept; a stream has about four, but blanks could make more

/** A member without its value. Names must be plain words, because some decoders fold or split other names. */
const MEMBER = /[ \t\n\r]{0,64}([{,])[ \t\n\r]{0,64}"([\w.-]{1,256})"[ \t\n\r]{0,64}:[ \t\n\r]{0,64}("")?/gy;
const END = /^[ \t\n\r]{0,64}\}[ \t\n\r]{0,64}$/;
/** Plain values except simple strings: literals, numbers, strings with escapes, objects of up to 3 levels. */
const PLAIN =
  /^(?:[\w.+-]+|"(?:[ !#-[\]-~]|\\[ -~])*"|\{[\t\n\r -z|~]*(?:\{[\t\n\r -z|~]*(?:\{[\t\n\r -z|~]*\}[\t\n\r -z|~]*)*\}[\t\n\r -z|~]*)*\})/;
const TEXT = /^[ -[\]-~]*$/; // the inside of a string without escapes
const PRINTABLE = /^[\t\n\r -~]*$/; // JSON text in ASCII, with line ends between tokens only

const noJson = () => malformed('the response is not the JSON that was agreed');
const wrongPlain = () => malformed('a plain member of the response is not what it should be');

/** The members that are not encrypted, and the types of their values, as `typeof` names types, or `null`. */
export type PlainMembers = Members<readonly string[]>;

/** What objects with the same frame have in common. */
export interface Layout {
  readonly names: readonly string[]; // the names in the order of the text; none for an array
  readonly sealed: readonly number[]; // indices of the messages, in the order in which they were sealed
  /** The plain members. `quote`: the quotation mark around the value if it is a string, else empty. */
  readonly plain: readonly { readonly name: string; readonly at: number; readonly quote: string }[];
  row: object | undefined; // the row of the grammar that these names are known to fit
}

/** An object as it was received. Each character of its text is one byte (latin1). */
export type SealedObject = ReturnType<ReturnType<typeof sealedReader>>;

function layoutOf(frame: string, plain: PlainMembers): Layout {
  const parts = [...frame.matchAll(MEMBER)];
  const brackets = parts.map(([, bracket]) => bracket).join('');
  const members = parts.map(([, , name = '', quotes = ''], at) => ({ name, at, quote: quotes.slice(1) }));
  const names = members.map(({ name }) => name);
  const isObject = /^\{,*$/.test(brackets) && END.test(frame.replace(MEMBER, ''));
  if (!isObject || new Set(names).size < names.length) throw noJson();
  const isPlain = ({ name }: { name: string }): boolean => Object.hasOwn(plain, name);
  const sealed = encryptionOrder(members.filter((member) => !isPlain(member)));
  if (sealed.some(({ quote }) => quote === ''))
    throw notAuthentic('a value of the response is not encrypted');
  return { names, sealed: sealed.map(({ at }) => at), plain: members.filter(isPlain), row: undefined };
}

/** Cuts the values out of an object, and adds them to `values`. Returns the rest, the frame, in pieces. */
function cut(text: string, values: string[], plain: PlainMembers): string[] {
  const frame: string[] = [];
  for (let at = 0; ; ) {
    const colon = text.indexOf(':', at);
    let start = colon < 0 ? text.length : colon + 1;
    while (start - at < MAX_BETWEEN && text.charCodeAt(start) <= 0x20) start += 1;
    if (start - at > MAX_BETWEEN || values.length > MAX_MEMBERS) throw noJson();
    const quote = text[start] === '"' ? text.indexOf('"', start + 1) : 0;
    const isCut = quote !== 0 && text[quote - 1] !== '\\'; // the cipher refuses messages with a backslash
    if (isCut) start += 1;
    frame.push(text.slice(at, start));
    if (colon < 0) return frame;
    const rest = isCut ? '' : text.slice(start, start + MAX_PLAIN_BYTES);
    const length = isCut ? quote - start : (PLAIN.exec(rest)?.[0].length ?? -1);
    if (length < 0) {
      layoutOf(`${frame.join('')}}`, plain); // throws if an encrypted value should be here
      throw wrongPlain();
    }
    at = start + length;
    values.push(text.slice(start, at));
  }
}

/**
 * Makes a function that reads the JSON objects of an API. `plain` lists the members that are not encrypted.
 * The text must be one object with 1 to 64 members and no repeated name. A plain member is printable ASCII
 * JSON of its types with at most 16 KiB. Throws response_malformed for other text, and response_not_authentic
 * if a member that must be encrypted is no string.
 */
export function sealedReader(plain: PlainMembers) {
  const layouts = new Map<string, Layout>();
  let last: readonly string[] = []; // the previous object's frame: comparing with it is faster than a look-up
  let layout: Layout;
  return (text: string) => {
    const values: string[] = []; // an element is the JSON text of a plain member, or a message without quotes
    const pieces = cut(text, values, plain);
    if (pieces.length !== last.length || !pieces.every((piece, i) => piece === last[i])) {
      const frame = pieces.join('');
      layout = layouts.get(frame) ?? layoutOf(frame, plain);
      if (layouts.size === MAX_LAYOUTS) layouts.clear();
      layouts.set(frame, layout);
      last = pieces;
    }
    let type: string | undefined; // the plain member `type`, as it was written, without quotes
    let usage: unknown; // the plain member `usage`, parsed
    for (const { name, at, quote } of layout.plain) {
      const inside = values[at]!;
      const written = `${quote}${inside}${quote}`;
      const isText = quote !== '' && TEXT.test(inside);
      if (written.length > MAX_PLAIN_BYTES || !(isText || PRINTABLE.test(written))) throw wrongPlain();
      const value = isText ? inside : jsonOf(written, wrongPlain);
      if (!plain[name]!.includes(value === null ? 'null' : typeof value)) throw wrongPlain();
      values[at] = isText ? written : written.replace(/[\t\n\r]/g, ' '); // an object may hold line ends
      if (name === 'type') type = inside;
      if (name === 'usage') usage = value;
    }
    return { layout, values, type, usage };
  };
}

/** The JSON text of an object with these values, without the member whose name is `left`. */
export function objectText({ names }: Layout, values: readonly string[], left?: string): string {
  let text = '';
  for (let k = 0; k < names.length; k++) {
    if (names[k] !== left) text += `${text === '' ? '{' : ','}"${names[k]!}":${values[k]!}`;
  }
  return `${text}}`;
}

/** Reads a text that is an array of messages. Throws response_malformed if it is no array of strings. */
export function sealedElements(text: string): SealedObject {
  const parts = text.split('"', 2 * MAX_ELEMENTS + 2);
  const values = parts.filter((_, k) => k % 2 === 1);
  const frame = parts.map((part, k) => (k % 2 === 1 ? '"' : part.trim()));
  if (frame.join('') !== `[${values.map(() => '"').join()}]`) throw noJson();
  const sealed = [...values.keys()].sort(); // the indices sorted as texts: 0, 1, 10, 11, 2
  const layout = { names: [], sealed, plain: [], row: undefined };
  return { layout, values, type: undefined, usage: undefined };
}
