/**
 * Reads the values of a request while their bytes are scanned. What the translation looks at becomes objects,
 * lists and short strings; every other value becomes a Span, the place where it stands. So long texts,
 * schemas and numbers leave as the bytes that came, and no large value is parsed in one go.
 */
import { PrivatemodeError } from '../errors.ts';
import type { ByteChain } from '../pipeline/json/byte-chain.ts';
import type { JsonKind, JsonVisitor } from '../pipeline/json/json-index.ts';

/** A value of the request that is not looked into, and where it stands in the body. */
export class Span {
  readonly kind: JsonKind;
  readonly start: number;
  readonly end: number;
  constructor(kind: JsonKind, start: number, end: number) {
    this.kind = kind;
    this.start = start;
    this.end = end;
  }
}

/** Bytes of one string, as it is written in the body. */
const MOST_STRING = 8 * 1024 * 1024;
/** Bytes of an item of `input`, or of another member, without its string values. */
const MOST_STRUCTURE = 1024 * 1024;
/** Values of any kind in such an item or member. */
const MOST_VALUES = 100_000;
/** Items of `input`. */
const MOST_ITEMS = 100_000;
/**
 * Bytes of a string that is decoded; a longer one becomes a Span. Names and words are shorter, even if each
 * of their bytes is escaped.
 */
const SHORT = 2048;

/**
 * Names of members whose objects and lists are read, within objects that are read. Those of any other member
 * are passed on or left out.
 */
const LOOKED_INTO: ReadonlySet<string> = new Set(['content', 'output', 'tools', 'format']);

const LITERALS: ReadonlyMap<JsonKind, unknown> = new Map<JsonKind, unknown>([
  ['true', true],
  ['false', false],
  ['null', null],
]);

/** `what` completes the sentence "… has". */
export const tooLarge = (param: string, what: string) =>
  new PrivatemodeError('body_too_large', `${param} has ${what}`, {
    remedy: 'Send smaller texts and images, and more items of less each.',
    api: { param, code: 'invalid_value' },
  });

/** A string of the request, decoded. */
export function decoded(chain: ByteChain, start: number, end: number): string {
  const text = chain.bytes(start + 1, end - 1).toString('utf8');
  return text.includes('\\') ? (JSON.parse(`"${text}"`) as string) : text;
}

/**
 * An object of the request, which inherits no names. V8 makes objects of Object.create(null) hash tables from
 * the start, but not this one.
 */
class Members {
  [name: string]: unknown;
}
Object.setPrototypeOf(Members.prototype, null);
Reflect.deleteProperty(Members.prototype, 'constructor');

/** An object or a list that is being read, and the name of the member that comes next. */
interface Frame {
  readonly into: unknown[] | Members;
  name: string;
}

interface ReaderOptions {
  readonly member: string;
  /** Added to the positions that the visitor gets, to make them positions in the chain. Default 0. */
  readonly offset?: number;
  /** Gets the value when it is complete; with `items`, each element of the list. */
  readonly take: (value: unknown) => void;
  /** Whether a list is taken element by element, each with the limits of a member. */
  readonly items?: boolean;
  /** Whether an object or a list is read; else it becomes a Span. */
  readonly reads: boolean;
}

/**
 * Makes a visitor that reads the value of a member. The visitor throws body_too_large, and names the member
 * or its item, if that has a string of more than 8 MiB, more than 1 MiB beside its strings, or more than
 * 100,000 values; also for a list of more than 100,000 items. If a name is repeated in one object, the last
 * member counts.
 */
export function createValueReader(
  chain: ByteChain,
  { member, offset = 0, take, items = false, reads }: ReaderOptions,
): JsonVisitor {
  const frames: Frame[] = [];
  let inItems = false; // in the list whose elements are taken one by one
  let item = 0;
  let skipped = 0; // open objects and lists that are not looked into
  let skippedFrom = 0;
  let skippedKind: JsonKind = 'object';
  let valueFrom = 0; // of the string, number or literal that is being read
  let scalarKind: JsonKind = 'null';
  // For the item that is being read, or for the whole value:
  let from = 0;
  let values = 0;
  let stringBytes = 0;

  const place = (): string => (inItems ? `${member}[${item}]` : member);
  const demandSmall = (at: number): void => {
    if (values > MOST_VALUES) throw tooLarge(place(), `more than ${MOST_VALUES} values`);
    if (at - from - stringBytes > MOST_STRUCTURE) {
      throw tooLarge(place(), `more than ${MOST_STRUCTURE} bytes beside its strings`);
    }
  };
  const began = (at: number): void => {
    if (frames.length === 0 && skipped === 0) {
      from = at;
      values = 0;
      stringBytes = 0;
    }
    values += 1;
    demandSmall(at);
  };
  const ended = (value: unknown, end: number): void => {
    demandSmall(end);
    const frame = frames.at(-1);
    if (frame === undefined) {
      take(value);
      item += 1;
      if (inItems && item > MOST_ITEMS) throw tooLarge(member, `more than ${MOST_ITEMS} items`);
    } else if (Array.isArray(frame.into)) frame.into.push(value);
    else frame.into[frame.name] = value;
  };

  return {
    member,
    opened(isObject, start) {
      if (items && !isObject && frames.length === 0 && skipped === 0 && !inItems) {
        inItems = true;
        return;
      }
      began(start);
      const frame = frames.at(-1);
      const isRead = frame === undefined ? reads : Array.isArray(frame.into) || LOOKED_INTO.has(frame.name);
      if (skipped > 0) skipped += 1;
      else if (isRead) frames.push({ into: isObject ? new Members() : [], name: '' });
      else {
        skipped = 1;
        skippedFrom = start;
        skippedKind = isObject ? 'object' : 'array';
      }
    },
    closed(_empty, end) {
      if (skipped > 1) skipped -= 1;
      else if (skipped === 1) {
        skipped = 0;
        ended(new Span(skippedKind, offset + skippedFrom, offset + end), end);
      } else {
        const frame = frames.pop();
        if (frame !== undefined) ended(frame.into, end);
      }
    },
    scalarBegan(kind, start) {
      began(start);
      valueFrom = start;
      scalarKind = kind;
    },
    scalarEnded(end) {
      // demandSmall sees its size when the next value begins, or when the skipped value ends.
      if (skipped > 0) return;
      const span = () => new Span('number', offset + valueFrom, offset + end);
      ended(scalarKind === 'number' ? span() : LITERALS.get(scalarKind), end);
    },
    stringBegan(isKey, start) {
      if (!isKey) began(start);
      valueFrom = start;
      return false;
    },
    stringBytes: () => false,
    escaped: () => false,
    stringEnded(isKey, end) {
      const length = end - valueFrom - 2;
      if (isKey) {
        demandSmall(end);
        const frame = frames.at(-1);
        if (skipped > 0 || frame === undefined) return;
        frame.name = length > SHORT ? '' : decoded(chain, offset + valueFrom, offset + end);
        return;
      }
      if (length > MOST_STRING) throw tooLarge(place(), `a string of more than ${MOST_STRING} bytes`);
      stringBytes += length;
      if (skipped > 0) return;
      const [start, until] = [offset + valueFrom, offset + end];
      ended(length > SHORT ? new Span('string', start, until) : decoded(chain, start, until), end);
    },
  };
}
