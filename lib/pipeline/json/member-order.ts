/** Which members stay plain, and in which order the others are numbered (inference.md 5.1 and 5.2). */

/** The members that are not encrypted, per list of inference.md 5.1; names match exactly. */
export const PLAIN_MEMBERS = {
  /** chat, completions: request */
  C: new Set(['model', 'stream_options', 'max_tokens', 'max_completion_tokens', 'n', 'stream']),
  /** messages: request */
  M: new Set(['model', 'stream']),
  /** embeddings: request */
  E: new Set(['model']),
  /** transcriptions: form fields of the request */
  T: new Set(['model', 'stream', 'stream_include_usage', 'stream_continuous_usage_stats']),
  /** chat, completions, embeddings: response */
  R: new Set(['id', 'usage']),
  /** messages: response */
  MR: new Set(['id', 'type', 'usage']),
  /** transcriptions: response */
  TR: new Set(['duration', 'usage']),
  /** unstructured: response */
  NONE: new Set<string>(),
} as const satisfies Record<string, ReadonlySet<string>>;

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
