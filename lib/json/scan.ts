/**
 * Scans the bytes of a JSON text in one strict pass. The scan finds the members of the top-level object,
 * whose raw text is encrypted, and counts what each of them holds, before JSON.parse may see it. The grammar
 * is that of RFC 8259 and JSON.parse, in UTF-8 without a byte order mark, because only JSON may be sent.
 */
import { isUtf8 } from 'node:buffer';
import { PrivatemodeError } from '../errors.ts';
import { mayNameUrl, takeName } from './names.ts';
import { invalidJson, type JsonKind, KINDS, literalEnd, numberEnd, QUOTE, quoteAt } from './tokens.ts';

/** How many values (the value itself counts), members of objects and levels of nesting a value has. */
export type Counts = Readonly<Record<'values' | 'objectMembers' | 'depth', number>>;

/** A member of the top-level object, or an element of the top-level array. */
export interface Member extends Counts {
  readonly name: string; // the decoded name; an element of an array has no name
  readonly kind: JsonKind;
  readonly start: number; // position of the first byte of the value
  readonly end: number; // position after the last byte of the value
  readonly numbers: number[]; // with the option `numbers`: start and end of each inexact number in the value
  readonly mayHoldUrl: boolean; // whether an object in the value may have a media URL (mayNameUrl)
}

export type Scanned = Counts & { readonly members: readonly Member[] };
type Writable<T> = { -readonly [K in keyof T]: T[K] };

const MOST_VALUES = 200_000;
const NONE: number[] = [];
/** Whether a text is cheap enough for JSON.parse: 8 MiB of different names would take more than a second. */
export const isParsable = ({ values, objectMembers, depth }: Counts): boolean =>
  values <= MOST_VALUES && objectMembers <= 20_000 && depth <= 64;

const MAX_DEPTH = 10_000; // the most levels of nesting; the decoder of the service has the same limit
const MAX_ELEMENTS = 100_000;
const TURN = 512 * 1024; // bytes that are scanned before other exchanges have their turn

// Flags for the tokens that may come next. `next` is the sum of the flags; 0 behind the whole value.
const VALUE = 1;
const NAME = 2;
const COLON = 4;
const COMMA = 8;
const CLOSER = 16;

type ScanOptions = { readonly [option in 'array' | 'partial' | 'unique' | 'numbers']?: boolean };

/**
 * Scans the whole text, and yields after each 512 KiB. With `array`, the text may also be an array. With
 * `partial`, the text may be cut off, and only complete members are found. With `unique`, names must differ
 * in every object; without `unique`, only the names of the top-level object must, and the service must be
 * able to address them. `numbers` lists inexact numbers. Throws what takeName throws, and invalid_json. More
 * than 100,000 elements or 10,000 levels are invalid_json, too.
 */
export function* scanInTurns(bytes: Buffer, options: ScanOptions = {}): Generator<undefined, Scanned> {
  const { array, partial, unique, numbers } = options;
  const size = bytes.length;
  if (!isUtf8(bytes)) throw new PrivatemodeError('invalid_json', 'the body is not UTF-8');
  const view = new DataView(bytes.buffer, bytes.byteOffset, size);
  const members: Member[] = [];
  const open: JsonKind[] = []; // the objects and arrays that are open at `i`
  const names: (Set<string> | undefined)[] = []; // for each of `open`: its names so far, if they must differ
  let next = VALUE;
  let values = 0;
  let objectMembers = 0;
  let depth = 1;
  let name = '';
  /** The member that is being scanned. Until its value ends, its counts are the totals before the value. */
  let member: Writable<Member> | undefined;

  // Each round takes one token. If the text ends within a token, the loop ends there.
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
    const kind = next & VALUE ? KINDS[byte] : undefined;
    const isName = byte === QUOTE && (next & NAME) !== 0;
    if (open.length === 0) {
      if (next === 0) throw invalidJson(i, 'text after the object');
      if (kind !== 'object' && !(array && kind === 'array')) throw invalidJson(i, 'no object');
    }
    if (kind !== undefined && open.length === 1) {
      if (members.length === MAX_ELEMENTS) throw invalidJson(i, 'too many elements');
      const sums = { values, objectMembers, depth: 0 };
      member = { name, kind, start: i, end: i, ...sums, numbers: numbers ? [] : NONE, mayHoldUrl: false };
    }
    if (kind === 'object' || kind === 'array') {
      if (open.length === MAX_DEPTH) throw invalidJson(i, 'nesting is too deep');
      open.push(kind);
      names.push(kind === 'object' && (open.length === 1 || unique) ? new Set() : undefined);
      if (member !== undefined) member.depth = Math.max(member.depth, open.length - 1);
      next = kind === 'object' ? NAME + CLOSER : VALUE + CLOSER;
      i += 1;
      continue;
    }
    if (kind === 'string' || isName) {
      i = quoteAt(bytes, view, i + 1, Math.min(turn, size));
      while (i < size && bytes[i] !== QUOTE) {
        yield;
        turn = i + TURN;
        i = quoteAt(bytes, view, i, Math.min(turn, size));
      }
      i += 1;
    } else if (kind === 'number') {
      i = numberEnd(bytes, i, numbers && values < MOST_VALUES ? member?.numbers : undefined);
      if (i === size) break; // in a text that is cut off, more digits may follow
    } else if (kind !== undefined) {
      i = literalEnd(bytes, i, kind);
    } else {
      const inObject = open.at(-1) === 'object';
      i += 1;
      if (next & CLOSER && byte === (inObject ? 0x7d : 0x5d)) {
        open.pop();
        names.pop();
      } else {
        if (next & COMMA && byte === 0x2c) next = inObject ? NAME : VALUE;
        else if (next & COLON && byte === 0x3a) next = VALUE;
        else throw invalidJson(from);
        continue;
      }
    }
    if (i > size) break;
    if (isName) {
      objectMembers += 1;
      const taken = names.at(-1);
      if (taken !== undefined) name = takeName(taken, bytes, from + 1, i - 1, !unique);
      else if (mayNameUrl(bytes, from + 1, i - 1)) member!.mayHoldUrl = true;
      next = COLON;
      continue;
    }
    // A value has ended.
    values += 1;
    next = open.length === 0 ? 0 : COMMA + CLOSER;
    if (open.length === 1 && member !== undefined) {
      member.end = i;
      member.values = values - member.values;
      member.objectMembers = objectMembers - member.objectMembers;
      members.push(member);
      depth = Math.max(depth, member.depth + 1);
    }
  }
  if (next !== 0 && !partial) throw invalidJson(size, 'unexpected end');
  return { members, values, objectMembers, depth };
}

/** Scans a text in one turn. The text should be short. */
export const scanJson = (bytes: Buffer, options?: ScanOptions) =>
  inTurns(scanInTurns(bytes, options)) as Scanned;

/** Called during long work. If it returns a promise, the work goes on only when the promise resolves. */
export type Pause = () => Promise<void> | undefined;

/** Does work in steps. Between steps, `pause` may wait. If nothing waits, the result is no promise. */
export function inTurns<T>(steps: Generator<undefined, T>, pause?: Pause): T | Promise<T> {
  for (let step = steps.next(); ; step = steps.next()) {
    if (step.done) return step.value;
    const turn = pause?.();
    if (turn !== undefined) return turn.then(() => inTurns(steps, pause));
  }
}
