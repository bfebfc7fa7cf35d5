/**
 * The members that are not encrypted, per list of the protocol. Written out, not read from lib: a test that
 * seals or opens with lib's own list cannot notice a name too many in it.
 */
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
