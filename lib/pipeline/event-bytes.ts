/**
 * Events of a known layout on the wire, matched byte by byte: what `matchLayout` is for text. A stream is thousands of
 * events that differ in ciphertexts and counts only, so the hot path makes no strings of them.
 */
import type { EventLayout } from './event-layout.ts';

/** What the bytes of an event must be: literals, and between two of them a number or a message in quotes. */
export interface EventPattern {
  readonly literals: readonly Uint8Array[];
  /** Between literal k and the next: the part that is a message, or NUMBER. */
  readonly between: readonly number[];
}

/** Where the messages of a matched event stand, quotes excluded, by the number of their part. */
export interface EventMatch {
  readonly starts: number[];
  readonly ends: number[];
  /** The position after the event. */
  end: number;
}

const NUMBER = -1;
const QUOTE = 0x22;
const ZERO = 0x30;
const BLANK = 0x20;
/** Runs of digits that may differ, as in `event-layout.ts`: none that begins with a zero, but for zero itself. */
const NUMBERS = /(?<![0-9])(?:0(?![0-9])|[1-9][0-9]*)/g;

/**
 * The pattern of whole events like `data`, which has that layout, with LF for line ends. `name` is the event's name where
 * one must stand before it. Undefined where there is nothing to open in it.
 */
export function patternOf(
  layout: EventLayout,
  data: string,
  name: string | undefined,
): EventPattern | undefined {
  if (layout.order.length === 0) return undefined;
  const literals: string[] = [];
  const between: number[] = [];
  let literal = name === undefined ? 'data: ' : `event: ${name}\ndata: `;
  let position = 0;
  for (const [part, plainValue] of layout.plainValues.entries()) {
    const before = layout.literals[part]!;
    literal += before;
    position += before.length;
    if (plainValue === undefined) {
      literals.push(literal);
      between.push(part);
      literal = '"';
      position = data.indexOf('"', position) + 1;
      continue;
    }
    plainValue.lastIndex = position;
    const value = plainValue.exec(data)![0];
    let copied = 0;
    for (const { index, 0: digits } of value.matchAll(NUMBERS)) {
      literals.push(literal + value.slice(copied, index));
      between.push(NUMBER);
      literal = '';
      copied = index + digits.length;
    }
    literal += value.slice(copied);
    position += value.length;
  }
  literals.push(`${literal}${layout.literals.at(-1)!}\n\n`);
  return { literals: literals.map((text) => Buffer.from(text, 'latin1')), between };
}

const isDigit = (byte: number | undefined): boolean => byte !== undefined && byte >= ZERO && byte <= ZERO + 9;

/** Whether an event of that pattern begins at `start`; then `match` tells where its messages and its end are. */
export function matchBytes(
  pattern: EventPattern,
  bytes: Uint8Array,
  start: number,
  match: EventMatch,
): boolean {
  const { literals, between } = pattern;
  let position = start;
  for (let k = 0; k < literals.length; k++) {
    const literal = literals[k]!;
    const size = literal.length;
    if (position + size > bytes.length) return false;
    for (let i = 0; i < size; i++) if (bytes[position + i] !== literal[i]) return false;
    position += size;
    if (k === between.length) break;
    const part = between[k]!;
    const from = position;
    if (part === NUMBER) {
      if (bytes[position] === ZERO) position += 1;
      else while (isDigit(bytes[position])) position += 1;
      if (position === from || isDigit(bytes[position])) return false;
    } else {
      while (bytes[position]! >= BLANK && bytes[position] !== QUOTE) position += 1; // a line end is no part of a message
      match.starts[part] = from;
      match.ends[part] = position;
    }
  }
  match.end = position;
  return true;
}

const LF = 0x0a;
const CR = 0x0d;

/**
 * Whether the bytes from `start` on may be the beginning of an event of that pattern, which ends within one of its lines: the
 * rest of it is yet to come, and no line end is behind it that could mean something else.
 */
export function beginsLike({ literals }: EventPattern, bytes: Buffer, start: number): boolean {
  const literal = literals[0]!;
  const size = Math.min(literal.length, bytes.length - start);
  for (let i = 0; i < size; i++) if (bytes[start + i] !== literal[i]) return false;
  const rest = start + size;
  return bytes[bytes.length - 1] !== LF && bytes.indexOf(LF, rest) < 0 && bytes.indexOf(CR, rest) < 0;
}
