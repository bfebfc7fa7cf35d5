/**
 * JSON (RFC 8259) without its ambiguities: valid UTF-8, no member name twice in an object, numbers kept as
 * they were written. Two readers of such a text cannot disagree about what it says.
 */

export type JsonValue = null | boolean | string | JsonNumber | readonly JsonValue[] | JsonObject;

export class JsonObject extends Map<string, JsonValue> {
  /** The text from which the object was read: a signature may cover it. */
  source = '';
}

/** A number as its source text: integers above 2^53 and fractions survive. */
export class JsonNumber {
  readonly text: string;
  constructor(text: string) {
    this.text = text;
  }
}

/** Names of members and indices of items, from the whole value to a part of it. */
export type Path = readonly (string | number)[];

/** `depth`: objects and arrays inside each other. `values`: values of any kind in the whole text. */
type Limits = Readonly<Record<'depth' | 'values', number>>;

const WHITE_SPACE = /[ \t\n\r]*/y;
const NUMBER = /-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?/y;
const NOT_PLAIN = /[\\\x00-\x1f]/;
const LITERAL = /true|false|null/y;

/** What is wrong with a text, for code to decide on. `refuse` also gets a sentence about it, for people. */
export interface JsonDefect {
  readonly kind: 'encoding' | 'syntax' | 'trailing' | 'depth' | 'values' | 'repeated';
  /** Where reading ended, in UTF-16 units from the beginning of the text. */
  readonly position: number;
}

type Refuse = (reason: string, defect: JsonDefect) => Error;

/**
 * Parses a text that consists of one JSON value. `refuse` makes the error to throw. It gets a reason that
 * says what is wrong and where, e.g. `Policies.ab12: member "Role" appears twice`.
 */
export function parseStrictJson(bytes: Uint8Array, limits: Limits, refuse: Refuse): JsonValue {
  let text: string;
  try {
    text = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    throw refuse('the text is not UTF-8', { kind: 'encoding', position: 0 });
  }
  return new Parser(text, limits, refuse).document();
}

class Parser {
  #position = 0;
  #values = 0;
  readonly #path: (string | number)[] = [];
  readonly #text: string;
  readonly #limits: Limits;
  readonly #refuse: Refuse;

  constructor(text: string, limits: Limits, refuse: Refuse) {
    this.#text = text;
    this.#limits = limits;
    this.#refuse = refuse;
  }

  document(): JsonValue {
    const value = this.#value();
    this.#match(WHITE_SPACE);
    if (this.#position !== this.#text.length) throw this.#error('trailing', 'text follows the JSON value');
    return value;
  }

  #value(): JsonValue {
    this.#match(WHITE_SPACE);
    if (++this.#values > this.#limits.values) throw this.#error('values', 'too many values');
    const start = this.#text[this.#position];
    if (start === '"') return this.#string();
    if (start === '{' || start === '[') {
      if (this.#path.length >= this.#limits.depth) throw this.#error('depth', 'nested too deeply');
      this.#position++;
      return start === '{' ? this.#object() : this.#array();
    }
    const literal = this.#match(LITERAL);
    if (literal !== undefined) return JSON.parse(literal) as boolean | null;
    const number = this.#match(NUMBER);
    if (number === undefined) throw this.#notJson();
    return new JsonNumber(number);
  }

  #object(): JsonObject {
    const start = this.#position - 1;
    const members = new JsonObject();
    this.#items('}', () => {
      this.#match(WHITE_SPACE);
      const name = this.#string();
      if (members.has(name))
        throw this.#error('repeated', `member ${JSON.stringify(shown(name))} appears twice`);
      if (!this.#take(':')) throw this.#notJson();
      members.set(name, this.#valueAt(name));
    });
    members.source = this.#text.slice(start, this.#position);
    return members;
  }

  #array(): readonly JsonValue[] {
    const values: JsonValue[] = [];
    this.#items(']', () => values.push(this.#valueAt(values.length)));
    return values;
  }

  /** Reads items between commas, up to `end`. */
  #items(end: string, readItem: () => void): void {
    if (this.#take(end)) return;
    do readItem();
    while (this.#take(','));
    if (!this.#take(end)) throw this.#notJson();
  }

  #valueAt(step: string | number): JsonValue {
    this.#path.push(step);
    const value = this.#value();
    this.#path.pop();
    return value;
  }

  /**
   * Reads a string. One regular expression that repeats an alternative would take stack for every character
   * of a long string.
   */
  #string(): string {
    const start = this.#position;
    const end = endOfString(this.#text, start);
    if (end === undefined) throw this.#notJson();
    const inside = this.#text.slice(start + 1, end);
    try {
      // JSON.parse knows the escapes, and refuses control characters.
      const value = NOT_PLAIN.test(inside) ? (JSON.parse(`"${inside}"`) as string) : inside;
      this.#position = end + 1;
      return value;
    } catch {
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
    const match = pattern.exec(this.#text)?.[0];
    if (match !== undefined) this.#position = pattern.lastIndex;
    return match;
  }

  #notJson(): Error {
    return this.#error('syntax', `not JSON at character ${this.#position}`);
  }

  #error(kind: JsonDefect['kind'], what: string): Error {
    const reason = this.#path.length === 0 ? what : `${pathText(this.#path)}: ${what}`;
    return this.#refuse(reason, { kind, position: this.#position });
  }
}

/**
 * The index of the quote that ends the string which starts at `start`; undefined if no string starts there,
 * or it has no end.
 */
function endOfString(text: string, start: number): number | undefined {
  if (text[start] !== '"') return undefined;
  for (let quote = text.indexOf('"', start + 1); quote !== -1; quote = text.indexOf('"', quote + 1)) {
    // If an odd number of backslashes stands before the quote, it is escaped and belongs to the string.
    let before = quote;
    while (text[before - 1] === '\\') before--;
    if ((quote - before) % 2 === 0) return quote;
  }
  return undefined;
}

/** `ReferenceValues.snp[0].ProductName`; long names are cut. */
export function pathText(path: Path): string {
  const steps = path.map((step) => (typeof step === 'number' ? `[${step}]` : `.${shown(step)}`));
  return steps.join('').replace(/^\./, '');
}

/** A name as an error shows it: cut if it is long, since the author of the text chose it. */
const shown = (name: string): string => (name.length > 100 ? `${name.slice(0, 100)}…` : name);
