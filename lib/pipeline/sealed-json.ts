/**
 * Reads the outer JSON of a response as the gateway sends it: an object whose values are messages, beside the
 * few members that are plain (docs/protocol/inference.md, section 6). Nothing authenticates this text. So it
 * is read once, by a grammar much narrower than JSON, and never parsed as a whole: hostile text costs no more
 * than honest text of its length.
 */
import { encryptionOrder } from '../json/names.ts';
import { ARRAY, BACKSLASH, OBJECT, QUOTE, TO_CLOSER } from '../json/tokens.ts';
import { malformed, notAuthentic } from './decrypter.ts';
import type { PlainKind, PlainMembers } from './response-grammar.ts';

/** Most members of an object. Honest ones have about fifteen. */
const MAX_MEMBERS = 64;
/** Most elements of an array. They are the elements of a document, some dozens per page. */
const MAX_ELEMENTS = 100_000;
/**
 * Most bytes of JSON text of a plain member. Plain members are counts and short names; a gateway could make
 * them as long as it likes.
 */
const MAX_PLAIN_BYTES = 16 * 1024;

/**
 * What stands before the value of a member: its bracket or comma, its name, and few blanks. No API has names
 * that are not plain words, and some decoders fold or split such names in ways of their own.
 */
const BEFORE = /[ \t\n\r]{0,64}([{,])[ \t\n\r]{0,64}"([\w.-]{1,256})"[ \t\n\r]{0,64}:[ \t\n\r]{0,64}/y;
const END = /[ \t\n\r]{0,64}\}[ \t\n\r]{0,64}$/y;
const PRINTABLE = /^[ -~]*$/;
const COMMA = 0x2c;

const noJson = () => malformed('the response is not the JSON that was agreed');
const wrongPlain = () => malformed('a plain member of the response is not what it should be');

/** A member of the object, as it is written in most events of a stream. */
interface Member {
  readonly name: string;
  /** The text before its value, from its bracket or comma on. */
  readonly before: string;
  /** The kinds of value that it may have in clear; undefined: its value is a message. */
  readonly plain: readonly PlainKind[] | undefined;
}

/** What the gateway sent. Each character of it is one byte (latin1). */
export interface SealedObject {
  /** The same array as that of the object before, if both are written alike. */
  readonly names: readonly string[];
  /**
   * By the same index: of a plain member its JSON text as it was written, of any other its message without
   * quotes.
   */
  readonly values: string[];
  /** Its messages in the order in which they were sealed: the name of each, and its index. */
  readonly sealed: readonly { readonly name: string; readonly at: number }[];
}

/** A part of a text keeps all of it in memory; its copy does not. */
const copyOf = (part: string): string => Buffer.from(part, 'latin1').toString('latin1');

/**
 * Whether this member stands at `at`, its value right behind what stands before it. A comparison of slices
 * takes a sixth of the time of startsWith.
 */
function isWrittenAt(text: string, at: number, { before }: Member): boolean {
  const end = at + before.length;
  return text.slice(at, end) === before && text.charCodeAt(end) > 0x20;
}

/** Whether the object, and with it the text, ends at `at`. */
function endsAt(text: string, at: number): boolean {
  if (text.charCodeAt(at) === COMMA) return false;
  END.lastIndex = at;
  return END.test(text);
}

/**
 * The position after the message at `start`. The cipher refuses messages with a backslash or a control
 * character, so the first quote ends the string.
 */
function endOfMessage(text: string, start: number): number {
  if (text.charCodeAt(start) !== QUOTE) throw notAuthentic('a value of the response is not encrypted');
  const quote = text.indexOf('"', start + 1);
  if (quote < 0) throw noJson();
  return quote + 1;
}

const isCloser = (code: number): boolean => code === OBJECT + TO_CLOSER || code === ARRAY + TO_CLOSER;

/** The position after the plain value at `start`, if that is JSON of at most MAX_PLAIN_BYTES. */
function endOfPlain(text: string, start: number): number {
  const limit = Math.min(text.length, start + MAX_PLAIN_BYTES);
  let depth = 0;
  let inString = false;
  for (let at = start; at < limit; at++) {
    const code = text.charCodeAt(at);
    if (inString && code === BACKSLASH) at += 1;
    else if (code === QUOTE) inString = !inString;
    else if (inString) continue;
    else if (code === OBJECT || code === ARRAY) depth += 1;
    else if (isCloser(code)) depth -= 1;
    if (depth < 0 || (depth === 0 && code === COMMA)) return at; // a number or a literal ended before
    if (depth === 0 && !inString && (code === QUOTE || isCloser(code))) return at + 1;
  }
  throw wrongPlain();
}

/** Reads the objects of one response. */
export class SealedReader {
  /** The parsed value of the latest plain member `usage`. */
  usage: unknown;
  readonly #plain: PlainMembers;
  /** Those of the object before: most objects of a stream are written like it. */
  #members: readonly Member[] = [];
  #names: readonly string[] = [];
  #sealed: SealedObject['sealed'] = [];

  constructor(plain: PlainMembers) {
    this.#plain = plain;
  }

  /**
   * The members of the object that is all of `text`: 1 to 64, none twice, each named by a plain word, with at
   * most 64 blanks in a row between them. A plain member is JSON of a kind that it may have, in printable
   * ASCII, of at most 16 KiB. Throws response_malformed for any other text. Throws response_not_authentic if
   * a member that is not plain is not a string.
   */
  object(text: string): SealedObject {
    const values: string[] = [];
    let members = this.#members;
    let at = 0;
    do {
      const known = members[values.length];
      if (known === undefined || !isWrittenAt(text, at, known)) {
        members = this.#withMemberAt(members.slice(0, values.length), text, at);
      }
      const member = members[values.length]!;
      const start = at + member.before.length;
      if (member.plain === undefined) {
        at = endOfMessage(text, start);
        values.push(text.slice(start + 1, at - 1));
      } else {
        at = endOfPlain(text, start);
        values.push(this.#plainText(member, text.slice(start, at)));
      }
    } while (!endsAt(text, at));
    if (members !== this.#members || members.length > values.length) {
      this.#members = members.slice(0, values.length);
      this.#names = this.#members.map(({ name }) => name);
      const numbered = this.#names.map((name, at) => ({ name, at }));
      this.#sealed = encryptionOrder(numbered.filter(({ name }) => !this.#plain.has(name)));
    }
    return { names: this.#names, values, sealed: this.#sealed };
  }

  #withMemberAt(members: Member[], text: string, at: number): Member[] {
    BEFORE.lastIndex = at;
    const [written = '', bracket, word = ''] = BEFORE.exec(text) ?? [];
    const name = copyOf(word);
    const isNext = bracket === (members.length === 0 ? '{' : ',') && members.length < MAX_MEMBERS;
    if (!isNext || members.some((earlier) => earlier.name === name)) throw noJson();
    members.push({ name, before: copyOf(written), plain: this.#plain.get(name) });
    return members;
  }

  /** The text that may be written out for this plain value. */
  #plainText(member: Member, written: string): string {
    let value: unknown;
    try {
      value = JSON.parse(written);
    } catch {
      throw wrongPlain();
    }
    const kind = value === null ? 'null' : Array.isArray(value) ? 'array' : typeof value;
    const text = written.replace(/[\t\n\r]/g, ' '); // an object may be laid out
    if (!member.plain?.includes(kind as PlainKind) || !PRINTABLE.test(text)) throw wrongPlain();
    if (member.name === 'usage') this.usage = value;
    return text;
  }
}

/** The numbers below `count` in the order of their texts: 0, 1, 10, 11, 2. Sorting many takes too long. */
function inTextOrder(count: number): number[] {
  const order: number[] = [];
  const visit = (from: number, to: number): void => {
    for (let at = from; at < to && at < count; at++) {
      order.push(at);
      if (at > 0) visit(10 * at, 10 * at + 10);
    }
  };
  visit(0, 10);
  return order;
}

/**
 * The messages of the array that is all of `text`, their names the indices as text. Throws response_malformed
 * if it is no array of strings, or has more than 100,000.
 */
export function sealedElements(text: string): SealedObject {
  const parts = text.split('"', 2 * MAX_ELEMENTS + 2);
  const values = parts.filter((_, k) => k % 2 === 1);
  const frame = parts.map((part, k) => (k % 2 === 1 ? '"' : part.trim()));
  if (frame.join('') !== `[${values.map(() => '"').join()}]`) throw noJson();
  const names = [...values.keys()].map(String);
  const sealed = inTextOrder(values.length).map((at) => ({ name: names[at]!, at }));
  return { names, values, sealed };
}
