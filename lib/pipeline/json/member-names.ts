/** Names of top-level members: how they are decoded, which the service can address, and how they are sorted. */
import { PrivatemodeError } from '../../errors.ts';
import { invalidJson } from './json-text.ts';

// The service finds members with a path library; these prefixes mean something else to it (inference.md 5.4).
const UNADDRESSABLE =
  /^$|[|\\]|^[{[:!]|^@(?:pretty|ugly|reverse|this|flatten|join|valid|keys|values|tostr|fromstr|group|dig)(?:$|:)/;

/** Whether the service can find a member of that (decoded) name (inference.md 5.4). */
const isAddressable = (name: string): boolean => !UNADDRESSABLE.test(name);

/**
 * The name between its quotes, valid UTF-8 and with valid escapes, decoded. A lone surrogate becomes U+FFFD,
 * as the service decodes it: two names that differ only there are one name.
 */
function decodeMemberName(raw: Uint8Array): string {
  const text = Buffer.from(raw.buffer, raw.byteOffset, raw.byteLength).toString('utf8');
  return text.includes('\\') ? (JSON.parse(`"${text}"`) as string).toWellFormed() : text;
}

/** Each member costs a cipher context at once, so their number is limited; no API has more than a hundred. */
export const MAX_JSON_MEMBERS = 1000;

/** Bytes of a name as written. Longer ones would be decoded and compared as one string while everybody waits. */
const MAX_NAME_BYTES = 4096;

export interface MemberNames {
  /**
   * The next name, decoded, of which `raw` is what stands between its quotes and `position` where it ends. Throws
   * unsupported_member_name, duplicate_member, and invalid_json where there are too many.
   */
  take(raw: Uint8Array, position: number): string;
}

/** The names of one object. */
export function createMemberNames(): MemberNames {
  const taken = new Set<string>();
  return {
    take(raw, position) {
      if (raw.length > MAX_NAME_BYTES) throw invalidJson(position, 'a name is too long');
      const name = decodeMemberName(raw);
      if (!isAddressable(name)) {
        throw new PrivatemodeError(
          'unsupported_member_name',
          `the service cannot address the name of the member before offset ${position}`,
        );
      }
      if (taken.has(name)) {
        throw new PrivatemodeError('duplicate_member', `the member before offset ${position} is repeated`);
      }
      if (taken.size === MAX_JSON_MEMBERS) throw invalidJson(position, 'too many members');
      taken.add(name);
      return name;
    },
  };
}

const BEYOND_ASCII = /[^\0-\x7f]/;

/** The name as the sort sees it: `.`, `?` and `*` escaped, nothing else (5.2 step 2); each character a byte of its UTF-8. */
function sortKey(name: string): string {
  const escaped = name.replace(/[.?*]/g, '\\$&');
  return BEYOND_ASCII.test(escaped) ? Buffer.from(escaped, 'utf8').toString('latin1') : escaped;
}

const compare = (a: string, b: string): number => (a < b ? -1 : a > b ? 1 : 0);

/** By the bytes of the escaped names: not UTF-16 units, not a locale. */
export const compareNames = (a: string, b: string): number => compare(sortKey(a), sortKey(b));

/**
 * The items that are encrypted, in the order of their sequence numbers (5.2): those whose name is not in
 * `plain`, sorted by the bytes of the escaped name. The input keeps its order.
 */
export function encryptionOrder<T extends { readonly name: string }>(
  items: Iterable<T>,
  plain: ReadonlySet<string>,
): T[] {
  const keyed: { readonly item: T; readonly key: string }[] = [];
  for (const item of items) if (!plain.has(item.name)) keyed.push({ item, key: sortKey(item.name) });
  keyed.sort((a, b) => compare(a.key, b.key));
  return keyed.map(({ item }) => item);
}
