/**
 * The server's endpoints as one table: the kind of body, the members that stay plain in either direction
 * (docs/protocol/inference.md 5.1), and the rules that apply (5.6, 7, 8).
 */

export type Endpoint = (typeof ENDPOINTS)[number];

const set = (...names: string[]): ReadonlySet<string> => new Set(names);

const C = set('model', 'stream_options', 'max_tokens', 'max_completion_tokens', 'n', 'stream');
const M = set('model', 'stream');
const E = set('model');
const T = set('model', 'stream', 'stream_include_usage', 'stream_continuous_usage_stats');
const R = set('id', 'usage');
const MR = set('id', 'type', 'usage');
const TR = set('duration', 'usage');
const NOTHING = set();

const DONE = 'data: [DONE]\n\n';
const MESSAGE_STOP = 'event: message_stop\ndata: {"type":"message_stop"}\n\n';

const ROWS = [
  ['chat', /^\/v1\/chat\/completions$/, 'json', C, R, DONE],
  ['completions', /^\/v1\/completions$/, 'json', C, R, DONE],
  ['messages', /^\/v1\/messages$/, 'json', M, MR, MESSAGE_STOP],
  ['embeddings', /^\/v1\/embeddings$/, 'json', E, R, ''],
  ['transcriptions', /^\/v1\/audio\/transcriptions$/, 'form', T, TR, DONE],
  ['unstructured', /^\/unstructured\//, 'raw', NOTHING, NOTHING, ''],
  ['models', /^\/v1\/models$/, 'none', NOTHING, NOTHING, ''],
  ['model', /^\/v1\/models\/[^?]+$/, 'none', NOTHING, NOTHING, ''],
] as const;

export const ENDPOINTS = ROWS.map(([name, path, body, plainRequest, plainResponse, terminal]) => ({
  name,
  path,
  /** How the request body is protected; `none`: no body, and nothing is encrypted in either direction. */
  body,
  plainRequest,
  plainResponse,
  /** The event that ends a stream, as on the wire; empty if the endpoint has no streams. */
  terminal,
  method: body === 'none' ? 'GET' : 'POST',
  /** Whether a cache_salt is required, and a shard key allowed. */
  salted: ['chat', 'completions', 'messages'].includes(name),
  /** Whether the certificate-status policy is checked. */
  policyChecked: body === 'json' || body === 'form',
}));

/** The endpoint of a request target (path and query), or undefined. */
export const endpointOf = (target: string): Endpoint | undefined =>
  ENDPOINTS.find(({ path }) => path.test(target.split('?', 1)[0]!));
