/**
 * The server's endpoints as one table: the kind of body, the members that stay plain in either direction
 * (docs/protocol/inference.md 5.1), and the rules that apply (5.6, 7, 8).
 */

export type EndpointName =
  | 'chat'
  | 'completions'
  | 'embeddings'
  | 'messages'
  | 'transcriptions'
  | 'unstructured'
  | 'models'
  | 'model';

export interface Endpoint {
  readonly name: EndpointName;
  readonly method: 'GET' | 'POST';
  readonly path: RegExp;
  /**
   * How the request body is protected; `none`: there is no body, and nothing is encrypted in either
   * direction.
   */
  readonly body: 'json' | 'form' | 'raw' | 'none';
  readonly plainRequest: ReadonlySet<string>;
  readonly plainResponse: ReadonlySet<string>;
  /** Whether a cache_salt is required, and a shard key allowed. */
  readonly salted: boolean;
  /** Whether the certificate-status policy is checked. */
  readonly policyChecked: boolean;
  /** The event that ends a stream, as on the wire; empty if the endpoint has no streams. */
  readonly terminal: string;
}

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

const row = (
  name: EndpointName,
  path: RegExp,
  body: Endpoint['body'],
  plain: readonly [ReadonlySet<string>, ReadonlySet<string>],
  rules: { salted: boolean; policyChecked: boolean; terminal: string },
): Endpoint => ({
  name,
  method: body === 'none' ? 'GET' : 'POST',
  path,
  body,
  plainRequest: plain[0],
  plainResponse: plain[1],
  ...rules,
});

const SALTED = { salted: true, policyChecked: true };
const UNSALTED = { salted: false, policyChecked: true };
const UNCHECKED = { salted: false, policyChecked: false, terminal: '' };

export const ENDPOINTS: readonly Endpoint[] = [
  row('chat', /^\/v1\/chat\/completions$/, 'json', [C, R], { ...SALTED, terminal: DONE }),
  row('completions', /^\/v1\/completions$/, 'json', [C, R], { ...SALTED, terminal: DONE }),
  row('messages', /^\/v1\/messages$/, 'json', [M, MR], { ...SALTED, terminal: MESSAGE_STOP }),
  row('embeddings', /^\/v1\/embeddings$/, 'json', [E, R], { ...UNSALTED, terminal: '' }),
  row('transcriptions', /^\/v1\/audio\/transcriptions$/, 'form', [T, TR], { ...UNSALTED, terminal: DONE }),
  row('unstructured', /^\/unstructured\//, 'raw', [NOTHING, NOTHING], UNCHECKED),
  row('models', /^\/v1\/models$/, 'none', [NOTHING, NOTHING], UNCHECKED),
  row('model', /^\/v1\/models\/[^?]+$/, 'none', [NOTHING, NOTHING], UNCHECKED),
];

/** The endpoint of a request target (path and query), or undefined. */
export function endpointOf(target: string): Endpoint | undefined {
  const path = target.split('?', 1)[0]!;
  return ENDPOINTS.find((endpoint) => endpoint.path.test(path));
}
