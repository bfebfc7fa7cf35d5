/** Which member names the service can address, and in which order the values of members are encrypted. */
import { type ErrorCode, PrivatemodeError } from '../errors.ts';

/** What is wrong with a text of JSON, and where. The message quotes nothing of the text. */
export class JsonRefusal extends PrivatemodeError {
  /** Bytes from the start of the text. */
  readonly position: number;

  constructor(code: ErrorCode, message: string, position: number) {
    super(code, message);
    this.position = position;
  }
}

/** `position`: bytes from the start of the body. */
export const invalidJson = (position: number, words = 'unexpected byte'): JsonRefusal =>
  new JsonRefusal('invalid_json', `the body is not valid JSON: ${words} at offset ${position}`, position);

// The service finds members with a path library. To this library the names here mean something else
// (docs/protocol/inference.md 5.4).
const UNADDRESSABLE =
  /^$|[|\\]|^[{[:!]|^@(?:pretty|ugly|reverse|this|flatten|join|valid|keys|values|tostr|fromstr|group|dig)(?:$|:)/;

/** Most members of an object. Each of a request costs a cipher context; no API has more than a hundred. */
const MAX_MEMBERS = 1000;
/** Most bytes of a name as written. Decoding a longer name would hold up every other request. */
const MAX_NAME_BYTES = 4096;

export type TakeName = ReturnType<typeof createNames>;

/**
 * Makes what takes the names of one object, each as the text between its quotes and the position where it
 * ends, and returns them decoded. It throws duplicate_member, and invalid_json if a name is too long and
 * after 1,000 names. With `addressed`, it throws
 * unsupported_member_name for a name that the service cannot address. A lone surrogate becomes U+FFFD, as the
 * service decodes it, so two names that differ only there are one name.
 */
export function createNames(addressed: boolean) {
  const taken = new Set<string>();
  return (raw: Buffer, position: number): string => {
    if (raw.length > MAX_NAME_BYTES) throw invalidJson(position, 'a name is too long');
    const text = raw.toString('utf8');
    const name = text.includes('\\') ? (JSON.parse(`"${text}"`) as string).toWellFormed() : text;
    if (addressed && UNADDRESSABLE.test(name)) {
      const message = `the service cannot address the name of the member before offset ${position}`;
      throw new JsonRefusal('unsupported_member_name', message, position);
    }
    if (taken.has(name)) {
      const message = `the member before offset ${position} is repeated`;
      throw new JsonRefusal('duplicate_member', message, position);
    }
    if (taken.size === MAX_MEMBERS) throw invalidJson(position, 'too many members');
    taken.add(name);
    return name;
  };
}

/** Names that the sort compares as they are. */
const PLAIN = /^\w*$/;

/**
 * The name as the sort compares it: a backslash stands before each `.`, `?` and `*`, and each character is
 * one byte of the name's UTF-8.
 */
function sortKey(name: string): string {
  if (PLAIN.test(name)) return name;
  return Buffer.from(name.replace(/[.?*]/g, '\\$&'), 'utf8').toString('latin1');
}

/**
 * The items in the order of their sequence numbers (docs/protocol/inference.md 5.2): sorted by the bytes of
 * the escaped name, not by UTF-16 units or a locale. The input keeps its order.
 */
export function encryptionOrder<T extends { readonly name: string }>(items: readonly T[]): T[] {
  const keyed = items.map((item) => ({ item, key: sortKey(item.name) }));
  keyed.sort((a, b) => (a.key < b.key ? -1 : Number(a.key > b.key)));
  return keyed.map(({ item }) => item);
}
