/**
 * Recognises an event by its bytes if it is like an earlier one. The events of a stream differ in ciphertexts
 * and counts only, and those of two streams in their id too. So what the scan (read-event.ts) found in one
 * event only has to be verified in the next: a few comparisons instead of a scan of every byte, and no
 * strings.
 */
import type { JsonMember } from '../json/json-index.ts';
import type { EventMatch } from './read-event.ts';

/**
 * What follows a literal of a pattern: a part that may differ in the next event (message, number or id), the
 * start or the end of `usage`, or the end of the event.
 */
const Behind = { message: 0, number: 1, id: 2, usageStart: 3, usageEnd: 4, end: 5 } as const;

/**
 * The bytes of an event: literals, and what may differ behind each. All of it is in two arrays: with a
 * hundred streams taking turns, each further place in memory costs more than the work done there. Without
 * patterns an event costs 21.9 us instead of 6.8 (bench row stream_saturated).
 */
interface EventPattern {
  /** The literals, one after another. */
  readonly text: Uint8Array;
  /** Two entries per literal: its end in `text`, and what follows it, a value of `Behind`. */
  readonly steps: Int32Array;
}

const LF = 0x0a;
const CR = 0x0d;
const QUOTE = 0x22;
const ZERO = 0x30;

/**
 * Numbers that may differ from event to event: `0`, or 1 to 20 digits without a leading zero. Swapping one
 * such number for another keeps the JSON valid, and no value that matches the pattern exceeds
 * MAX_PLAIN_BYTES, because its original has at most MAX_VARYING characters.
 */
const NUMBERS = /(?<![0-9])(?:0|[1-9][0-9]{0,19})(?![0-9])/g;
const MAX_DIGITS = 20;
/**
 * Most characters of a plain value whose numbers may differ. A longer value must be the same in the next
 * event.
 */
const MAX_VARYING = 1024;

/** The plain member that is the same in all events of a stream but differs between streams. */
const ID_MEMBER = 'id';
/**
 * An id that may differ has only characters that mean the same to every reader. Any other id must be the same
 * in the next event.
 */
const VARYING_ID = /^"[\w.:-]{1,128}"$/;
const MAX_ID_BYTES = 128;
const IS_ID_BYTE = new Uint8Array(256);
for (let byte = 0; byte < 0x80; byte++) IS_ID_BYTE[byte] = Number(/[\w.:-]/.test(String.fromCharCode(byte)));

/**
 * The numbers in a plain value that may differ. A string has none, nor has a value that is too long or has a
 * backslash: digits of an escape may not differ.
 */
function numbersIn(data: Buffer, { kind, start, end }: JsonMember): Iterable<RegExpExecArray> {
  const value = data.toString('latin1', start, end);
  const isFixed = kind === 'string' || value.length > MAX_VARYING || value.includes('\\');
  return isFixed ? [] : value.matchAll(NUMBERS);
}

/**
 * The pattern of whole events, with LF for line ends, that are like the event with this data. `match` holds
 * the places of its messages and usage. `name` is the event's name if an `event:` line must come first.
 * Returns undefined if the event has no message. The data must have no line ends: on the wire, each of its
 * lines would have a `data:` of its own.
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
  // Copied: a piece of Buffer's pool would keep the whole pool for as long as the stream lasts.
  return { text: Uint8Array.from(Buffer.from(text, 'latin1')), steps: Int32Array.from(steps) };
}

const isDigit = (byte: number | undefined): boolean => byte !== undefined && byte >= ZERO && byte <= ZERO + 9;

/** The position after the number at `from`, as NUMBERS defines it; `from` if there is none. */
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

/**
 * Whether an event of this pattern begins at `start`. If so, `match` has the places of its messages and
 * usage, and its end.
 */
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
        // Opening the message refuses line ends, so none is searched for here: such a loop took a fifth of an
        // event's time.
        position = bytes.indexOf(QUOTE, from);
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

/**
 * Whether the bytes from `start` on may be a cut-off event of this pattern. They must agree with its first
 * literal and end within a line of the event. No line end may follow that literal, because it could mean
 * something else.
 */
function beginsLike({ text, steps }: EventPattern, bytes: Buffer, start: number): boolean {
  const size = Math.min(steps[0]!, bytes.length - start);
  for (let i = 0; i < size; i++) if (bytes[start + i] !== text[i]) return false;
  const rest = start + size;
  return bytes[bytes.length - 1] !== LF && bytes.indexOf(LF, rest) < 0 && bytes.indexOf(CR, rest) < 0;
}

/** Events remembered per stream. A stream alternates between few kinds of events. */
const REMEMBERED = 8;
/** Events remembered for all streams of an endpoint together. Each model has kinds of its own. */
const REMEMBERED_OF_ALL = 32;
/**
 * Most bytes of a pattern's literals. An event with more is scanned each time: a gateway could pad it with
 * what it likes.
 */
const MAX_PATTERN_BYTES = 4096;

interface KnownEvent<Kind> {
  readonly pattern: EventPattern;
  readonly kind: Kind;
}

/**
 * Remembers the events that a stream has had, each with what its owner knows about the kind. `others` are the
 * events that all streams of an endpoint have had: the stream recognises those when they first occur. Each
 * stream also keeps its own list, since a gateway that makes up kinds in one stream could otherwise slow down
 * the other streams.
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

  /**
   * The kind of the event at `start`, whose places `match` then holds. Undefined if no remembered event is
   * like it.
   */
  find(bytes: Buffer, start: number, match: EventMatch): Kind | undefined {
    const own = this.#matching(bytes, start, match);
    if (own !== undefined) return own.kind;
    if (this.#others === undefined) return undefined;
    const other = this.#others.#matching(bytes, start, match);
    if (other !== undefined) this.#keep(other);
    return other?.kind;
  }

  /** Whether the bytes from `start` on may be the beginning of an event like one that the stream has had. */
  mayBegin(bytes: Buffer, start: number): boolean {
    return this.#known.some(({ pattern }) => beginsLike(pattern, bytes, start));
  }

  /**
   * Remembers an event that `find` did not find and that has authenticated. If the list is full, the event
   * replaces the entry after the one that came last.
   */
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
