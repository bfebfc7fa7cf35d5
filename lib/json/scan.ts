/**
 * One strict pass over the complete bytes of a JSON text. It says where the members of the top-level object
 * stand and how much is in each, without parsing a value: the envelope encrypts the raw text of each member
 * (docs/protocol/inference.md 4), and JSON.parse may see a text only after its size is known. The grammar is
 * that of JSON.parse (RFC 8259) on valid UTF-8 without a byte order mark, because a body that is not JSON
 * must never leave.
 */
import { isUtf8 } from 'node:buffer';
import { PrivatemodeError } from '../errors.ts';
import { createMemberNames, invalidJson } from './names.ts';
import {
  ARRAY,
  BACKSLASH,
  COMPLETE,
  ESCAPE,
  easyEnd,
  type JsonKind,
  KINDS,
  nextState,
  OBJECT,
  POWER,
  QUOTE,
  SCALAR,
  STRING,
  TO_CLOSER,
} from './tokens.ts';

/** How much is in a value. */
export interface Counts {
  /** Values of any kind, the value itself included. */
  readonly values: number;
  /** Members of all objects. */
  readonly objectMembers: number;
  /** Objects and arrays inside each other; 0 for any other value. */
  readonly depth: number;
}

/** A member of the top-level object, or an element of the top-level array, and how much is in its value. */
export interface Member extends Counts {
  /** Decoded name; for an element, its index as text. */
  readonly name: string;
  readonly kind: JsonKind;
  /** Position of the quote before the name, in bytes; for an element, `start`. */
  readonly first: number;
  /** Positions of the first byte of the value, and after its last byte. */
  readonly start: number;
  readonly end: number;
  /**
   * Positions of the numbers in the value that are written with an exponent or with more than 15 bytes, the
   * start and the end of each: a double may not hold them as they are written.
   */
  readonly numbers: number[];
}

/** The members in the order of the text, and how much is in the whole. */
export interface Scanned extends Counts {
  readonly members: readonly Member[];
}

type Writable<T> = { -readonly [K in keyof T]: T[K] };

/**
 * Whether JSON.parse may see a text with so much in it. Without these limits, 8 MiB of objects with different
 * names would hold up everything else for more than a second.
 */
export const isParsable = ({ values, objectMembers, depth }: Counts): boolean =>
  values <= 200_000 && objectMembers <= 20_000 && depth <= 64;

/** Nesting beyond this is refused: the decoder of the service stops at the same depth. */
const MAX_DEPTH = 10_000;
/** Elements of a top-level array. They are the elements of a document, some dozens per page. */
const MAX_ELEMENTS = 100_000;
/** Bytes that are scanned before other exchanges have their turn. */
const TURN = 512 * 1024;

// What may come next, between tokens. Inside a token, the state is one of tokens.ts; those are higher.
const TOP = 0;
const VALUE = 1;
const FIRST_ELEMENT = 2;
const FIRST_KEY = 3;
const KEY = 4;
const COLON = 5;
const ENDED = 6; // a value has ended just now
const AFTER_VALUE = 7;
const DONE = 8;

const SINGLE_QUOTE = 0x27;

/** What people put where JSON has another byte; the last two are mistakes only where a body begins. */
const MISTAKEN: Readonly<Record<number, string>> = {
  [SINGLE_QUOTE]: 'a single quote, where JSON has double quotes,',
  [ARRAY]: 'an array in place of one object',
  239: 'a byte order mark, or another character that begins no JSON,',
};

const unexpected = (state: number, byte: number, at: number): PrivatemodeError => {
  if (state === TOP) return invalidJson(at, MISTAKEN[byte] ?? 'no object');
  if (state === DONE) return invalidJson(at, 'text after the object');
  return invalidJson(at, byte === SINGLE_QUOTE && state !== COLON ? MISTAKEN[byte] : undefined);
};

/**
 * Where the turn that begins at `from` ends, not within a character. Throws invalid_json if the bytes of the
 * turn are not UTF-8.
 */
function endOfTurn(bytes: Buffer, from: number): number {
  let end = Math.min(from + TURN, bytes.length);
  while ((bytes[end]! & 0xc0) === 0x80) end += 1; // stops behind the last byte, too
  if (isUtf8(bytes.subarray(from, end))) return end;
  throw invalidJson(from, 'bytes that are not UTF-8, in the piece that begins');
}

export interface ScanOptions {
  /** The text may also be an array. */
  readonly array?: boolean;
  /** The text may end too early; only the members that are complete are found. */
  readonly partial?: boolean;
}

/**
 * Scans the whole text, and yields after each 512 KiB of it. Throws invalid_json, duplicate_member and
 * unsupported_member_name (docs/protocol/inference.md 5.4). More than 1,000 members, 100,000 elements or
 * 10,000 levels are invalid_json, too.
 */
export function* scanInTurns(
  bytes: Buffer,
  { array = false, partial = false }: ScanOptions = {},
): Generator<undefined, Scanned> {
  if (bytes.length === 0) throw new PrivatemodeError('invalid_json', 'the body is empty');
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  const takeName = createMemberNames();
  const members: Member[] = [];
  const open: number[] = []; // the opening brackets of the objects and arrays around `i`
  let state = TOP;
  let inKey = false;
  let values = 0;
  let objectMembers = 0;
  let depth = 1;
  let first = 0; // where the name of the next member begins
  let from = 0; // where the number or literal begins
  let name = '';
  let member: Writable<Member> | undefined; // whose value is scanned; its counts are those before it
  let deepest = 1; // within this value

  // Takes one token, or a part of one, each time. One function, because calls that move `i` were slower.
  for (let i = 0, turn = 0; ; ) {
    if (state === ENDED) {
      state = open.length === 0 ? DONE : AFTER_VALUE;
      if (open.length === 1 && member !== undefined) {
        member.end = i;
        member.values = values - member.values;
        member.objectMembers = objectMembers - member.objectMembers;
        member.depth = deepest - 1;
        members.push(member);
        depth = Math.max(depth, deepest);
      }
    }
    if (i === turn) {
      if (i === bytes.length) break;
      if (i > 0) yield;
      turn = endOfTurn(bytes, i);
    }
    const byte = bytes[i]!;
    if (state === STRING) {
      i = easyEnd(bytes, view, i, turn);
      if (i === turn) continue;
      if (bytes[i] === BACKSLASH) state = ESCAPE;
      else if (bytes[i] !== QUOTE) throw invalidJson(i, 'control character in a string');
      else if (inKey) {
        if (open.length === 1) name = takeName(bytes.subarray(first + 1, i), i);
        state = COLON;
      } else state = ENDED;
    } else if (state > STRING) {
      const next = nextState(state, byte);
      if (next === 0) {
        if (state < COMPLETE) throw invalidJson(i, state < SCALAR ? 'unknown escape' : undefined);
        if (state === POWER || i - from > 15) member?.numbers.push(from, i);
        state = ENDED;
        continue; // the byte belongs to what follows
      }
      state = next;
    } else if (byte === 0x20 || byte === 0x0a || byte === 0x0d || byte === 0x09) {
      // A blank between tokens changes nothing.
    } else if (state === AFTER_VALUE && byte === 0x2c) state = open.at(-1) === OBJECT ? KEY : VALUE;
    else if (state === COLON && byte === 0x3a) state = VALUE;
    else if ((state === KEY || state === FIRST_KEY) && byte === QUOTE) {
      if (open.length === 1) first = i;
      objectMembers += 1;
      inKey = true;
      state = STRING;
    } else if (
      (state === AFTER_VALUE || state === FIRST_KEY || state === FIRST_ELEMENT) &&
      byte === open.at(-1)! + TO_CLOSER
    ) {
      open.pop();
      state = ENDED;
    } else {
      const kind = state <= FIRST_ELEMENT ? KINDS[byte] : undefined;
      if (kind === undefined || (state === TOP && byte !== OBJECT && !(array && byte === ARRAY))) {
        throw unexpected(state, byte, i);
      }
      if (open.length === 1) {
        if (open[0] === ARRAY) {
          if (members.length === MAX_ELEMENTS) throw invalidJson(i, 'too many elements');
          name = String(members.length);
          first = i;
        }
        member = { name, kind, first, start: i, end: i, values, objectMembers, depth, numbers: [] };
        deepest = 1;
      }
      values += 1;
      if (kind === 'string') {
        inKey = false;
        state = STRING;
      } else if (byte === OBJECT || byte === ARRAY) {
        if (open.length === MAX_DEPTH) throw invalidJson(i, 'nesting is too deep');
        open.push(byte);
        deepest = Math.max(deepest, open.length);
        state = byte === OBJECT ? FIRST_KEY : FIRST_ELEMENT;
      } else {
        from = i;
        state = nextState(SCALAR, byte);
      }
    }
    i += 1;
  }
  if (state !== DONE && !partial) throw invalidJson(bytes.length, 'unexpected end');
  return { members, values, objectMembers, depth };
}

/** Scans a text in one turn, which should be short. Otherwise as scanInTurns. */
export function scanJson(bytes: Buffer, options?: ScanOptions): Scanned {
  const turns = scanInTurns(bytes, options);
  let step = turns.next();
  while (!step.done) step = turns.next();
  return step.value;
}
