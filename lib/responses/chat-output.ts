/** The text of the chat request, in pieces: what is made of the request, and the bytes of the request where they are passed on. */
import type { ByteChain } from '../pipeline/json/byte-chain.ts';
import { Span } from './value-reader.ts';

/** Texts one after the other: one string in the chat request. */
export class Joined {
  readonly parts: readonly (string | Span)[];
  constructor(texts: readonly Text[]) {
    this.parts = texts.flatMap((text) => (text instanceof Joined ? text.parts : [text]));
  }
}

/** A string of the request, or one that is made of it. */
export type Text = string | Span | Joined;

/** A string that says JSON: `before`, then the value as it stands in the request, then `after`. */
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

/** Bytes of the request that become part of a string when they are delivered: most of them may need an escape. */
class Unescaped {
  readonly bytes: Uint8Array;
  constructor(bytes: Uint8Array) {
    this.bytes = bytes;
  }
}

/** Bytes that are made, or delivered, at a time. */
const AT_A_TIME = 64 * 1024;
/** Bytes; shorter stretches of the request are copied. */
const SHORT = 4 * 1024;

/** A JSON string without its quotes. */
const escapedText = (text: string): string => JSON.stringify(text).slice(1, -1);

/** Reserves memory, or throws. */
export type Hold = (bytes: number) => void;

/** Collects the text. What is made is reserved by `hold` first; bytes of the request, in `chain`, are shared and cost nothing. */
export class ChatOutput {
  readonly #chain: ByteChain;
  readonly #hold: Hold;
  #pieces: (Uint8Array | Unescaped)[] = [];
  #text = ''; // that is not in a piece yet

  constructor(chain: ByteChain, hold: Hold) {
    this.#chain = chain;
    this.#hold = hold;
  }

  /** Adds JSON text as it is. */
  raw(text: string): void {
    this.#text += text;
    if (this.#text.length >= AT_A_TIME) this.#flush();
  }

  /** Adds a value: of plain objects and lists, and of what stands for a part of the request. Members that are undefined are left out. */
  value(value: unknown): void {
    if (value instanceof Span) this.#copy(value.start, value.end);
    else if (value instanceof Joined || value instanceof Quoted) {
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
  inside(text: Text | Quoted): void {
    if (typeof text === 'string') this.raw(escapedText(text));
    else if (text instanceof Span) this.#copy(text.start + 1, text.end - 1);
    else if (text instanceof Joined) for (const part of text.parts) this.inside(part);
    else this.#quote(text);
  }

  /** Adds texts that another one collected, which may be added again. */
  append({ pieces }: { readonly pieces: readonly (Uint8Array | Unescaped)[] }): void {
    for (const piece of pieces) if (piece instanceof Uint8Array) this.#share(piece);
  }

  #quote({ before, value, after }: Quoted): void {
    this.raw(escapedText(before));
    this.#flush();
    for (const slice of this.#chain.slices(value.start, value.end)) {
      for (const part of parts(slice)) this.#pieces.push(new Unescaped(part));
    }
    this.raw(escapedText(after));
  }

  *#escaped({ bytes }: Unescaped): Generator<Uint8Array, void> {
    this.#hold(2 * bytes.length);
    const made = Buffer.allocUnsafe(2 * bytes.length);
    let used = 0;
    for (const byte of bytes) {
      const letter = ESCAPES[byte] as number;
      if (letter !== 0) made[used++] = BACKSLASH;
      made[used++] = letter === 0 ? byte : letter;
    }
    yield* parts(made.subarray(0, used));
  }

  #copy(start: number, end: number): void {
    if (end - start < SHORT) this.raw(this.#chain.bytes(start, end).toString('utf8'));
    else for (const slice of this.#chain.slices(start, end)) this.#share(slice);
  }

  #share(bytes: Uint8Array): void {
    this.#flush();
    if (bytes.length < SHORT) this.#hold(bytes.length); // whoever collects them copies them
    for (const part of parts(bytes)) this.#pieces.push(part);
  }

  #flush(): void {
    if (this.#text === '') return;
    this.#hold(Buffer.byteLength(this.#text));
    for (const part of parts(Buffer.from(this.#text))) this.#pieces.push(part);
    this.#text = '';
  }

  /** All pieces. */
  get pieces(): readonly (Uint8Array | Unescaped)[] {
    this.#flush();
    return this.#pieces;
  }

  /** The pieces that are full, or with `ended` all that are left; each once. */
  *take(ended: boolean): Generator<Uint8Array, void> {
    if (ended) this.#flush();
    const taken = this.#pieces;
    this.#pieces = [];
    for (const piece of taken) {
      if (piece instanceof Unescaped) yield* this.#escaped(piece);
      else yield piece;
    }
  }
}

const BACKSLASH = 0x5c;
/** What stands behind a backslash for a byte of valid JSON, which has no other control characters; 0 for those that need none. */
const ESCAPES = new Uint8Array(256);
for (const [byte, letter] of ['""', '\\\\', '\nn', '\rr', '\tt'].map((pair) => Buffer.from(pair))) {
  ESCAPES[byte as number] = letter as number;
}

function* parts(bytes: Uint8Array): Generator<Uint8Array> {
  for (let at = 0; at < bytes.length; at += AT_A_TIME) yield bytes.subarray(at, at + AT_A_TIME);
}
