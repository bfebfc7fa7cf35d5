/**
 * Finds the members of one JSON object while its bytes arrive, without parsing a value. The envelope encrypts
 * the raw text of each member (docs/protocol/inference.md 4), so only the positions where that text begins
 * and ends matter. The scan accepts what JSON.parse accepts (RFC 8259, valid UTF-8, no byte order mark) and
 * nothing else, because a body that is not JSON must never leave.
 */
import { PrivatemodeError } from '../../errors.ts';
import { createMemberNames, invalidJson } from '../../json/names.ts';
import type { JsonKind } from '../../json/tokens.ts';
import { type ByteChain, createByteChain } from './byte-chain.ts';
import {
  createUtf8Check,
  ESCAPE,
  MINUS,
  mayEnd,
  NUMBER_START,
  nextState,
  STRING,
  stringRunEnd,
} from './json-text.ts';

export type { JsonKind };

export interface JsonMember {
  /** Decoded name; for elements of a top-level array, the index as text. */
  readonly name: string;
  readonly kind: JsonKind;
  /** Absolute positions of the first byte of the value, and after its last byte. */
  readonly start: number;
  readonly end: number;
}

/** Gets the parts of one member's value while the index scans them. */
export interface JsonVisitor {
  /** The top-level member whose value is visited. */
  readonly member: string;
  /** An object or an array begins at `start`. */
  opened(isObject: boolean, start: number): void;
  /** The innermost open object or array ends before `end`. `empty`: it had no member and no element. */
  closed(empty: boolean, end: number): void;
  /** A number or a literal begins at `start`; `scalarEnded` says that it ended before `end`. */
  scalarBegan?(kind: JsonKind, start: number): void;
  scalarEnded?(end: number): void;
  /**
   * A key or a string value begins, with its quote at `start`. Returns true if the visitor wants the
   * characters.
   */
  stringBegan(isKey: boolean, start: number): boolean;
  /**
   * The string's next bytes: those of `bytes` from `start` to `end`, up to an escape. Returns false if the
   * visitor needs no more of the string.
   */
  stringBytes(bytes: Uint8Array, start: number, end: number): boolean;
  /**
   * The code unit of the string's next escape: of \uXXXX if `isUnicode`, else of a simple escape, where every
   * control character gives 0. Returns false as `stringBytes` does.
   */
  escaped(code: number, isUnicode: boolean): boolean;
  stringEnded(isKey: boolean, end: number): void;
}

export type JsonIndex = ReturnType<typeof createJsonIndex>;

/** Nesting beyond this is refused: the decoder of the service stops at the same depth. */
const MAX_DEPTH = 10_000;
/** Elements of a top-level array. They are the elements of a document, some dozens per page. */
const MAX_ELEMENTS = 100_000;

// States of the scan, named by what may come next. The states inside strings and numbers have higher numbers
// and are in json-text.ts.
const TOP = 0;
const FIRST_KEY = 1;
const KEY = 2;
const COLON = 3;
const FIRST_ELEMENT = 4;
const VALUE = 5;
const AFTER_VALUE = 6;
const DONE = 7;
const LITERAL = 8;

const ARRAY = 0x5b;
const OBJECT = 0x7b;
const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const NINE = 0x39;
const SINGLE_QUOTE = 0x27;
/** What people put where JSON has another byte; the last two are mistakes only where a body begins. */
const MISTAKEN: Readonly<Record<number, string>> = {
  [SINGLE_QUOTE]: 'a single quote, where JSON has double quotes,',
  [ARRAY]: 'an array in place of one object',
  239: 'a byte order mark, or another character that begins no JSON,',
};
const unexpected = (byte: number, at: number): PrivatemodeError =>
  invalidJson(at, byte === SINGLE_QUOTE ? MISTAKEN[byte] : undefined);
/** Added to the byte of an opening bracket, it gives the byte of the closing one. */
const TO_CLOSER = 2;

/** The kind of a value by its first byte. */
const KINDS: (JsonKind | undefined)[] = Array(256).fill(undefined);
for (const byte of Buffer.from('-0123456789')) KINDS[byte] = 'number';
KINDS[QUOTE] = 'string';
KINDS[OBJECT] = 'object';
KINDS[ARRAY] = 'array';
for (const literal of ['true', 'false', 'null'] as const) KINDS[literal.charCodeAt(0)] = literal;

/**
 * Indexes the JSON object that `feed` gets. `visitors`: at most one per member. With `arrays`, the index
 * accepts a top-level array too (responses of the unstructured endpoint, docs/protocol/inference.md 5.2). If
 * `arrays` is `sealed`, `feed` throws response_not_authentic at an element that is not a string, because it
 * cannot be a ciphertext.
 */
export function createJsonIndex({
  arrays,
  visitors = [],
}: {
  readonly arrays?: 'sealed' | 'any' | undefined;
  readonly visitors?: readonly JsonVisitor[];
} = {}) {
  const members: JsonMember[] = [];
  const takeName = createMemberNames();
  const isUtf8SoFar = createUtf8Check();
  const stack: number[] = []; // ARRAY or OBJECT, for each open container
  let state = TOP;
  let base = 0; // absolute position of the chunk being scanned
  let inKey = false;
  let nameFrom = 0; // where the name that is being read begins in the chunk
  let nameParts: ByteChain | undefined; // a top-level name that began in an earlier chunk
  let name = '';
  let literal = '';
  let progress = 0; // characters of the literal seen so far
  let visited: JsonVisitor | undefined; // the visitor of the member whose value is arriving
  let heard: JsonVisitor | undefined; // `visited`, while it wants the characters of a string
  let code = 0; // code unit of the escape that is being read, so far

  const open = (container: number, at: number): void => {
    if (stack.length === MAX_DEPTH) throw invalidJson(at, 'nesting is too deep');
    visited?.opened(container === OBJECT, at);
    stack.push(container);
    state = container === OBJECT ? FIRST_KEY : FIRST_ELEMENT;
  };

  /** Notes that a value ended before the position `end`. At depth 1 it is the value of a member. */
  const valueEnded = (end: number): void => {
    state = AFTER_VALUE;
    if (stack.length > 1 || index.current === undefined) return;
    const { name, kind, start } = index.current;
    members.push({ name, kind, start, end });
    index.current = undefined;
    visited = undefined;
  };

  const scalarEnded = (end: number): void => {
    visited?.scalarEnded?.(end);
    valueEnded(end);
  };

  const close = (byte: number, at: number): void => {
    if (stack.at(-1) !== byte - TO_CLOSER) throw unexpected(byte, at);
    stack.pop();
    visited?.closed(state !== AFTER_VALUE, at + 1);
    if (stack.length === 0) state = DONE;
    else valueEnded(at + 1);
  };

  const memberBegan = (kind: JsonKind, start: number): void => {
    if (stack[0] === OBJECT) {
      index.current = { name, kind, start };
      visited = visitors.find(({ member }) => member === name);
      return;
    }
    if (kind !== 'string' && arrays === 'sealed') {
      throw new PrivatemodeError('response_not_authentic', 'an element of the response is not encrypted');
    }
    if (members.length === MAX_ELEMENTS) throw invalidJson(start, 'too many elements');
    index.current = { name: String(members.length), kind, start };
  };

  const valueBegan = (byte: number, at: number): void => {
    const kind = KINDS[byte];
    if (kind === undefined) throw unexpected(byte, at);
    if (stack.length === 1) memberBegan(kind, at);
    if (kind === 'string') stringBegan(false, at);
    else if (kind === 'object' || kind === 'array') open(byte, at);
    else scalarBegan(kind, byte, at);
  };

  const scalarBegan = (
    kind: Exclude<JsonKind, 'string' | 'object' | 'array'>,
    byte: number,
    at: number,
  ): void => {
    visited?.scalarBegan?.(kind, at);
    if (kind === 'number') state = nextState(NUMBER_START, byte);
    else {
      literal = kind;
      progress = 1;
      state = LITERAL;
    }
  };

  /** Takes a byte between values and keys that is not a blank. */
  const structure = (byte: number, at: number): void => {
    if (state === AFTER_VALUE) {
      if (byte === 0x2c) state = stack.at(-1) === OBJECT ? KEY : VALUE;
      else close(byte, at);
    } else if (state === VALUE) valueBegan(byte, at);
    else if (state === KEY || state === FIRST_KEY) {
      if (byte === QUOTE) {
        stringBegan(true, at);
        nameFrom = at + 1 - base;
      } else if (state === FIRST_KEY) close(byte, at);
      else throw unexpected(byte, at);
    } else if (state === COLON) {
      if (byte !== 0x3a) throw invalidJson(at);
      state = VALUE;
    } else if (state === FIRST_ELEMENT) {
      if (byte === 0x5d) close(byte, at);
      else valueBegan(byte, at);
    } else if (state === TOP && (byte === OBJECT || (byte === ARRAY && arrays !== undefined))) {
      open(byte, at);
      index.bodyStart = at + 1;
    } else throw invalidJson(at, state === TOP ? (MISTAKEN[byte] ?? 'no object') : 'text after the object');
  };

  const stringBegan = (isKey: boolean, at: number): void => {
    state = STRING;
    inKey = isKey;
    heard = visited?.stringBegan(isKey, at) === true ? visited : undefined;
  };

  /** Takes the next byte of an escape; `next` is the state after it. */
  const hearEscape = (byte: number, next: number): void => {
    const isUnicode = state !== ESCAPE;
    if (isUnicode) code = ((code << 4) | ((byte & 0xf) + (byte > NINE ? 9 : 0))) & 0xffff;
    else code = byte > BACKSLASH ? 0 : byte; // the escapes with a letter are control characters
    if (next === STRING && heard?.escaped(code, isUnicode) !== true) heard = undefined;
  };

  const stringEnded = (chunk: Uint8Array, i: number): void => {
    heard = undefined;
    visited?.stringEnded(inKey, base + i + 1);
    if (inKey) state = COLON;
    else valueEnded(base + i + 1);
    if (!inKey || stack.length > 1) return;
    const tail = chunk.subarray(nameFrom, i);
    nameParts?.push(tail);
    name = takeName(nameParts ? nameParts.bytes(0, nameParts.length) : tail, base + i);
    nameParts = undefined;
  };

  const scan = (chunk: Uint8Array): void => {
    const size = chunk.length;
    const view = new DataView(chunk.buffer, chunk.byteOffset, size);
    nameFrom = 0;
    for (let i = 0; i < size; i++) {
      if (state === STRING) {
        const end = stringRunEnd(chunk, view, i);
        if (heard !== undefined && i < end && !heard.stringBytes(chunk, i, end)) heard = undefined;
        i = end;
        if (i === size) break;
        if (chunk[i] === QUOTE) stringEnded(chunk, i);
        else if (chunk[i] === BACKSLASH) state = ESCAPE;
        else throw invalidJson(base + i, 'control character in a string');
        continue;
      }
      const byte = chunk[i]!;
      if (state < LITERAL) {
        if (byte !== 0x20 && byte !== 0x0a && byte !== 0x0d && byte !== 0x09) structure(byte, base + i);
      } else if (state === LITERAL) {
        if (byte !== literal.charCodeAt(progress)) throw invalidJson(base + i);
        progress += 1;
        if (progress === literal.length) scalarEnded(base + i + 1);
      } else {
        const next = nextState(state, byte);
        if (state < MINUS) {
          if (next === 0) throw invalidJson(base + i, 'unknown escape');
          if (heard !== undefined) hearEscape(byte, next);
          state = next;
        } else if (next !== 0) state = next;
        else if (!mayEnd(state)) throw invalidJson(base + i);
        else {
          scalarEnded(base + i);
          i -= 1; // this byte belongs to what follows the number
        }
      }
    }
    const isCut = state >= STRING && state < MINUS;
    if (isCut && inKey && stack.length === 1) {
      nameParts ??= createByteChain();
      nameParts.push(chunk.subarray(nameFrom));
    }
  };

  const index = {
    /** The members whose values are complete, in order of arrival. */
    members: members as readonly JsonMember[],
    /** The member whose value is arriving: its bytes so far end where the last chunk ended. */
    current: undefined as Omit<JsonMember, 'end'> | undefined,
    /** Position of the first byte inside the object (or array); 0 until the opening bracket has arrived. */
    bodyStart: 0,
    /**
     * Scans the next chunk. Throws invalid_json, duplicate_member or unsupported_member_name
     * (docs/protocol/inference.md 5.4). After an error the index must not be used.
     */
    feed(chunk: Uint8Array): void {
      if (!isUtf8SoFar(chunk)) throw invalidJson(base, 'bytes that are not UTF-8, in the piece that begins');
      scan(chunk);
      base += chunk.length;
    },
    /** Call it after the last chunk. Returns the members. Throws invalid_json if the text is incomplete. */
    finish(): readonly JsonMember[] {
      if (base === 0) throw new PrivatemodeError('invalid_json', 'the body is empty');
      if (state !== DONE) throw invalidJson(base, 'unexpected end');
      return members;
    },
  };
  return index;
}
