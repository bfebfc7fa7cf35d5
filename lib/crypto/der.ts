/**
 * A strict reader for DER (ITU-T X.690): definite lengths in their shortest form, single-byte tags, no bytes
 * left over where none belong, bounded depth. It returns views into the input and copies nothing. Every
 * function throws PrivatemodeError('evidence_malformed') and nothing else.
 */
import { PrivatemodeError } from '../errors.ts';

/** Universal tags as they appear in the identifier octet, SEQUENCE and SET with their constructed bit. */
export const TAG = {
  boolean: 0x01,
  integer: 0x02,
  bitString: 0x03,
  octetString: 0x04,
  null: 0x05,
  oid: 0x06,
  enumerated: 0x0a,
  utf8String: 0x0c,
  printableString: 0x13,
  teletexString: 0x14,
  ia5String: 0x16,
  utcTime: 0x17,
  generalizedTime: 0x18,
  sequence: 0x30,
  set: 0x31,
} as const;

/** Context-specific tag number `n`: constructed (`explicit`) or primitive. */
export const contextTag = (n: number, constructed: boolean): number => (constructed ? 0xa0 : 0x80) | n;

export type Der = Readonly<ReturnType<typeof readElement>>;

const MAX_DEPTH = 24;

/** The error, with this message, for evidence that cannot be read. */
export const malformed = (message: string): PrivatemodeError =>
  new PrivatemodeError('evidence_malformed', message);

/** `depth` is 0 for the outermost element; `full` is the element with its header. */
function readElement(bytes: Uint8Array, start: number, depth: number) {
  if (depth > MAX_DEPTH) throw malformed('DER is nested too deeply');
  const tag = bytes[start];
  const first = bytes[start + 1];
  if (tag === undefined || first === undefined) throw malformed('DER ends inside an element header');
  if ((tag & 0x1f) === 0x1f) throw malformed('DER uses a multi-byte tag');
  let length = first;
  let contentStart = start + 2;
  if (first >= 0x80) {
    const lengthBytes = first & 0x7f;
    if (lengthBytes === 0) throw malformed('DER uses an indefinite length');
    if (lengthBytes > 4) throw malformed('DER uses an oversized length');
    if (contentStart + lengthBytes > bytes.length) throw malformed('DER ends inside a length');
    length = 0;
    for (let i = 0; i < lengthBytes; i++) length = length * 256 + (bytes[contentStart++] ?? 0);
    const least = lengthBytes === 1 ? 0x80 : 256 ** (lengthBytes - 1);
    if (length < least) throw malformed('DER uses a length that is not in its shortest form');
  }
  const end = contentStart + length;
  if (end > bytes.length) throw malformed('DER ends inside an element');
  return { tag, full: bytes.subarray(start, end), content: bytes.subarray(contentStart, end), depth };
}

/** The one element that the bytes consist of; trailing bytes are refused. */
export function parseDer(bytes: Uint8Array, tag?: number): Der {
  const element = readElement(bytes, 0, 0);
  if (element.full.length !== bytes.length) throw malformed('bytes follow the DER element');
  return expectTag(element, tag);
}

/** Returns the element if it is there and has this tag (any tag, if none is given); throws otherwise. */
export function expectTag(element: Der | undefined, tag = element?.tag): Der {
  if (element === undefined) throw malformed('a DER element is missing');
  if (element.tag === tag) return element;
  throw malformed(`DER tag 0x${element.tag.toString(16)} where 0x${tag?.toString(16)} belongs`);
}

/** The elements inside a constructed element, in order. */
export function children(element: Der): Der[] {
  if ((element.tag & 0x20) === 0) throw malformed('a primitive DER element was opened');
  return [...new DerCursor(element, element.tag).rest()];
}

/** The one element inside an EXPLICIT wrapper. */
export function onlyChild(element: Der): Der {
  const [child, ...rest] = children(element);
  if (child === undefined || rest.length > 0) throw malformed('not exactly one DER element');
  return child;
}

/** Reads a SEQUENCE with `read`, which must take all of its elements. */
export function readSequence<T>(element: Der, read: (cursor: DerCursor) => T): T {
  const cursor = new DerCursor(element);
  const value = read(cursor);
  cursor.end();
  return value;
}

/** Reads the elements of a SEQUENCE one after the other, some of them optional. */
export class DerCursor {
  readonly #container: Der;
  #offset = 0;

  constructor(element: Der, tag: number = TAG.sequence) {
    this.#container = expectTag(element, tag);
  }

  #peek(): Der | undefined {
    const { content, depth } = this.#container;
    return this.#offset < content.length ? readElement(content, this.#offset, depth + 1) : undefined;
  }

  /** The next element, which must have this tag (any, if none is given). */
  take(tag?: number): Der {
    const element = expectTag(this.#peek(), tag);
    this.#offset += element.full.length;
    return element;
  }

  /** Reads the next element with `read` if it has this tag; else consumes nothing and returns undefined. */
  optional<T>(tag: number, read: (element: Der) => T): T | undefined {
    return this.#peek()?.tag === tag ? read(this.take()) : undefined;
  }

  /** The remaining elements, each of which must have this tag (any, if none is given). */
  *rest(tag?: number): Generator<Der> {
    while (this.#peek() !== undefined) yield this.take(tag);
  }

  /** Throws if the caller has left elements. */
  end(): void {
    if (this.#peek() !== undefined) throw malformed('unexpected DER elements follow');
  }
}
