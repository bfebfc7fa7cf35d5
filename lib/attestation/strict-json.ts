/**
 * JSON (RFC 8259) without its ambiguities: valid UTF-8, no member name twice in an object, numbers kept as they were
 * written. Two readers of such a text cannot disagree about what it says.
 */

export type JsonValue = null | boolean | string | JsonNumber | readonly JsonValue[] | JsonObject;
export type JsonObject = ReadonlyMap<string, JsonValue>;

/** A number as its source text: integers above 2^53 and fractions survive. */
export class JsonNumber {
  readonly text: string;
  constructor(text: string) {
    this.text = text;
  }
}

export interface JsonLimits {
  /** Objects and arrays inside each other. */
  readonly depth: number;
  /** Values of any kind in the whole text. */
  readonly values: number;
}

const WHITE_SPACE = /[ \t\n\r]*/y;
const NUMBER = /-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?/y;
const NOT_PLAIN = /[\\\x00-\x1f]/;
const LITERAL = /true|false|null/y;
const LITERALS: Readonly<Record<string, boolean>> = { true: true, false: false };

/**
 * The value that the text consists of. `refuse` makes the error to throw; it is told what is wrong and where, e.g.
 * `Policies.ab12: member "Role" appears twice`.
 */
export function parseStrictJson(
  bytes: Uint8Array,
  limits: JsonLimits,
  refuse: (words: string) => Error,
): JsonValue {
  let text: string;
  try {
    text = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    throw refuse('the text is not UTF-8');
  }
  const parser = new Parser(text, limits, refuse);
  return parser.document();
}

class Parser {
  #position = 0;
  #values = 0;
  readonly #path: (string | number)[] = [];
  readonly #text: string;
  readonly #limits: JsonLimits;
  readonly #refuse: (words: string) => Error;

  constructor(text: string, limits: JsonLimits, refuse: (words: string) => Error) {
    this.#text = text;
    this.#limits = limits;
    this.#refuse = refuse;
  }

  document(): JsonValue {
    const value = this.#value();
    this.#match(WHITE_SPACE);
    if (this.#position !== this.#text.length) throw this.#error('text follows the JSON value');
    return value;
  }

  #value(): JsonValue {
    this.#match(WHITE_SPACE);
    if (++this.#values > this.#limits.values) throw this.#error('too many values');
    switch (this.#text[this.#position]) {
      case '{':
        return this.#nested(() => this.#object());
      case '[':
        return this.#nested(() => this.#array());
      case '"':
        return this.#string();
      default: {
        const literal = this.#match(LITERAL);
        if (literal !== undefined) return LITERALS[literal] ?? null;
        const number = this.#match(NUMBER);
        if (number === undefined) throw this.#notJson();
        return new JsonNumber(number);
      }
    }
  }

  #nested<T>(read: () => T): T {
    if (this.#path.length >= this.#limits.depth) throw this.#error('nested too deeply');
    this.#position++;
    return read();
  }

  #object(): JsonObject {
    const members = new Map<string, JsonValue>();
    if (this.#take('}')) return members;
    do {
      this.#match(WHITE_SPACE);
      const name = this.#string();
      if (members.has(name)) throw this.#error(`member ${JSON.stringify(shown(name))} appears twice`);
      if (!this.#take(':')) throw this.#notJson();
      this.#path.push(name);
      members.set(name, this.#value());
      this.#path.pop();
    } while (this.#take(','));
    if (!this.#take('}')) throw this.#notJson();
    return members;
  }

  #array(): readonly JsonValue[] {
    const values: JsonValue[] = [];
    if (this.#take(']')) return values;
    do {
      this.#path.push(values.length);
      values.push(this.#value());
      this.#path.pop();
    } while (this.#take(','));
    if (!this.#take(']')) throw this.#notJson();
    return values;
  }

  /** Without an expression that repeats an alternative: that needs stack for every character of a long string. */
  #string(): string {
    const start = this.#position;
    const end = endOfString(this.#text, start);
    if (end === undefined) throw this.#notJson();
    this.#position = end + 1;
    const inside = this.#text.slice(start + 1, end);
    if (!NOT_PLAIN.test(inside)) return inside;
    try {
      // Knows the escapes, and refuses control characters.
      return JSON.parse(`"${inside}"`) as string;
    } catch {
      this.#position = start;
      throw this.#notJson();
    }
  }

  #take(character: string): boolean {
    this.#match(WHITE_SPACE);
    if (this.#text[this.#position] !== character) return false;
    this.#position++;
    return true;
  }

  #match(pattern: RegExp): string | undefined {
    pattern.lastIndex = this.#position;
    const match = pattern.exec(this.#text);
    if (match === null) return undefined;
    this.#position = pattern.lastIndex;
    return match[0];
  }

  #notJson(): Error {
    return this.#error(`not JSON at character ${this.#position}`);
  }

  #error(words: string): Error {
    return this.#refuse(this.#path.length === 0 ? words : `${pathText(this.#path)}: ${words}`);
  }
}

/** The index of the quote that ends the string which starts at `start`; undefined where none starts or it has no end. */
function endOfString(text: string, start: number): number | undefined {
  if (text[start] !== '"') return undefined;
  for (let quote = text.indexOf('"', start + 1); quote !== -1; quote = text.indexOf('"', quote + 1)) {
    // An odd number of backslashes before it: the quote is escaped, and belongs to the string.
    let before = quote;
    while (text[before - 1] === '\\') before--;
    if ((quote - before) % 2 === 0) return quote;
  }
  return undefined;
}

/** `ReferenceValues.snp[0].ProductName`; long names are cut. */
export function pathText(path: readonly (string | number)[]): string {
  return path
    .map((step, index) => {
      if (typeof step === 'number') return `[${step}]`;
      return index === 0 ? shown(step) : `.${shown(step)}`;
    })
    .join('');
}

/** A name for an error: whoever wrote the text chose it. */
const shown = (name: string): string => (name.length > 100 ? `${name.slice(0, 100)}…` : name);
