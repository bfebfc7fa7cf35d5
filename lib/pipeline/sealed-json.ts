/**
 * Reads the outer JSON of a response: messages, beside few plain members (docs/protocol/inference.md 6).
 * Nothing authenticates it. So it is read by a grammar much narrower than JSON, and never parsed as a whole:
 * hostile text costs no more than honest text of its length. Nearly all objects are written like an earlier
 * one. So their values are cut out first; what is left, the frame, is understood once, and only compared.
 */
import { encryptionOrder } from '../json/names.ts';
import { jsonOf, type Members, malformed, notAuthentic } from './decrypter.ts';

const MAX_MEMBERS = 64; // of an object; honest ones have about fifteen
const MAX_BETWEEN = 600; // bytes between two values; MEMBER takes fewer
const MAX_ELEMENTS = 100_000; // of an array: a document, some dozens per page
const MAX_PLAIN_BYTES = 16 * 1024; // of a plain member: counts and short names, unless a gateway is hostile
const MAX_LAYOUTS = 64; // that are kept; a stream has about four, a gateway could make more by its blanks

/** A member without its value. No API has names other than plain words, which some decoders fold or split. */
const MEMBER = /[ \t\n\r]{0,64}([{,])[ \t\n\r]{0,64}"([\w.-]{1,256})"[ \t\n\r]{0,64}:[ \t\n\r]{0,64}("")?/gy;
const END = /^[ \t\n\r]{0,64}\}[ \t\n\r]{0,64}$/;
/** Any other plain value: a literal, a number, a string with escapes, an object of at most three levels. */
const PLAIN =
  /^(?:[\w.+-]+|"(?:[ !#-[\]-~]|\\[ -~])*"|\{[\t\n\r -z|~]*(?:\{[\t\n\r -z|~]*(?:\{[\t\n\r -z|~]*\}[\t\n\r -z|~]*)*\}[\t\n\r -z|~]*)*\})/;
const TEXT = /^[ -[\]-~]*$/; // inside of quotes, what means itself
const PRINTABLE = /^[\t\n\r -~]*$/; // of JSON text, whose strings hold no line ends

const noJson = () => malformed('the response is not the JSON that was agreed');
const wrongPlain = () => malformed('a plain member of the response is not what it should be');

/** The members that are not encrypted, and the kinds of value that they may have: of `typeof`, or `null`. */
export type PlainMembers = Members<readonly string[]>;

/** What objects with the same frame have in common. */
export interface Layout {
  readonly names: readonly string[]; // in the order in which they were written; none of an array
  readonly sealed: readonly number[]; // indices of the messages, in the order in which they were sealed
  /** The plain members, and the quote at both ends of the value, if that is a string. */
  readonly plain: readonly { readonly name: string; readonly at: number; readonly quote: string }[];
  row: object | undefined; // of the grammar, which is known to have these names
}

/** What the gateway sent. Each character of it is one byte (latin1). */
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

/** Cuts the values out of an object, and adds them to `values`. Returns the frame in pieces. */
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
      layoutOf(`${frame.join('')}}`, plain); // throws if a message should be here
      throw wrongPlain();
    }
    at = start + length;
    values.push(text.slice(start, at));
  }
}

/**
 * Makes what reads the objects of an API with these plain members: each all of its text, with 1 to 64
 * members, none twice. A plain member is JSON of its kinds, in printable ASCII, of at most 16 KiB. Throws
 * response_malformed for any other text, and response_not_authentic if another member is not a string.
 */
export function sealedReader(plain: PlainMembers) {
  const layouts = new Map<string, Layout>();
  let last: readonly string[] = []; // the frame before; to compare its pieces costs less than to look it up
  let layout: Layout;
  return (text: string) => {
    const values: string[] = []; // by index: the JSON text of a plain member, else the message without quotes
    const pieces = cut(text, values, plain);
    if (pieces.length !== last.length || !pieces.every((piece, i) => piece === last[i])) {
      const frame = pieces.join('');
      layout = layouts.get(frame) ?? layoutOf(frame, plain);
      if (layouts.size === MAX_LAYOUTS) layouts.clear();
      layouts.set(frame, layout);
      last = pieces;
    }
    let type: string | undefined; // the plain member of that name, as it was written, without quotes
    let usage: unknown; // the plain member of that name, parsed
    for (const { name, at, quote } of layout.plain) {
      const inside = values[at]!;
      const written = `${quote}${inside}${quote}`;
      const isText = quote !== '' && TEXT.test(inside);
      if (written.length > MAX_PLAIN_BYTES || !(isText || PRINTABLE.test(written))) throw wrongPlain();
      const value = isText ? inside : jsonOf(written, wrongPlain);
      if (!plain[name]!.includes(value === null ? 'null' : typeof value)) throw wrongPlain();
      values[at] = isText ? written : written.replace(/[\t\n\r]/g, ' '); // an object may be laid out
      if (name === 'type') type = inside;
      if (name === 'usage') usage = value;
    }
    return { layout, values, type, usage };
  };
}

/** The JSON text of an object with these values, without the member `left`. */
export function objectText({ names }: Layout, values: readonly string[], left?: string): string {
  let text = '';
  for (let k = 0; k < names.length; k++) {
    if (names[k] !== left) text += `${text === '' ? '{' : ','}"${names[k]!}":${values[k]!}`;
  }
  return `${text}}`;
}

/** The messages of the array that is all of `text`. Throws response_malformed if it is none of strings. */
export function sealedElements(text: string): SealedObject {
  const parts = text.split('"', 2 * MAX_ELEMENTS + 2);
  const values = parts.filter((_, k) => k % 2 === 1);
  const frame = parts.map((part, k) => (k % 2 === 1 ? '"' : part.trim()));
  if (frame.join('') !== `[${values.map(() => '"').join()}]`) throw noJson();
  const sealed = [...values.keys()].sort(); // as texts: 0, 1, 10, 11, 2
  const layout = { names: [], sealed, plain: [], row: undefined };
  return { layout, values, type: undefined, usage: undefined };
}
