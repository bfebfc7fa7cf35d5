/**
 * Events of a known layout on the wire, matched byte by byte: what `matchLayout` is for text. A stream is thousands of
 * events that differ in ciphertexts and counts only, so the hot path makes no strings of them.
 */
import { type EventLayout, numbersMayDiffer } from './event-layout.ts';

/**
 * What the bytes of an event must be: literals, and between two of them a number or a message in quotes. All in two places:
 * where a hundred streams take turns, each place in memory that has to be visited costs more than what is done there.
 */
export interface EventPattern {
  /** The literals, one behind the other. */
  readonly text: Uint8Array;
  /** For each literal its end in `text`, and what comes behind it: the part that is a message, NUMBER, an end of `usage`, or END. */
  readonly steps: Int32Array;
}

/** Where a matched event has what. One for all streams: to be read before the next event is matched. */
export interface EventMatch {
  /** The parts that are messages, in the order of the text, of which the first `count` are meant. */
  readonly parts: number[];
  count: number;
  /** Where the messages stand, quotes excluded, by the number of their part. */
  readonly starts: number[];
  readonly ends: number[];
  /** Where `usage` stands, with what has to go with it; both -1 where there is none. */
  usageStart: number;
  usageEnd: number;
  /** The position after the event. */
  end: number;
}

export const newMatch = (): EventMatch => ({
  parts: [],
  count: 0,
  starts: [],
  ends: [],
  usageStart: -1,
  usageEnd: -1,
  end: 0,
});

const NUMBER = -1;
const END = -2;
const USAGE_START = -3;
const USAGE_END = -4;
const QUOTE = 0x22;
const ZERO = 0x30;
const BLANK = 0x20;
/** Runs of digits that may differ, as in `event-layout.ts`: none that begins with a zero, but for zero itself. */
const NUMBERS = /(?<![0-9])(?:0(?![0-9])|[1-9][0-9]*)/g;

/**
 * The pattern of whole events like `data`, which has that layout, with LF for line ends. `name` is the event's name where
 * one must stand before it. Undefined where there is nothing to open in it, or where its data has line ends: on the wire, each of
 * its lines has a `data:` of its own.
 */
export function patternOf(
  layout: EventLayout,
  data: string,
  name: string | undefined,
): EventPattern | undefined {
  if (layout.order.length === 0 || data.includes('\n')) return undefined;
  let text = name === undefined ? 'data: ' : `event: ${name}\ndata: `;
  const steps: number[] = [];
  const behind = (what: number): void => void steps.push(text.length, what);
  let position = 0;
  const { usage } = layout;
  /** Adds the literal before a part, or the last one. */
  const addLiteral = (at: number): void => {
    const literal = layout.literals[at]!;
    const from = usage !== undefined && at === usage.part + 1 ? usage.after : 0;
    const to = literal.length - (usage !== undefined && at === usage.part ? usage.before : 0);
    text += literal.slice(0, from);
    if (usage !== undefined && at === usage.part + 1) behind(USAGE_END);
    text += literal.slice(from, to);
    if (usage !== undefined && at === usage.part) behind(USAGE_START);
    text += literal.slice(to);
    position += literal.length;
  };
  for (const [part, plainValue] of layout.plainValues.entries()) {
    addLiteral(part);
    if (plainValue === undefined) {
      behind(part);
      text += '"';
      position = data.indexOf('"', position) + 1;
      continue;
    }
    plainValue.lastIndex = position;
    const value = plainValue.exec(data)![0];
    let copied = 0;
    for (const { index, 0: digits } of numbersMayDiffer(value) ? value.matchAll(NUMBERS) : []) {
      text += value.slice(copied, index);
      behind(NUMBER);
      copied = index + digits.length;
    }
    text += value.slice(copied);
    position += value.length;
  }
  addLiteral(layout.plainValues.length);
  text += '\n\n';
  behind(END);
  // Memory of its own: a piece of the pool would keep all of it for as long as the stream lasts.
  return { text: Uint8Array.from(Buffer.from(text, 'latin1')), steps: Int32Array.from(steps) };
}

const isDigit = (byte: number | undefined): boolean => byte !== undefined && byte >= ZERO && byte <= ZERO + 9;

/** Whether an event of that pattern begins at `start`; then `match` tells where its messages and its end are. */
export function matchBytes(
  pattern: EventPattern,
  bytes: Uint8Array,
  start: number,
  match: EventMatch,
): boolean {
  const { text, steps } = pattern;
  let position = start;
  let at = 0;
  match.count = 0;
  match.usageStart = -1;
  match.usageEnd = -1;
  for (let k = 0; k < steps.length; k += 2) {
    const end = steps[k]!;
    if (position + end - at > bytes.length) return false;
    for (; at < end; at++, position++) if (bytes[position] !== text[at]) return false;
    const part = steps[k + 1]!;
    if (part === END) break;
    if (part === USAGE_START) {
      match.usageStart = position;
      continue;
    }
    if (part === USAGE_END) {
      match.usageEnd = position;
      continue;
    }
    const from = position;
    if (part === NUMBER) {
      if (bytes[position] === ZERO) position += 1;
      else while (isDigit(bytes[position])) position += 1;
      if (position === from || isDigit(bytes[position])) return false;
    } else {
      while (bytes[position]! >= BLANK && bytes[position] !== QUOTE) position += 1; // a line end is no part of a message
      match.parts[match.count] = part;
      match.count += 1;
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
export function beginsLike({ text, steps }: EventPattern, bytes: Buffer, start: number): boolean {
  const size = Math.min(steps[0]!, bytes.length - start);
  for (let i = 0; i < size; i++) if (bytes[start + i] !== text[i]) return false;
  const rest = start + size;
  return bytes[bytes.length - 1] !== LF && bytes.indexOf(LF, rest) < 0 && bytes.indexOf(CR, rest) < 0;
}
