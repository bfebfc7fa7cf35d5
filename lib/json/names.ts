/** Which member names the service can address, and in which order the values of members are encrypted. */
import { PrivatemodeError } from '../errors.ts';

/** `position`: bytes from the start of the body. The message quotes nothing of the body. */
export const invalidJson = (position: number, words = 'unexpected byte'): PrivatemodeError =>
  new PrivatemodeError('invalid_json', `the body is not valid JSON: ${words} at offset ${position}`);

// The service finds members with a path library. To this library the names here mean something else
// (docs/protocol/inference.md 5.4).
const UNADDRESSABLE =
  /^$|[|\\]|^[{[:!]|^@(?:pretty|ugly|reverse|this|flatten|join|valid|keys|values|tostr|fromstr|group|dig)(?:$|:)/;

/**
 * Decodes a name: `raw` is the text between its quotes, valid UTF-8 with valid escapes. A lone surrogate
 * becomes U+FFFD, as the service decodes it, so two names that differ only there are one name.
 */
function decodeName(raw: Uint8Array): string {
  const text = Buffer.from(raw.buffer, raw.byteOffset, raw.byteLength).toString('utf8');
  return text.includes('\\') ? (JSON.parse(`"${text}"`) as string).toWellFormed() : text;
}

/** Most members of an object. Each costs a cipher context at once; no API has more than a hundred. */
const MAX_MEMBERS = 1000;
/**
 * Most bytes of a name as written. Decoding and comparing a longer name would hold up every other request.
 */
const MAX_NAME_BYTES = 4096;

/**
 * Decodes the names of one object. The returned function takes the bytes between the quotes of the next name,
 * and the position where it ends, and returns the decoded name. It throws unsupported_member_name,
 * duplicate_member, and invalid_json if there are too many names or one is too long.
 */
export function createMemberNames(): (raw: Uint8Array, position: number) => string {
  const taken = new Set<string>();
  return (raw, position) => {
    if (raw.length > MAX_NAME_BYTES) throw invalidJson(position, 'a name is too long');
    const name = decodeName(raw);
    if (UNADDRESSABLE.test(name)) {
      const message = `the service cannot address the name of the member before offset ${position}`;
      throw new PrivatemodeError('unsupported_member_name', message);
    }
    if (taken.has(name)) {
      throw new PrivatemodeError('duplicate_member', `the member before offset ${position} is repeated`);
    }
    if (taken.size === MAX_MEMBERS) throw invalidJson(position, 'too many members');
    taken.add(name);
    return name;
  };
}

const BEYOND_ASCII = /[^\0-\x7f]/;

/**
 * The name as the sort compares it: a backslash stands before each `.`, `?` and `*`, and each character is
 * one byte of the name's UTF-8.
 */
function sortKey(name: string): string {
  const escaped = name.replace(/[.?*]/g, '\\$&');
  return BEYOND_ASCII.test(escaped) ? Buffer.from(escaped, 'utf8').toString('latin1') : escaped;
}

/**
 * The items that are encrypted, in the order of their sequence numbers (docs/protocol/inference.md 5.2):
 * those whose name is not in `plain`, sorted by the bytes of the escaped name, not by UTF-16 units or a
 * locale. The input keeps its order.
 */
export function encryptionOrder<T extends { readonly name: string }>(
  items: Iterable<T>,
  plain: Pick<ReadonlySet<string>, 'has'>,
): T[] {
  const keyed: { readonly item: T; readonly key: string }[] = [];
  for (const item of items) if (!plain.has(item.name)) keyed.push({ item, key: sortKey(item.name) });
  keyed.sort((a, b) => (a.key < b.key ? -1 : Number(a.key > b.key)));
  return keyed.map(({ item }) => item);
}
