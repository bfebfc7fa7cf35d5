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

/** The name as the sort sees it: `.`, `?` and `*` escaped, nothing else (5.2 step 2), as UTF-8. */
const sortKey = (name: string): Buffer => Buffer.from(name.replace(/[.?*]/g, '\\$&'), 'utf8');

/** By the bytes of the escaped names: not UTF-16 units, not a locale. */
export function compareNames(a: string, b: string): number {
  return Buffer.compare(sortKey(a), sortKey(b));
}

/**
 * The items that are encrypted, in the order of their sequence numbers (5.2): those whose name is not in
 * `plain`, sorted by the bytes of the escaped name. The input keeps its order.
 */
export function encryptionOrder<T extends { readonly name: string }>(
  items: Iterable<T>,
  plain: ReadonlySet<string>,
): T[] {
  const keyed: { readonly item: T; readonly key: Buffer }[] = [];
  for (const item of items) if (!plain.has(item.name)) keyed.push({ item, key: sortKey(item.name) });
  keyed.sort((a, b) => Buffer.compare(a.key, b.key));
  return keyed.map(({ item }) => item);
}
