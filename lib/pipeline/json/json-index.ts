/**
 * Finds the members of one JSON object while its bytes arrive, without parsing a value: the envelope
 * encrypts the raw text of each member (docs/protocol/inference.md 4), so where a value begins and ends is all
 * that has to be known. The grammar is checked whole, as JSON.parse would judge it (RFC 8259, valid UTF-8,
 * no byte order mark), since what is not JSON must never leave.
 */
import { PrivatemodeError } from '../../errors.ts';
import { type ByteChain, createByteChain } from './byte-chain.ts';
import {
  createUtf8Check,
  INVALID,
  invalidJson,
  isDigit,
  mayEnd,
  nextNumberState,
  numberBegan,
  repeatsDigits,
  SIMPLE_ESCAPES,
  stringRunEnd,
} from './json-text.ts';
import { createMemberNames } from './member-names.ts';

export type JsonKind = 'string' | 'number' | 'object' | 'array' | 'true' | 'false' | 'null';

export interface JsonMember {
  /** Decoded name; for elements of a top-level array, the index as text. */
  readonly name: string;
  readonly kind: JsonKind;
  /** Absolute position of the first byte of the value. */
  readonly start: number;
  /** Absolute position after its last byte. */
  readonly end: number;
}

/** Hears what the value of one member is made of, while it is scanned. */
export interface JsonVisitor {
  /** The top-level member whose value is visited. */
  readonly member: string;
  /** An object or an array begins; the innermost ends, `empty` where it had neither member nor element. */
  opened(isObject: boolean): void;
  closed(empty: boolean): void;
  /** A key or a string value begins. True where its characters matter. */
  stringBegan(isKey: boolean): boolean;
  /** Its next bytes as written, between `start` and `end`. False where no more of them matter. */
  stringBytes(bytes: Uint8Array, start: number, end: number): boolean;
  stringEnded(isKey: boolean): void;
}

export interface JsonIndex {
  /** The members whose values are complete, in order of arrival. */
  readonly members: readonly JsonMember[];
  /** The member whose value is arriving: its bytes so far end where the last chunk ended. */
  readonly current: Omit<JsonMember, 'end'> | undefined;
  /** Position of the first byte inside the object (or array), once it was seen. */
  readonly bodyStart: number;
  /**
   * Scans the next chunk. Throws invalid_json, duplicate_member or unsupported_member_name (docs/protocol/inference.md 5.4);
   * the index is of no use afterwards.
   */
  feed(chunk: Uint8Array): void;
  /** To be called after the last chunk. Throws invalid_json where the text is not complete. */
  finish(): readonly JsonMember[];
}

/** Nesting beyond this is refused: the decoder of the service stops at the same depth. */
export const MAX_JSON_DEPTH = 10_000;

/** Of an array: the elements of a document, some dozens per page. */
export const MAX_JSON_ELEMENTS = 100_000;

// What may come next. Strings, numbers and literals have states of their own because chunks end anywhere.
const TOP = 0;
const FIRST_KEY = 1;
const KEY = 2;
const COLON = 3;
const VALUE = 4;
const FIRST_ELEMENT = 5;
const AFTER_VALUE = 6;
const DONE = 7;
const STRING = 8;
const ESCAPE = 9;
const HEX = 10;
const LITERAL = 11;
const NUMBER = 12;

const ARRAY = 0;
const OBJECT = 1;
const LITERALS: ReadonlyMap<number, 'true' | 'false' | 'null'> = new Map([
  [0x74, 'true'],
  [0x66, 'false'],
  [0x6e, 'null'],
]);

const isHexDigit = (byte: number): boolean =>
  isDigit(byte) || ((byte | 0x20) >= 0x61 && (byte | 0x20) <= 0x66);

export interface JsonIndexOptions {
  /**
   * Whether a top-level array is accepted too (responses of the unstructured endpoint, docs/protocol/inference.md 5.2). `sealed`: an element
   * that is no string, so no ciphertext, is response_not_authentic at once.
   */
  readonly arrays?: 'sealed' | 'any' | undefined;
  /** At most one per member. Default none. */
  readonly visitors?: readonly JsonVisitor[];
}

export function createJsonIndex(options: JsonIndexOptions = {}): JsonIndex {
  const { arrays, visitors = [] } = options;
  const members: JsonMember[] = [];
  const names = createMemberNames();
  const utf8 = createUtf8Check();
  let state = TOP;
  let stack = new Uint8Array(64);
  let depth = 0;
  let base = 0; // absolute position of the chunk being scanned
  let inKey = false;
  let nameParts: ByteChain | undefined; // name of a top-level member that began in an earlier chunk
  let name = '';
  let number = INVALID; // state within a number
  let literal = '';
  let progress = 0; // characters of the literal, or hex digits of the escape, seen so far
  let visited: JsonVisitor | undefined; // of the member whose value is arriving
  let heard: JsonVisitor | undefined; // while the characters of a string matter

  const open = (container: number, position: number): void => {
    if (depth === MAX_JSON_DEPTH) throw invalidJson(position, 'nesting is too deep');
    if (depth === stack.length) {
      const grown = new Uint8Array(2 * stack.length);
      grown.set(stack);
      stack = grown;
    }
    stack[depth] = container;
    depth += 1;
    state = container === OBJECT ? FIRST_KEY : FIRST_ELEMENT;
  };

  /** A value ended before `position`; at depth 1 that is a member. */
  const valueEnded = (position: number): void => {
    state = AFTER_VALUE;
    if (depth === 1 && index.current !== undefined) {
      const { name, kind, start } = index.current;
      members.push({ name, kind, start, end: position });
      index.current = undefined;
      visited = undefined;
    }
  };

  const close = (container: number, position: number): void => {
    if (stack[depth - 1] !== container) throw invalidJson(position);
    depth -= 1;
    visited?.closed(state === FIRST_KEY || state === FIRST_ELEMENT);
    if (depth === 0) state = DONE;
    else valueEnded(position + 1);
  };

  const checkElement = (kind: JsonKind, position: number): void => {
    if (kind !== 'string' && arrays === 'sealed') {
      throw new PrivatemodeError('response_not_authentic', 'an element of the response is not encrypted');
    }
    if (members.length === MAX_JSON_ELEMENTS) throw invalidJson(position, 'too many elements');
  };

  const valueBegan = (byte: number, position: number): void => {
    let kind: JsonKind;
    if (byte === 0x22) kind = 'string';
    else if (byte === 0x7b) kind = 'object';
    else if (byte === 0x5b) kind = 'array';
    else if (numberBegan(byte) !== INVALID) {
      kind = 'number';
      number = numberBegan(byte);
      state = NUMBER;
    } else {
      const word = LITERALS.get(byte);
      if (word === undefined) throw invalidJson(position);
      kind = word;
      literal = word;
      progress = 1;
      state = LITERAL;
    }
    if (depth === 1) {
      if (stack[0] === ARRAY) checkElement(kind, position);
      index.current = { name: stack[0] === ARRAY ? String(members.length) : name, kind, start: position };
      if (stack[0] === OBJECT) for (const each of visitors) if (each.member === name) visited = each;
    }
    if (kind === 'string') stringBegan(false);
    else if (kind === 'object' || kind === 'array') {
      visited?.opened(kind === 'object');
      open(kind === 'object' ? OBJECT : ARRAY, position);
    }
  };

  const stringBegan = (isKey: boolean): void => {
    state = STRING;
    inKey = isKey;
    if (visited?.stringBegan(isKey) === true) heard = visited;
  };

  const stringBytes = (chunk: Uint8Array, start: number, end: number): void => {
    if (heard?.stringBytes(chunk, start, end) !== true) heard = undefined;
  };

  const stringEnded = (position: number): void => {
    heard = undefined;
    visited?.stringEnded(inKey);
    if (inKey) state = COLON;
    else valueEnded(position + 1);
  };

  const scan = (chunk: Uint8Array): void => {
    const size = chunk.length;
    const view = new DataView(chunk.buffer, chunk.byteOffset, size);
    let nameFrom = 0; // where the name that is being read begins in this chunk
    let i = 0;
    while (i < size) {
      const byte = chunk[i]!;
      switch (state) {
        case STRING: {
          const end = stringRunEnd(chunk, view, i);
          if (heard !== undefined) stringBytes(chunk, i, end);
          i = end;
          if (i === size) break;
          const stop = chunk[i]!;
          if (stop === 0x22) {
            stringEnded(base + i);
            if (inKey && depth === 1) {
              const tail = chunk.subarray(nameFrom, i);
              nameParts?.push(tail);
              name = names.take(nameParts ? nameParts.bytes(0, nameParts.length) : tail, base + i);
              nameParts = undefined;
            }
          } else if (stop === 0x5c) {
            if (heard !== undefined) stringBytes(chunk, i, i + 1);
            state = ESCAPE;
          } else throw invalidJson(base + i, 'control character in a string');
          i += 1;
          break;
        }
        case ESCAPE:
          if (heard !== undefined) stringBytes(chunk, i, i + 1);
          if (byte === 0x75) {
            state = HEX;
            progress = 0;
          } else if (SIMPLE_ESCAPES[byte] === 1) state = STRING;
          else throw invalidJson(base + i, 'unknown escape');
          i += 1;
          break;
        case HEX:
          if (heard !== undefined) stringBytes(chunk, i, i + 1);
          if (!isHexDigit(byte)) throw invalidJson(base + i, 'unknown escape');
          progress += 1;
          if (progress === 4) state = STRING;
          i += 1;
          break;
        case LITERAL:
          if (byte !== literal.charCodeAt(progress)) throw invalidJson(base + i);
          progress += 1;
          i += 1;
          if (progress === literal.length) valueEnded(base + i);
          break;
        case TOP:
        case FIRST_KEY:
        case KEY:
        case COLON:
        case VALUE:
        case FIRST_ELEMENT:
        case AFTER_VALUE:
        case DONE:
          if (byte === 0x20 || byte === 0x0a || byte === 0x0d || byte === 0x09) {
            i += 1;
            break;
          }
          if (state === AFTER_VALUE) {
            if (byte === 0x2c) state = stack[depth - 1] === OBJECT ? KEY : VALUE;
            else if (byte === 0x7d) close(OBJECT, base + i);
            else if (byte === 0x5d) close(ARRAY, base + i);
            else throw invalidJson(base + i);
          } else if (state === VALUE) valueBegan(byte, base + i);
          else if (state === KEY || state === FIRST_KEY) {
            if (byte === 0x22) {
              stringBegan(true);
              nameFrom = i + 1;
            } else if (byte === 0x7d && state === FIRST_KEY) close(OBJECT, base + i);
            else throw invalidJson(base + i);
          } else if (state === COLON) {
            if (byte !== 0x3a) throw invalidJson(base + i);
            state = VALUE;
          } else if (state === FIRST_ELEMENT) {
            if (byte === 0x5d) close(ARRAY, base + i);
            else valueBegan(byte, base + i);
          } else if (state === TOP && (byte === 0x7b || (byte === 0x5b && arrays !== undefined))) {
            open(byte === 0x7b ? OBJECT : ARRAY, base + i);
            index.bodyStart = base + i + 1;
          } else throw invalidJson(base + i, state === TOP ? 'no object' : 'text after the object');
          i += 1;
          break;
        case NUMBER: {
          if (repeatsDigits(number)) while (i < size && isDigit(chunk[i]!)) i += 1;
          if (i === size) break;
          const next = nextNumberState(number, chunk[i]!);
          if (next !== INVALID) {
            number = next;
            i += 1;
          } else if (mayEnd(number)) valueEnded(base + i);
          else throw invalidJson(base + i);
        }
      }
    }
    const withinName = inKey && depth === 1 && (state === STRING || state === ESCAPE || state === HEX);
    if (withinName) {
      nameParts ??= createByteChain();
      nameParts.push(chunk.subarray(nameFrom));
    }
  };

  const index = {
    members,
    current: undefined as Omit<JsonMember, 'end'> | undefined,
    bodyStart: 0,
    feed(chunk: Uint8Array): void {
      if (!utf8.feed(chunk)) throw invalidJson(base, 'bytes that are not UTF-8 after');
      scan(chunk);
      base += chunk.length;
    },
    finish(): readonly JsonMember[] {
      if (state !== DONE) throw invalidJson(base, 'unexpected end');
      return members;
    },
  };
  return index;
}
