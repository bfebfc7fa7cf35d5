/**
 * Reads the outer JSON of a response as the gateway sends it: an object whose values are messages, beside the
 * few members that are plain (docs/protocol/inference.md, section 6), or an array of messages. Nothing
 * authenticates this text. So it is read once, by a grammar much narrower than JSON, and never parsed as a
 * whole: hostile text costs no more than honest text of its length.
 */
import { ARRAY, BACKSLASH, OBJECT, QUOTE, TO_CLOSER } from '../json/tokens.ts';
import { malformed, notAuthentic } from './decrypter.ts';
import { MAX_PLAIN_BYTES, type PlainKind, type PlainMembers } from './response-grammar.ts';

/** Most members of an object. Honest ones have about fifteen. */
const MAX_MEMBERS = 64;
/** Most elements of an array. They are the elements of a document, some dozens per page. */
const MAX_ELEMENTS = 100_000;

/** A name and the colon behind it. No API has names that are not plain words. */
const NAME = /[ \t\n\r]*"([\w.-]{1,256})"[ \t\n\r]*:/y;
/** Longer ones, with their blanks, are not remembered. */
const MAX_NAME = 300;
const PRINTABLE = /^[ -~]*$/;
const LINE_ENDS_AND_TABS = /[\t\n\r]/g;

const COMMA = 0x2c;

const noJson = () => malformed('the response is not the JSON that was agreed');
const wrongPlain = () => malformed('a plain member of the response is not what it should be');

/** The position of the next character that is no blank. */
function skipBlanks(text: string, from: number): number {
  let at = from;
  for (;;) {
    const code = text.charCodeAt(at);
    if (code !== 0x20 && code !== 0x0a && code !== 0x0d && code !== 0x09) return at;
    at += 1;
  }
}

/**
 * The position of the next item of an object or an array, behind `from`; undefined if its bracket, and with
 * it the text, ends there.
 */
function nextItem(text: string, from: number, opening: number): number | undefined {
  const at = skipBlanks(text, from);
  const code = text.charCodeAt(at);
  if (code === COMMA) return at + 1;
  if (code === opening + TO_CLOSER && skipBlanks(text, at + 1) === text.length) return undefined;
  throw noJson();
}

/** The position of the first item; undefined if there is none. */
function firstItem(text: string, opening: number): number | undefined {
  const at = skipBlanks(text, 0);
  if (text.charCodeAt(at) !== opening) throw noJson();
  const isEmpty = text.charCodeAt(skipBlanks(text, at + 1)) === opening + TO_CLOSER;
  return isEmpty ? nextItem(text, at + 1, opening) : at + 1;
}

/**
 * The position after the message at `start`. The cipher refuses messages with a backslash or a control
 * character, so the first quote ends the string.
 */
function endOfMessage(text: string, start: number): number {
  if (start >= text.length) throw noJson();
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

const kindOf = (value: unknown): PlainKind | undefined => {
  if (value === null) return 'null';
  if (typeof value === 'object') return Array.isArray(value) ? undefined : 'object';
  return typeof value === 'string' || typeof value === 'number' ? (typeof value as PlainKind) : undefined;
};

/**
 * An object of the gateway. Each character of it is one byte (latin1). Names and plain strings are copies.
 */
export interface SealedObject {
  readonly names: readonly string[];
  /**
   * By the same index: of a plain member its JSON text as it was written, of any other its message without
   * quotes.
   */
  readonly values: string[];
}

/** What startsWith says, in a sixth of its time. */
const standsAt = (text: string, at: number, part: string): boolean =>
  text.slice(at, at + part.length) === part;

interface WrittenName {
  readonly name: string;
  /** With the blanks before it, its quotes, and the colon. */
  readonly written: string;
}

/** A part of a text keeps all of it in memory; its copy does not. */
const copyOf = (part: string): string => Buffer.from(part, 'latin1').toString('latin1');

/** Reads the objects of one response. */
export class SealedReader {
  /** The parsed value of the latest plain member `usage`. */
  usage: unknown;
  readonly #plain: PlainMembers;
  /** The names of the object before. Most objects of a stream are written like it. */
  readonly #names: WrittenName[] = [];
  /** The texts of the latest plain strings. Most are the same in all events of a stream. */
  readonly #known = new Map<string, string>();

  constructor(plain: PlainMembers) {
    this.#plain = plain;
  }

  /**
   * The members of the object that is all of `text`. Throws response_not_authentic if a member that is not
   * plain is not a string. Throws response_malformed if the text is no object, repeats a member, has more
   * than 64 or one whose name is no plain word; or if a plain member is not valid JSON of a kind that it may
   * have, longer than 16 KiB, or not printable ASCII.
   */
  object(text: string): SealedObject {
    const names: string[] = [];
    const values: string[] = [];
    let at = firstItem(text, OBJECT);
    while (at !== undefined) {
      const { name, written } = this.#nameAt(text, at, names.length);
      if (names.includes(name)) throw noJson();
      const start = skipBlanks(text, at + written.length);
      const isPlain = this.#plain.has(name);
      const end = isPlain ? this.#endOfPlain(name, text, start) : endOfMessage(text, start);
      names.push(name);
      values.push(isPlain ? this.#plainText(name, text.slice(start, end)) : text.slice(start + 1, end - 1));
      at = nextItem(text, end, OBJECT);
    }
    return { names, values };
  }

  /** The name of the member with that index, and its text from `at` to its colon. */
  #nameAt(text: string, at: number, index: number): WrittenName {
    const last = this.#names[index];
    if (last !== undefined && standsAt(text, at, last.written)) return last;
    NAME.lastIndex = at;
    const found = NAME.exec(text);
    if (found === null || index === MAX_MEMBERS) throw noJson();
    const name = { name: copyOf(found[1]!), written: copyOf(found[0]) };
    if (name.written.length <= MAX_NAME) this.#names[index] = name;
    return name;
  }

  #endOfPlain(name: string, text: string, start: number): number {
    const known = this.#known.get(name);
    const isKnown = known !== undefined && standsAt(text, start, known);
    return isKnown ? start + known.length : endOfPlain(text, start);
  }

  /** The text that may be written out for this plain value. */
  #plainText(name: string, written: string): string {
    const known = this.#known.get(name);
    if (written === known) return known;
    const value = parsedPlain(written);
    const kind = kindOf(value);
    // Behind a number stand blanks, and an object may be laid out.
    const text = PRINTABLE.test(written) ? written : written.trimEnd().replace(LINE_ENDS_AND_TABS, ' ');
    if (kind === undefined || !this.#plain.get(name)?.includes(kind) || !PRINTABLE.test(text)) {
      throw wrongPlain();
    }
    if (name === 'usage') this.usage = value;
    if (kind !== 'string') return text;
    const copy = copyOf(text);
    this.#known.set(name, copy);
    return copy;
  }
}

function parsedPlain(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    throw wrongPlain();
  }
}

/**
 * The messages, without quotes, of the array that is all of `text`. Throws response_not_authentic if an
 * element is not a string, response_malformed if the text is no array or has more than 100,000 elements.
 */
export function sealedElements(text: string): string[] {
  const messages: string[] = [];
  let next = firstItem(text, ARRAY);
  while (next !== undefined) {
    if (messages.length === MAX_ELEMENTS) throw noJson();
    const start = skipBlanks(text, next);
    const end = endOfMessage(text, start);
    messages.push(text.slice(start + 1, end - 1));
    next = nextItem(text, end, ARRAY);
  }
  return messages;
}
