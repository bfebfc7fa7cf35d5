import type { ErrorCode, PrivatemodeError } from '../errors.ts';

/** The codes of responses that came and could not be decrypted. Any other code means that the response was cut off. */
export const UNDECRYPTABLE: ReadonlySet<string> = new Set<ErrorCode>([
  'response_not_authentic',
  'response_not_encrypted',
  'response_malformed',
  'response_too_large',
]);

/** The counters of the program; read by tests, soak and the metrics endpoint. */
export function createCounters() {
  return {
    requests: 0,
    responses: new Map<number, number>(),
    streamEvents: 0,
    inFlight: 0,
    /** Bytes of request bodies that are held, or that have room reserved. */
    bufferedBytes: 0,
    decryptFailures: new Map<string, number>(),
    truncatedStreams: 0,
    clientAborts: new Map<'before_headers' | 'before_first_token' | 'mid_stream', number>(),
    upstreamRetries: new Map<string, number>(),
    attestations: new Map<'accepted' | 'failed', number>(),
    receipts: { written: 0, lost: 0 },
    /** Requests that ended in an error of ours, by the name of the client, empty where it is not known, and by code. */
    errors: new Map<string, Map<ErrorCode, number>>(),
    /** Requests that no limit was held against, since the store of the limits was away. */
    uncounted: 0,
  };
}

export type Counters = ReturnType<typeof createCounters>;

export function count<K>(map: Map<K, number>, key: K): void {
  map.set(key, (map.get(key) ?? 0) + 1);
}

/** Counts an error for `client`; undefined: it is not known. */
export function countError({ errors }: Counters, client: string | undefined, code: ErrorCode): void {
  const name = client ?? '';
  const codes = errors.get(name) ?? new Map<ErrorCode, number>();
  errors.set(name, codes);
  count(codes, code);
}

/** The counts of one exchange before it begins; times by performance.now(). */
export class RequestStats {
  readonly startedAt: number = performance.now();
  uploadedAt: number | undefined;
  sentAt: number | undefined;
  firstChunkAt: number | undefined;
  endedAt: number = this.startedAt;
  chunks = 0;
  /** Of a stream. */
  events = 0;
  model: string | undefined;
  /** Tokens, as the service says it counted them. */
  usage: { readonly [of in 'prompt' | 'completion' | 'cached']: number | undefined } | undefined;
  /** The model reported an error of its own inside a stream. */
  modelError = false;
  error: PrivatemodeError | undefined;
  readonly bytes = { fromClient: 0, toRemote: 0, fromRemote: 0, toClient: 0 };
}
