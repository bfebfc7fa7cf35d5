/**
 * The data of one event, split into what is copied and what is opened. Events of a stream look alike but
 * for ciphertexts and counts, so what the strict scan found in one is verified in the next instead of
 * being found again: a few comparisons per event in place of a scan of every byte.
 */
import { PrivatemodeError } from '../../errors.ts';
import { MAX_PLAIN_BYTES, type StreamGrammar } from '../grammar.ts';
import { createJsonIndex, type JsonMember } from '../json/json-index.ts';
import { encryptionOrder } from '../json/member-names.ts';

/** How the data of an event is made: literal, message, literal, plain value with numbers, literal ... */
export interface EventLayout {
  /** Text between the parts, to be found and copied exactly; one more than there are parts. */
  readonly literals: readonly string[];
  /** The same without the opening quotes of messages, whose plaintext takes the place of the quotes too. */
  readonly copied: readonly string[];
  /** Between two literals: undefined for an encrypted value, or what a plain one must look like. */
  readonly plainValues: readonly (RegExp | undefined)[];
  /** Names of the parts, and which of them hold ciphertext, in the order of their sequence numbers. */
  readonly names: readonly string[];
  readonly order: readonly number[];
  /** The plain string member `type` as written, no quotes; undefined where there is none. No known type has escapes. */
  readonly type: string | undefined;
  /** Where `usage` stands, to be left out with its name and one comma; undefined where there is none. */
  readonly usage: UsagePlace | undefined;
}

export interface UsagePlace {
  readonly part: number;
  /** Characters to leave out at the end of the literal before its value, and at the beginning of the one after it. */
  readonly before: number;
  readonly after: number;
}

const QUOTE = '"';

/** Bytes of an event beside its messages: names, a few counts and blanks. A gateway could pad it with megabytes. */
const MAX_UNSEALED_BYTES = 32 * 1024;
/** Characters. A longer plain value has to be the same: an expression for each of its numbers would be too large. */
const MAX_VARYING = 1024;

/** Whether runs of digits in a plain value may be others: those of an escape may not. */
export const numbersMayDiffer = (value: string): boolean =>
  value.length <= MAX_VARYING && !value.includes('\\');

/** What some clients take for a line end beside CR and LF (U+0085, U+2028, U+2029), as UTF-8 in latin1. */
const OTHER_LINE_END = /\xc2\x85|\xe2\x80[\xa8\xa9]/;

/**
 * Plain values like this one: the same text with other numbers. A run of digits may be replaced by another
 * that begins with no zero; that keeps valid JSON valid, as long as no escape sequence is involved.
 */
function alike(value: string): RegExp {
  const literal = value.replace(/[.*+?^${}()|[\]\\]/g, '\\$&');
  if (!numbersMayDiffer(value)) return new RegExp(literal, 'y');
  // Runs that begin with a zero (fractions, ids) stay as they are.
  const numbers = /(?<![0-9])(?:0(?![0-9])|[1-9][0-9]*)/g;
  return new RegExp(literal.replace(numbers, '(?:0|[1-9][0-9]*)'), 'y');
}

/**
 * The parts of `data` where it has that layout: each message without its quotes, each plain value. Undefined
 * where it has not.
 */
export function matchLayout(layout: EventLayout, data: string): string[] | undefined {
  const { literals, plainValues } = layout;
  const count = plainValues.length;
  const parts: string[] = [];
  let position = 0;
  for (let k = 0; k < count; k++) {
    const literal = literals[k]!;
    if (!data.startsWith(literal, position)) return undefined;
    position += literal.length;
    const plainValue = plainValues[k];
    if (plainValue === undefined) {
      const end = data.indexOf(QUOTE, position);
      if (end < 0) return undefined;
      parts.push(data.slice(position, end));
      position = end + 1;
    } else {
      plainValue.lastIndex = position;
      if (!plainValue.test(data)) return undefined;
      parts.push(data.slice(position, plainValue.lastIndex));
      position = plainValue.lastIndex;
    }
  }
  const rest = literals[count]!;
  return data.length === position + rest.length && data.endsWith(rest) ? parts : undefined;
}

const strayLineEnd = () =>
  new PrivatemodeError('response_malformed', 'an event has line ends where nothing authenticates them');

/** What goes with the value of a member that is left out: its name, and a comma, before it or, for the first one, after it. */
function aroundMember(
  data: string,
  bodyStart: number,
  members: readonly JsonMember[],
  at: number,
): Omit<UsagePlace, 'part'> {
  const { start, end } = members[at]!;
  const previous = members[at - 1];
  if (previous !== undefined) return { before: start - data.indexOf(',', previous.end), after: 0 };
  const after = members.length === 1 ? 0 : data.indexOf(',', end) + 1 - end;
  return { before: start - bodyStart, after };
}

/**
 * Scans the data of an event (latin1 text of UTF-8 bytes), strictly. Throws what the JSON index throws, response_not_authentic
 * where a member that is not plain is no string, and response_malformed where a plain one is of a wrong kind or longer than 16 KiB.
 */
export function layoutOf(
  data: string,
  { plain, plainKinds }: Pick<StreamGrammar, 'plain' | 'plainKinds'>,
): EventLayout {
  const bytes = Buffer.from(data, 'latin1');
  const index = createJsonIndex();
  index.feed(bytes);
  const members = index.finish();
  const literals: string[] = [];
  const copied: string[] = [];
  const plainValues: (RegExp | undefined)[] = [];
  const names: string[] = [];
  let type: string | undefined;
  let usage: UsagePlace | undefined;
  let position = 0;
  // Strings of their own: a slice of `data` would keep all of it for as long as the stream lasts.
  const between = (start: number, end: number): string => bytes.toString('latin1', start, end);
  for (const [at, { name, kind, start, end }] of members.entries()) {
    const text = data.slice(start, end);
    const encrypted = !plain.has(name);
    if (encrypted && kind !== 'string') {
      throw new PrivatemodeError('response_not_authentic', 'a value of the event is not encrypted');
    }
    if (!encrypted && !(plainKinds[name]?.includes(kind) && text.length <= MAX_PLAIN_BYTES)) {
      throw new PrivatemodeError('response_malformed', 'a plain member of an event is not what it should be');
    }
    if (name === 'type' && kind === 'string' && !encrypted) type = between(start + 1, end - 1);
    // Plain strings (id, type) stay the same, or the next event gets a layout of its own.
    if (!encrypted && kind === 'string') continue;
    if (!encrypted && OTHER_LINE_END.test(text)) throw strayLineEnd();
    if (!encrypted && name === 'usage')
      usage = { part: names.length, ...aroundMember(data, index.bodyStart, members, at) };
    copied.push(between(position, start));
    literals.push(between(position, encrypted ? start + 1 : start));
    plainValues.push(encrypted ? undefined : alike(text));
    names.push(name);
    position = end;
  }
  copied.push(between(position, bytes.length));
  literals.push(between(position, bytes.length));
  const unsealed = literals.reduce((sum, literal) => sum + literal.length, 0);
  if (unsealed > MAX_UNSEALED_BYTES) {
    throw new PrivatemodeError('response_malformed', 'an event has more text than its messages need');
  }
  if (literals.some((literal) => OTHER_LINE_END.test(literal))) throw strayLineEnd();
  const numbered = names.map((name, part) => ({ name, part }));
  const order = encryptionOrder(numbered, plain).map(({ part }) => part);
  return { literals, copied, plainValues, names, order, type, usage };
}
