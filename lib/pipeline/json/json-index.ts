/**
 * Finds the members of one JSON object while its bytes arrive, without parsing a value: the envelope encrypts the raw text of
 * each member (docs/protocol/inference.md 4), so only where it begins and ends matters. Accepts what JSON.parse accepts (RFC 8259,
 * valid UTF-8, no byte order mark) and nothing else, since what is not JSON must never leave.
 */
import { PrivatemodeError } from '../../errors.ts';
import { type ByteChain, createByteChain } from './byte-chain.ts';
import {
  createUtf8Check,
  ESCAPE,
  invalidJson,
  MINUS,
  mayEnd,
  NUMBER_START,
  nextState,
  STRING,
  stringRunEnd,
} from './json-text.ts';
import { createMemberNames } from './member-names.ts';

export type JsonKind = 'string' | 'number' | 'object' | 'array' | 'true' | 'false' | 'null';

export interface JsonMember {
  /** Decoded name; for elements of a top-level array, the index as text. */
  readonly name: string;
  readonly kind: JsonKind;
  /** Absolute positions of the first byte of the value, and after its last byte. */
  readonly start: number;
  readonly end: number;
}

/** Hears what the value of one member is made of, while it is scanned. */
export interface JsonVisitor {
  /** The top-level member whose value is visited. */
  readonly member: string;
  /** An object or an array begins at `start`; the innermost ends before `end`, `empty` where it had neither member nor element. */
  opened(isObject: boolean, start: number): void;
  closed(empty: boolean, end: number): void;
  /** A number or a literal begins; it ends before `end`. */
  scalarBegan?(kind: JsonKind, start: number): void;
  scalarEnded?(end: number): void;
  /** A key or a string value begins, with its quote at `start`. True where its characters matter. */
  stringBegan(isKey: boolean, start: number): boolean;
  /** Its next bytes, between `start` and `end`, up to an escape. False where no more of it matters. */
  stringBytes(bytes: Uint8Array, start: number, end: number): boolean;
  /** The code unit of an escape: of \uXXXX, or of a simple one, 0 for any control character. False as above. */
  escaped(code: number, isUnicode: boolean): boolean;
  stringEnded(isKey: boolean, end: number): void;
}

export type JsonIndex = ReturnType<typeof createJsonIndex>;

/** Nesting beyond this is refused: the decoder of the service stops at the same depth. */
const MAX_DEPTH = 10_000;
/** Of a top-level array: the elements of a document, some dozens per page. */
const MAX_ELEMENTS = 100_000;

// What may come next. The states inside of strings and numbers, which follow, are those of json-text.ts.
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
/** From an opening bracket to its closing one. */
const TO_CLOSER = 2;

/** The kind of a value by its first byte. */
const KINDS: (JsonKind | undefined)[] = Array(256).fill(undefined);
for (const byte of Buffer.from('-0123456789')) KINDS[byte] = 'number';
KINDS[QUOTE] = 'string';
KINDS[OBJECT] = 'object';
KINDS[ARRAY] = 'array';
for (const literal of ['true', 'false', 'null'] as const) KINDS[literal.charCodeAt(0)] = literal;

/**
 * An index of the JSON object that it is fed. `visitors`: at most one per member. With `arrays`, a top-level array is accepted too
 * (responses of the unstructured endpoint, docs/protocol/inference.md 5.2); where they are `sealed`, an element that is no string,
 * so no ciphertext, is response_not_authentic at once.
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
  const stack: number[] = []; // ARRAY or OBJECT, for each that is open
  let state = TOP;
  let base = 0; // absolute position of the chunk being scanned
  let inKey = false;
  let nameFrom = 0; // where in the chunk the name that is being read begins
  let nameParts: ByteChain | undefined; // of a top-level name that began in an earlier chunk
  let name = '';
  let literal = '';
  let progress = 0; // characters of the literal seen so far
  let visited: JsonVisitor | undefined; // of the member whose value is arriving
  let heard: JsonVisitor | undefined; // while the characters of a string matter
  let code = 0; // of the escape that is being read, so far

  const open = (container: number, at: number): void => {
    if (stack.length === MAX_DEPTH) throw invalidJson(at, 'nesting is too deep');
    visited?.opened(container === OBJECT, at);
    stack.push(container);
    state = container === OBJECT ? FIRST_KEY : FIRST_ELEMENT;
  };

  /** A value ended before the position `end`; at depth 1 that is a member. */
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
    if (stack.at(-1) !== byte - TO_CLOSER) throw invalidJson(at);
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
    if (kind === undefined) throw invalidJson(at);
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

  /** Takes a byte between values and keys, blanks aside. */
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
      else throw invalidJson(at);
    } else if (state === COLON) {
      if (byte !== 0x3a) throw invalidJson(at);
      state = VALUE;
    } else if (state === FIRST_ELEMENT) {
      if (byte === 0x5d) close(byte, at);
      else valueBegan(byte, at);
    } else if (state === TOP && (byte === OBJECT || (byte === ARRAY && arrays !== undefined))) {
      open(byte, at);
      index.bodyStart = at + 1;
    } else throw invalidJson(at, state === TOP ? 'no object' : 'text after the object');
  };

  const stringBegan = (isKey: boolean, at: number): void => {
    state = STRING;
    inKey = isKey;
    heard = visited?.stringBegan(isKey, at) === true ? visited : undefined;
  };

  /** The next byte of an escape, after which the state is `next`. */
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
          i -= 1; // the byte is of what follows
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
    /** Position of the first byte inside the object (or array), once it was seen. */
    bodyStart: 0,
    /**
     * Scans the next chunk. Throws invalid_json, duplicate_member or unsupported_member_name (docs/protocol/inference.md 5.4);
     * the index is of no use afterwards.
     */
    feed(chunk: Uint8Array): void {
      if (!isUtf8SoFar(chunk)) throw invalidJson(base, 'bytes that are not UTF-8 after');
      scan(chunk);
      base += chunk.length;
    },
    /** To be called after the last chunk. Throws invalid_json where the text is not complete. */
    finish(): readonly JsonMember[] {
      if (state !== DONE) throw invalidJson(base, 'unexpected end');
      return members;
    },
  };
  return index;
}
