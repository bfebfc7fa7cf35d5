/** Which member names the service can address, and in which order the values of members are encrypted. */
import { BACKSLASH, invalidJson, refusal } from './tokens.ts';

// Names that the service's JSON path library would read as path syntax (docs/protocol/inference.md 5.4).
const UNADDRESSABLE =
  /^$|[|\\]|^[{[:!]|^@(?:pretty|ugly|reverse|this|flatten|join|valid|keys|values|tostr|fromstr|group|dig)(?:$|:)/;
const MAX_MEMBERS = 1000; // the most in an object; each costs a cipher context, and no API has a hundred
const MAX_NAME_BYTES = 4096; // the most bytes of a name as written; decoding more would delay other requests

/**
 * Decodes the name of a member, and adds it to `taken`, the names of its object. A lone surrogate becomes
 * U+FFFD, as in the service, so names that differ only in lone surrogates are equal. Throws duplicate_member,
 * invalid_json for a name of more than 4,096 bytes or an object of more than 1,000 members, and, with
 * `addressed`, unsupported_member_name if the service cannot address the name.
 */
export function takeName(taken: Set<string>, bytes: Buffer, start: number, end: number, addressed: boolean) {
  if (end - start > MAX_NAME_BYTES) throw invalidJson(end, 'a name is too long');
  const text = bytes.toString('utf8', start, end);
  const name = text.includes('\\') ? (JSON.parse(`"${text}"`) as string).toWellFormed() : text;
  if (addressed && UNADDRESSABLE.test(name)) {
    const message = `the service cannot address the name of the member before offset ${end}`;
    throw refusal('unsupported_member_name', message, end);
  }
  if (taken.has(name)) throw refusal('duplicate_member', `the member before offset ${end} is repeated`, end);
  if (taken.size === MAX_MEMBERS) throw invalidJson(end, 'too many members');
  taken.add(name);
  return name;
}

/** Whether a media URL or its object may have this name: `source`, `…_url`, or any name with an escape. */
export function mayNameUrl(bytes: Buffer, start: number, end: number): boolean {
  for (let i = start; i < end; i++) if (bytes[i] === BACKSLASH) return true;
  if (bytes[end - 1] === 0x6c) return bytes.toString('latin1', end - 4, end) === '_url';
  return end - start === 6 && bytes.toString('latin1', start, end) === 'source';
}

/** The sort key of a name: its bytes as characters, with a backslash before each `.`, `?` and `*`. */
const sortKey = (name: string): string =>
  /^\w*$/.test(name) ? name : Buffer.from(name.replace(/[.?*]/g, '\\$&'), 'utf8').toString('latin1');

/** The items by sequence number (docs/protocol/inference.md 5.2). Items of one name keep their order. */
export function encryptionOrder<T extends { readonly name: string }>(items: readonly T[]): T[] {
  const keyed = items.map((item) => ({ item, key: sortKey(item.name) }));
  keyed.sort((a, b) => (a.key < b.key ? -1 : Number(a.key > b.key)));
  return keyed.map(({ item }) => item);
}
