/**
 * Collects the text of the chat request as pieces: text that the translation makes, and slices of the
 * Responses request that pass on unchanged.
 */
import type { ByteChain } from '../pipeline/json/byte-chain.ts';
import { createJsonIndex } from '../pipeline/json/json-index.ts';
import { LARGEST_PIECE, piecesOf } from '../pipeline/pieces.ts';
import { Span } from './value-reader.ts';

/** Texts that follow each other, joined to one string in the chat request. */
export class Joined {
  readonly parts: readonly (string | Span)[];
  constructor(texts: readonly Text[]) {
    this.parts = texts.flatMap((text) => (text instanceof Joined ? text.parts : [text]));
  }
}

/** A string: one of the request (a Span if it is long), one made by the translation, or several joined. */
export type Text = string | Span | Joined;

/** A string whose text is JSON: `before`, then the value as it stands in the request, then `after`. */
export class Quoted {
  readonly before: string;
  readonly value: Span;
  readonly after: string;
  constructor(before: string, value: Span, after: string) {
    this.before = before;
    this.value = value;
    this.after = after;
  }
}

/** A string that passes if its text is a JSON object; else `other` takes its place. */
export class ObjectText {
  readonly value: Span;
  readonly other: Quoted;
  constructor(value: Span, other: Quoted) {
    this.value = value;
    this.other = other;
  }
}

/** Makes the bytes of a piece only when `take` delivers them. */
type Making = () => Generator<Uint8Array, void>;

/** Bytes; shorter stretches of the request are copied. */
const SHORT = 4 * 1024;
/** Yielded after a step that makes no bytes, so that other exchanges have their turn. */
export const NOTHING = Buffer.alloc(0);

/** A JSON string without its quotes. */
const escapedText = (text: string): string => JSON.stringify(text).slice(1, -1);

/** Reserves memory, or throws. */
export type Hold = (bytes: number) => void;

/**
 * Collects the text. It calls `hold` before it takes memory for text that it makes or copies. Longer slices
 * of the request in `chain` are shared and cost nothing.
 */
export class RequestWriter {
  readonly #chain: ByteChain;
  readonly #hold: Hold;
  #pieces: (Uint8Array | Making)[] = [];
  #text = ''; // text that is not in a piece yet

  constructor(chain: ByteChain, hold: Hold) {
    this.#chain = chain;
    this.#hold = hold;
  }

  /** Adds JSON text as it is. */
  raw(text: string): void {
    this.#text += text;
    if (this.#text.length >= LARGEST_PIECE) this.#flush();
  }

  /**
   * Adds a value as JSON: plain objects and lists, and in them Span, Joined, Quoted and ObjectText. Leaves
   * out members that are undefined.
   */
  value(value: unknown): void {
    if (value instanceof Span) this.#copy(value.start, value.end);
    else if (value instanceof Joined || value instanceof Quoted || value instanceof ObjectText) {
      this.raw('"');
      this.inside(value);
      this.raw('"');
    } else if (Array.isArray(value)) {
      this.raw('[');
      for (let i = 0; i < value.length; i++) {
        if (i > 0) this.raw(',');
        this.value(value[i]);
      }
      this.raw(']');
    } else if (typeof value === 'object' && value !== null) this.#object(value);
    else this.raw(JSON.stringify(value));
  }

  #object(object: object): void {
    let comma = '{';
    for (const [name, value] of Object.entries(object)) {
      if (value === undefined) continue;
      this.raw(`${comma}${JSON.stringify(name)}:`);
      this.value(value);
      comma = ',';
    }
    this.raw(comma === '{' ? '{}' : '}');
  }

  /** Adds a text without its quotes. */
  inside(text: Text | Quoted | ObjectText): void {
    if (typeof text === 'string') this.raw(escapedText(text));
    else if (text instanceof Span) this.#copy(text.start + 1, text.end - 1);
    else if (text instanceof Joined) for (const part of text.parts) this.inside(part);
    else if (text instanceof Quoted) this.#quote(text);
    else {
      this.#flush();
      this.#pieces.push(() => this.#passed(text));
    }
  }

  /** Adds the text that another RequestWriter collected. The same text may be added again. */
  append({ pieces }: { readonly pieces: readonly (Uint8Array | Making)[] }): void {
    for (const piece of pieces) if (piece instanceof Uint8Array) this.#share(piece);
  }

  #quote({ before, value, after }: Quoted): void {
    this.raw(escapedText(before));
    this.#flush();
    this.#pieces.push(() => (value.kind === 'string' ? this.#writtenAnew(value) : this.#escaped(value)));
    this.raw(escapedText(after));
  }

  /** Yields the JSON text of a value, escaped for its place within a string. */
  *#escaped({ start, end }: Span): Generator<Uint8Array, void> {
    for (const bytes of this.#chain.slices(start, end).flatMap(piecesOf)) {
      this.#hold(2 * bytes.length);
      const made = Buffer.allocUnsafe(2 * bytes.length);
      let used = 0;
      for (const byte of bytes) {
        const letter = ESCAPES[byte] as number;
        if (letter !== 0) made[used++] = BACKSLASH;
        made[used++] = letter === 0 ? byte : letter;
      }
      yield* piecesOf(made.subarray(0, used));
    }
  }

  /**
   * Yields a string within a string. It is written anew, so that the model reads as few escapes as JSON
   * needs, however the client wrote it.
   */
  *#writtenAnew(value: Span): Generator<Uint8Array, void> {
    const output = new RequestWriter(this.#chain, this.#hold);
    output.raw('\\"');
    for (const text of this.#decoded(value)) {
      output.raw(escapedText(escapedText(text)));
      yield* output.take(true);
    }
    output.raw('\\"');
    yield* output.take(true);
  }

  /** Yields the text that passes, or the other one. */
  *#passed({ value, other }: ObjectText): Generator<Uint8Array, void> {
    const output = new RequestWriter(this.#chain, this.#hold);
    output.inside((yield* this.#isObject(value)) ? value : other);
    yield* output.take(true);
  }

  /** Whether the text of the string is a JSON object. Yields nothing after each part that it has scanned. */
  *#isObject(value: Span): Generator<Uint8Array, boolean> {
    // The text is put into a list, because the index restricts the names of members at the top level only.
    const index = createJsonIndex({ arrays: 'any' });
    try {
      index.feed(Buffer.from('['));
      for (const text of this.#decoded(value)) {
        index.feed(Buffer.from(text));
        yield NOTHING;
      }
      index.feed(Buffer.from(']'));
      return index.finish().length === 1 && index.members[0]?.kind === 'object';
    } catch {
      return false;
    }
  }

  /** Yields the text of a string, decoded, part by part. */
  *#decoded({ start, end }: Span): Generator<string, void> {
    for (let at = start + 1; at < end - 1; ) {
      const bytes = this.#chain.bytes(at, Math.min(end - 1, at + LARGEST_PIECE));
      const length = wholeCharacters(bytes, at + bytes.length === end - 1);
      yield JSON.parse(`"${bytes.toString('utf8', 0, length)}"`) as string;
      at += length;
    }
  }

  #copy(start: number, end: number): void {
    if (end - start < SHORT) this.raw(this.#chain.bytes(start, end).toString('utf8'));
    else for (const slice of this.#chain.slices(start, end)) this.#share(slice);
  }

  #share(bytes: Uint8Array): void {
    this.#flush();
    if (bytes.length < SHORT) this.#hold(bytes.length); // the byte chain that gets short pieces copies them
    for (const part of piecesOf(bytes)) this.#pieces.push(part);
  }

  #flush(): void {
    if (this.#text === '') return;
    this.#hold(Buffer.byteLength(this.#text));
    for (const part of piecesOf(Buffer.from(this.#text))) this.#pieces.push(part);
    this.#text = '';
  }

  /** All pieces. */
  get pieces(): readonly (Uint8Array | Making)[] {
    this.#flush();
    return this.#pieces;
  }

  /** Yields each full piece once; with `ended`, also the text that is not in a piece yet. */
  *take(ended: boolean): Generator<Uint8Array, void> {
    if (ended) this.#flush();
    const taken = this.#pieces;
    this.#pieces = [];
    for (const piece of taken) {
      if (typeof piece === 'function') yield* piece();
      else yield piece;
    }
  }
}

const BACKSLASH = 0x5c;
/**
 * The letter behind the backslash, by the byte that it escapes; 0: the byte needs no escape. Valid JSON has
 * no control characters but these.
 */
const ESCAPES = new Uint8Array(256);
for (const [byte, letter] of ['""', '\\\\', '\nn', '\rr', '\tt'].map((pair) => Buffer.from(pair))) {
  ESCAPES[byte as number] = letter as number;
}

const LETTER_U = 0x75;
/** Bytes of the longest escape of one character: two \\uXXXX. */
const LONGEST_CHARACTER = 12;
/** The first half of a surrogate pair, and the beginning of another \\uXXXX, which may be its second half. */
const PAIR = /^\\u[dD][89abAB]..\\u/;
const PAIR_LENGTH = 8;

/**
 * How many of these bytes of a JSON string's text to decode now, so that the last character is whole. With
 * `all`, no more bytes follow, and all of them count.
 */
function wholeCharacters(bytes: Buffer, all: boolean): number {
  if (all) return bytes.length;
  const enough = bytes.length - LONGEST_CHARACTER;
  let at = 0;
  while (at < enough) {
    if (bytes[at] !== BACKSLASH) at += 1;
    else if (bytes[at + 1] !== LETTER_U) at += 2;
    else {
      const isPair = PAIR.test(bytes.toString('latin1', at, at + PAIR_LENGTH));
      at += isPair ? LONGEST_CHARACTER : LONGEST_CHARACTER / 2;
    }
  }
  while (((bytes[at] ?? 0) & 0xc0) === 0x80) at += 1;
  return at;
}
