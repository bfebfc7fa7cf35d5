/**
 * Where an event has its messages: by a strict scan of its data or, for one like an earlier event, by its bytes. The events of a
 * stream differ in ciphertexts and counts only, and those of two streams in their id too, so what the scan found in one is verified
 * in the next: a few comparisons instead of a scan of every byte, and no strings.
 */
import { malformed, notAuthentic } from '../decrypter.ts';
import { createJsonIndex, type JsonMember } from '../json/json-index.ts';
import { MAX_PLAIN_BYTES, type PlainMembers } from '../response-grammar.ts';

/** Where an event has what. One for all streams: to be read before the next event is matched. */
export class EventMatch {
  /** How many messages it has. Their places, quotes excluded, in the order of the text. */
  count = 0;
  readonly starts: number[] = [];
  readonly ends: number[] = [];
  /** Where `usage` stands, with its name and one comma; both -1 if there is none. */
  usageStart = -1;
  usageEnd = -1;
  /** The position after the event. */
  end = 0;
}

/** What clients take for a line end in some language, as UTF-8 in latin1: no text that nothing authenticates may have one. */
const STRAY_LINE_END = /[\v\f\x1c-\x1e]|\xc2\x85|\xe2\x80[\xa8\xa9]/;

/** Bytes of an event beside its messages and plain values: names, a few counts and blanks. A gateway could pad it with megabytes. */
const MAX_UNSEALED_BYTES = 32 * 1024;

/**
 * Scans the data of an event, strictly; notes in `match` where its messages and its usage stand. Returns its members and the names of
 * the sealed ones in the order of the text, and the plain string member `type` as written (no known type has escapes). Throws what the
 * JSON index throws, response_not_authentic if a member that is not plain is no string, and response_malformed if a plain one is of a
 * wrong kind or longer than 16 KiB, or if there is more than 32 KiB of other text, or a stray line end in what is not sealed.
 */
export function scanEvent(data: Buffer, plain: PlainMembers, match: EventMatch) {
  const index = createJsonIndex();
  index.feed(data);
  const members = index.finish();
  const sealed: string[] = [];
  let type: string | undefined;
  let unsealed = '';
  let plainValues = 0; // bytes, strings left out
  let position = 0;
  match.usageStart = match.usageEnd = -1;
  match.end = data.length;
  for (const [at, { name, kind, start, end }] of members.entries()) {
    const kinds = plain.get(name);
    if (kinds === undefined) {
      if (kind !== 'string') throw notAuthentic('a value of the event is not encrypted');
      match.starts[sealed.length] = start + 1;
      match.ends[sealed.length] = end - 1;
      sealed.push(name);
      unsealed += data.toString('latin1', position, start + 1);
      position = end - 1;
      continue;
    }
    if (!kinds.includes(kind) || end - start > MAX_PLAIN_BYTES) {
      throw malformed('a plain member of an event is not what it should be');
    }
    // A string of its own: a slice of the data would keep all of it for as long as the stream lasts.
    if (name === 'type') type = data.toString('latin1', start + 1, end - 1);
    if (kind !== 'string') plainValues += end - start;
    if (name !== 'usage') continue;
    // With the comma before it or, for the first member, the one after it.
    const previous = members[at - 1];
    match.usageStart = previous === undefined ? index.bodyStart : data.indexOf(',', previous.end);
    match.usageEnd = previous === undefined && members.length > 1 ? data.indexOf(',', end) + 1 : end;
  }
  match.count = sealed.length;
  unsealed += data.toString('latin1', position);
  if (unsealed.length - plainValues > MAX_UNSEALED_BYTES) {
    throw malformed('an event has more text than its messages need');
  }
  if (STRAY_LINE_END.test(unsealed)) {
    throw malformed('an event has line ends where nothing authenticates them');
  }
  return { members, sealed, type };
}

/**
 * What the bytes of an event must be: literals, and between two of them a number, an id or a message in quotes. All in two places: with
 * a hundred streams taking turns, each place in memory that has to be visited costs more than what is done there.
 */
interface EventPattern {
  /** The literals, one behind the other. */
  readonly text: Uint8Array;
  /** For each literal its end in `text`, and what comes behind it: MESSAGE, NUMBER, ID, an end of `usage`, or END. */
  readonly steps: Int32Array;
}

const MESSAGE = 0;
const NUMBER = 1;
const USAGE_START = 2;
const USAGE_END = 3;
const END = 4;
const ID = 5;

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
    if (isUsage) step(match.usageStart, match.usageStart, USAGE_START);
    if (member.start + 1 === match.starts[part] && part < match.count) {
      step(match.starts[part]!, match.ends[part]!, MESSAGE);
      part += 1;
    } else if (
      member.name === ID_MEMBER &&
      VARYING_ID.test(data.toString('latin1', member.start, member.end))
    ) {
      step(member.start + 1, member.end - 1, ID);
    } else {
      for (const { index, 0: digits } of numbersIn(data, member)) {
        step(member.start + index, member.start + index + digits.length, NUMBER);
      }
    }
    if (isUsage) step(match.usageEnd, match.usageEnd, USAGE_END);
  }
  text += `${data.toString('latin1', position)}\n\n`;
  steps.push(text.length, END);
  // Memory of its own: a piece of the pool would keep all of it for as long as the stream lasts.
  return { text: Uint8Array.from(Buffer.from(text, 'latin1')), steps: Int32Array.from(steps) };
}

const isDigit = (byte: number | undefined): boolean => byte !== undefined && byte >= ZERO && byte <= ZERO + 9;

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
    const what = steps[k + 1];
    if (what === MESSAGE) {
      position = bytes.indexOf(QUOTE, from); // whoever opens it refuses line ends: a loop here took a fifth of an event's time
      if (position < 0) return false;
      match.starts[match.count] = from;
      match.ends[match.count] = position;
      match.count += 1;
    } else if (what === NUMBER) {
      const longest = from + MAX_DIGITS;
      if (bytes[position] === ZERO) position += 1;
      else while (position < longest && isDigit(bytes[position])) position += 1;
      if (position === from || isDigit(bytes[position])) return false;
    } else if (what === ID) {
      const longest = from + MAX_ID_BYTES;
      while (position < longest && IS_ID_BYTE[bytes[position]!] === 1) position += 1;
      if (position === from) return false;
    } else if (what === USAGE_START) match.usageStart = position;
    else if (what === USAGE_END) match.usageEnd = position;
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
