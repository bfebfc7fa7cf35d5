/**
 * One strict pass over the complete bytes of a JSON text. It says where the members of the top-level object
 * stand and how much is in each, without parsing a value: the envelope encrypts the raw text of each member
 * (docs/protocol/inference.md 4), and JSON.parse may see a text only after its size is known. The grammar is
 * that of JSON.parse (RFC 8259) on valid UTF-8 without a byte order mark, because a body that is not JSON
 * must never leave.
 */
import { isUtf8 } from 'node:buffer';
import { PrivatemodeError } from '../errors.ts';
import { createNames, invalidJson, JsonRefusal, type TakeName } from './names.ts';
import {
  ARRAY,
  decimalEnd,
  exponentEnd,
  type JsonKind,
  KINDS,
  literalEnd,
  OBJECT,
  QUOTE,
  quoteAt,
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

// What comes next, between tokens.
const TOP = 0;
const VALUE = 1;
const FIRST_ELEMENT = 2;
const FIRST_NAME = 3;
const NAME = 4;
const COLON = 5;
const AFTER_VALUE = 6;
const DONE = 7;

/** Whether nothing stands yet within the brackets. */
const isEmpty = (state: number): boolean => state === FIRST_ELEMENT || state === FIRST_NAME;

export interface ScanOptions {
  /** The text may also be an array. */
  readonly array?: boolean;
  /** The text may end too early; only the members that are complete are found. */
  readonly partial?: boolean;
  /**
   * Which names must differ: those of the `top` alone, which the service must be able to address, or those of
   * each object, `everywhere`. Default: at the top.
   */
  readonly unique?: 'top' | 'everywhere';
  /** Most values of any kind in the whole text; the next one is refused at once, with body_too_large. */
  readonly most?: number;
}

/**
 * Scans the whole text, and yields after each 512 KiB of it. Throws invalid_json, duplicate_member and, at
 * the top alone, unsupported_member_name (docs/protocol/inference.md 5.4). More than 1,000 members of an
 * object whose names are looked at, 100,000 elements or 10,000 levels are invalid_json, too.
 */
export function* scanInTurns(
  bytes: Buffer,
  { array = false, partial = false, unique = 'top', most = Number.POSITIVE_INFINITY }: ScanOptions = {},
): Generator<undefined, Scanned> {
  const size = bytes.length;
  if (size === 0) throw new PrivatemodeError('invalid_json', 'the body is empty');
  if (!isUtf8(bytes)) throw new PrivatemodeError('invalid_json', 'the body is not UTF-8');
  const view = new DataView(bytes.buffer, bytes.byteOffset, size);
  const members: Member[] = [];
  const open: number[] = []; // the opening brackets of the objects and arrays around `i`
  const takers: (TakeName | undefined)[] = []; // of the names in each of them
  let state = TOP;
  let values = 0;
  let objectMembers = 0;
  let depth = 1;
  let name = '';
  let member: Writable<Member> | undefined; // whose value is scanned; its counts are those before it
  let deepest = 1; // within this value

  // Takes one token each time, and stops within one that the text does not end.
  for (let i = 0, turn = TURN; i < size; ) {
    if (i >= turn) {
      yield;
      turn = i + TURN;
    }
    const byte = bytes[i]!;
    if (byte === 0x20 || byte === 0x0a || byte === 0x0d || byte === 0x09) {
      i += 1;
      continue;
    }
    const from = i;
    const kind = state <= FIRST_ELEMENT ? KINDS[byte] : undefined;
    const isName = byte === QUOTE && (state === NAME || state === FIRST_NAME);
    if (state === TOP && byte !== OBJECT && !(array && byte === ARRAY)) throw invalidJson(i, 'no object');
    if (kind !== undefined) {
      if (open.length === 1) {
        if (open[0] === ARRAY) {
          if (members.length === MAX_ELEMENTS) throw invalidJson(i, 'too many elements');
          name = String(members.length);
        }
        member = { name, kind, start: i, end: i, values, objectMembers, depth, numbers: [] };
        deepest = 1;
      }
      values += 1;
      if (values > most) throw new JsonRefusal('body_too_large', 'too many values', i);
    }
    if (byte === QUOTE && (isName || kind !== undefined)) {
      i = quoteAt(bytes, view, i + 1, Math.min(turn, size));
      while (i < size && bytes[i] !== QUOTE) {
        yield;
        turn = i + TURN;
        i = quoteAt(bytes, view, i, Math.min(turn, size));
      }
      if (i >= size) break;
      i += 1;
      if (isName) {
        objectMembers += 1;
        const taken = takers.at(-1)?.(bytes.subarray(from + 1, i - 1), i - 1);
        if (open.length === 1) name = taken!;
        state = COLON;
        continue;
      }
    } else if (kind === 'object' || kind === 'array') {
      if (open.length === MAX_DEPTH) throw invalidJson(i, 'nesting is too deep');
      open.push(byte);
      const isTaken = kind === 'object' && (open.length === 1 || unique === 'everywhere');
      takers.push(isTaken ? createNames(unique === 'top') : undefined);
      deepest = Math.max(deepest, open.length);
      state = kind === 'object' ? FIRST_NAME : FIRST_ELEMENT;
      i += 1;
      continue;
    } else if (kind === 'number') {
      const decimal = decimalEnd(bytes, i);
      i = exponentEnd(bytes, decimal);
      if (i >= size) break;
      if (i > decimal || i - from > 15) member?.numbers.push(from, i);
    } else if (kind !== undefined) {
      i = literalEnd(bytes, i, kind);
      if (i >= size) break;
    } else if (byte === open.at(-1)! + TO_CLOSER && (state === AFTER_VALUE || isEmpty(state))) {
      open.pop();
      takers.pop();
      i += 1;
    } else {
      if (state === AFTER_VALUE && byte === 0x2c) state = open.at(-1) === OBJECT ? NAME : VALUE;
      else if (state === COLON && byte === 0x3a) state = VALUE;
      else throw invalidJson(i, state === DONE ? 'text after the object' : undefined);
      i += 1;
      continue;
    }
    // A value has ended.
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
  if (state !== DONE && !partial) throw invalidJson(size, 'unexpected end');
  return { members, values, objectMembers, depth };
}

/** Scans a text in one turn, which should be short. Otherwise as scanInTurns. */
export function scanJson(bytes: Buffer, options?: ScanOptions): Scanned {
  const turns = scanInTurns(bytes, options);
  let step = turns.next();
  while (!step.done) step = turns.next();
  return step.value;
}
