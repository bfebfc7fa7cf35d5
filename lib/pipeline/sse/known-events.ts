/**
 * Knows an event by its bytes if it is like an earlier one. The events of a stream differ in ciphertexts and counts only, and those of
 * two streams in their id too, so what the scan (read-event.ts) found in one is verified in the next: a few comparisons instead of a
 * scan of every byte, and no strings.
 */
import type { JsonMember } from '../json/json-index.ts';
import type { EventMatch } from './read-event.ts';

/** What comes behind a literal of a pattern: what may be another in the next event, an end of `usage`, or the end of the event. */
const Behind = { message: 0, number: 1, id: 2, usageStart: 3, usageEnd: 4, end: 5 } as const;

/**
 * What the bytes of an event must be: literals, and what may differ behind them. All in two places: with a hundred streams taking turns,
 * each place in memory that has to be visited costs more than what is done there. Without patterns an event costs 21.9 us instead of
 * 6.8 (bench row stream_saturated).
 */
interface EventPattern {
  /** The literals, one behind the other. */
  readonly text: Uint8Array;
  /** For each literal its end in `text`, and what comes behind it. */
  readonly steps: Int32Array;
}

const LF = 0x0a;
const CR = 0x0d;
const QUOTE = 0x22;
const ZERO = 0x30;

/**
 * Runs of digits that may be others without making valid JSON invalid: none that begins with a zero, but for zero itself, and none
 * longer than any count. With these in a value of MAX_VARYING characters, no other value gets longer than MAX_PLAIN_BYTES.
 */
const NUMBERS = /(?<![0-9])(?:0|[1-9][0-9]{0,19})(?![0-9])/g;
const MAX_DIGITS = 20;
/** Characters of a plain value; a longer one has to be the same in the next event. */
const MAX_VARYING = 1024;

/** The plain member that is the same in the events of one stream, and another in each stream. */
const ID_MEMBER = 'id';
/** Characters that mean the same to every reader. Any other id has to be the same in the next event. */
const VARYING_ID = /^"[\w.:-]{1,128}"$/;
const MAX_ID_BYTES = 128;
const IS_ID_BYTE = new Uint8Array(256);
for (let byte = 0; byte < 0x80; byte++) IS_ID_BYTE[byte] = Number(/[\w.:-]/.test(String.fromCharCode(byte)));

/** The numbers in a plain value that may be others; those of an escape may not. */
function numbersIn(data: Buffer, { kind, start, end }: JsonMember): Iterable<RegExpExecArray> {
  const value = data.toString('latin1', start, end);
  const isFixed = kind === 'string' || value.length > MAX_VARYING || value.includes('\\');
  return isFixed ? [] : value.matchAll(NUMBERS);
}

/**
 * The pattern of whole events like the one with that data, whose messages and usage are in `match`, with LF for line ends. `name`
 * is the event's name if one must stand before it. Undefined if there is nothing to open in it. The data must have no line ends: on
 * the wire, each of its lines has a `data:` of its own.
 */
export function patternOf(
  data: Buffer,
  members: readonly JsonMember[],
  match: EventMatch,
  name: string | undefined,
): EventPattern | undefined {
  if (match.count === 0) return undefined;
  let text = name === undefined ? 'data: ' : `event: ${name}\ndata: `;
  const steps: number[] = [];
  let position = 0;
  /** Ends a literal before `from`; the next one begins at `to`. */
  const step = (from: number, to: number, what: number): void => {
    text += data.toString('latin1', position, from);
    steps.push(text.length, what);
    position = to;
  };
  let part = 0;
  for (const member of members) {
    const isUsage = member.start > match.usageStart && member.end <= match.usageEnd;
    if (isUsage) step(match.usageStart, match.usageStart, Behind.usageStart);
    if (member.start + 1 === match.starts[part] && part < match.count) {
      step(match.starts[part]!, match.ends[part]!, Behind.message);
      part += 1;
    } else if (
      member.name === ID_MEMBER &&
      VARYING_ID.test(data.toString('latin1', member.start, member.end))
    ) {
      step(member.start + 1, member.end - 1, Behind.id);
    } else {
      for (const { index, 0: digits } of numbersIn(data, member)) {
        step(member.start + index, member.start + index + digits.length, Behind.number);
      }
    }
    if (isUsage) step(match.usageEnd, match.usageEnd, Behind.usageEnd);
  }
  text += `${data.toString('latin1', position)}\n\n`;
  steps.push(text.length, Behind.end);
  // Memory of its own: a piece of the pool would keep all of it for as long as the stream lasts.
  return { text: Uint8Array.from(Buffer.from(text, 'latin1')), steps: Int32Array.from(steps) };
}

const isDigit = (byte: number | undefined): boolean => byte !== undefined && byte >= ZERO && byte <= ZERO + 9;

/** The position after the number at `from`, as NUMBERS has it; `from` if there is none. */
function afterNumber(bytes: Buffer, from: number): number {
  let position = from;
  const longest = from + MAX_DIGITS;
  if (bytes[position] === ZERO) position += 1;
  else while (position < longest && isDigit(bytes[position])) position += 1;
  return isDigit(bytes[position]) ? from : position;
}

/** The position after the characters of an id at `from`; `from` if there are none. */
function afterId(bytes: Buffer, from: number): number {
  let position = from;
  const longest = from + MAX_ID_BYTES;
  while (position < longest && IS_ID_BYTE[bytes[position]!] === 1) position += 1;
  return position;
}

/** Whether an event of that pattern begins at `start`; then `match` tells where its messages and its end are. */
function matchBytes({ text, steps }: EventPattern, bytes: Buffer, start: number, match: EventMatch): boolean {
  let position = start;
  let at = 0;
  match.count = 0;
  match.usageStart = match.usageEnd = -1;
  for (let k = 0; k < steps.length; k += 2) {
    const end = steps[k]!;
    if (position + end - at > bytes.length) return false;
    for (; at < end; at++, position++) if (bytes[position] !== text[at]) return false;
    const from = position;
    switch (steps[k + 1]) {
      case Behind.message:
        position = bytes.indexOf(QUOTE, from); // whoever opens it refuses line ends: a loop here took a fifth of an event's time
        if (position < 0) return false;
        match.starts[match.count] = from;
        match.ends[match.count] = position;
        match.count += 1;
        break;
      case Behind.number:
        position = afterNumber(bytes, from);
        if (position === from) return false;
        break;
      case Behind.id:
        position = afterId(bytes, from);
        if (position === from) return false;
        break;
      case Behind.usageStart:
        match.usageStart = from;
        break;
      case Behind.usageEnd:
        match.usageEnd = from;
        break;
    }
  }
  match.end = position;
  return true;
}

/** The same of a beginning that ends within a line of the event: no line end is behind it that could mean something else. */
function beginsLike({ text, steps }: EventPattern, bytes: Buffer, start: number): boolean {
  const size = Math.min(steps[0]!, bytes.length - start);
  for (let i = 0; i < size; i++) if (bytes[start + i] !== text[i]) return false;
  const rest = start + size;
  return bytes[bytes.length - 1] !== LF && bytes.indexOf(LF, rest) < 0 && bytes.indexOf(CR, rest) < 0;
}

/** Streams alternate between few kinds of events; more than this are not remembered. */
const REMEMBERED = 8;
/** Of all streams together: models have kinds of their own. */
const REMEMBERED_OF_ALL = 32;
/** Bytes of a pattern. An event with more is scanned each time: a gateway could pad it with what it likes. */
const MAX_PATTERN_BYTES = 4096;

interface KnownEvent<Kind> {
  readonly pattern: EventPattern;
  readonly kind: Kind;
}

/**
 * The events that a stream has had, each with what its owner knows of its kind. With `others`, those that all streams of an endpoint
 * have had: one of theirs is known at its first occurrence. A stream keeps its own, or a gateway that makes up kinds in one stream
 * could slow down the others.
 */
export class KnownEvents<Kind> {
  readonly #known: KnownEvent<Kind>[] = [];
  readonly #others: KnownEvents<Kind> | undefined;
  readonly #most: number;
  #last = 0; // index of the kind that came last

  private constructor(most: number, others?: KnownEvents<Kind>) {
    this.#most = most;
    this.#others = others;
  }

  static ofAllStreams<Kind>(): KnownEvents<Kind> {
    return new KnownEvents(REMEMBERED_OF_ALL);
  }

  static ofStream<Kind>(others?: KnownEvents<Kind>): KnownEvents<Kind> {
    return new KnownEvents(REMEMBERED, others);
  }

  /** The kind of the event at `start`, whose places are in `match` then; undefined if its bytes do not tell. */
  find(bytes: Buffer, start: number, match: EventMatch): Kind | undefined {
    const own = this.#matching(bytes, start, match);
    if (own !== undefined) return own.kind;
    if (this.#others === undefined) return undefined;
    const other = this.#others.#matching(bytes, start, match);
    if (other !== undefined) this.#keep(other);
    return other?.kind;
  }

  /** Whether the bytes from `start` on may be the beginning of an event that the stream has had. */
  mayBegin(bytes: Buffer, start: number): boolean {
    return this.#known.some(({ pattern }) => beginsLike(pattern, bytes, start));
  }

  /** Remembers an event that was not found, and has authenticated; in place of the one after the last if there are enough. */
  remember(pattern: EventPattern | undefined, kind: Kind): void {
    if (pattern === undefined || pattern.text.length > MAX_PATTERN_BYTES) return;
    const event = { pattern, kind };
    this.#keep(event);
    if (this.#others !== undefined) this.#others.#keep(event);
  }

  #matching(bytes: Buffer, start: number, match: EventMatch): KnownEvent<Kind> | undefined {
    const known = this.#known;
    for (let k = 0; k < known.length; k++) {
      const at = (this.#last + k) % known.length;
      if (!matchBytes(known[at]!.pattern, bytes, start, match)) continue;
      this.#last = at;
      return known[at];
    }
    return undefined;
  }

  #keep(event: KnownEvent<Kind>): void {
    const { length } = this.#known;
    this.#last = length < this.#most ? length : (this.#last + 1) % this.#most;
    this.#known[this.#last] = event;
  }
}
