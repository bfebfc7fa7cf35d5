/** What the program counts: the counters since its start, and the stats of one request. */
import type { ErrorCode, PrivatemodeError } from '../errors.ts';

/**
 * Codes which say that a response came but could not be decrypted. Any other code means that the response was
 * cut off.
 */
export const UNDECRYPTABLE: ReadonlySet<string> = new Set<ErrorCode>([
  'response_not_authentic',
  'response_not_encrypted',
  'response_malformed',
  'response_too_large',
]);

/** Plain numbers, which the metrics read at each scrape. */
export function createCounters() {
  return {
    inFlight: 0,
    /** Bytes of request bodies that the proxy holds, or for which it has reserved memory. */
    bufferedBytes: 0,
    /** Of the bodies of requests that are over. */
    bytes: { fromClient: 0, toRemote: 0, fromRemote: 0, toClient: 0 },
    decryptFailures: new Map<string, number>(),
    truncatedStreams: 0,
    clientAborts: new Map<'before_headers' | 'before_first_token' | 'mid_stream', number>(),
    upstreamRetries: new Map<string, number>(),
    /** `unavailable`: collateral could not be fetched, so that nothing was judged. */
    attestations: new Map<'accepted' | 'failed' | 'unavailable', number>(),
    receipts: { written: 0, lost: 0 },
    /** Requests that ended in an error of the proxy, by client name (empty: unknown), line feed and code. */
    errors: new Map<`${string}\n${ErrorCode}`, number>(),
    /** Requests that were admitted without checking their limits, since their store was away. */
    uncounted: 0,
  };
}

export type Counters = ReturnType<typeof createCounters>;

export function count<K>(map: Map<K, number>, key: K, by = 1): void {
  map.set(key, (map.get(key) ?? 0) + by);
}

/**
 * Counts and times of one exchange; a new object has the values before it begins. Times are in ms by
 * performance.now().
 */
export class RequestStats {
  readonly startedAt: number = performance.now();
  /** The last byte of the body had arrived. */
  uploadedAt: number | undefined;
  /** All of the encrypted body had left. */
  sentAt: number | undefined;
  firstChunkAt: number | undefined;
  endedAt: number = this.startedAt;
  /** Events of a stream. Set when it is over; 0 for a response that is no stream. */
  events = 0;
  model: string | undefined;
  /** Tokens, as the service says that it counted them. */
  usage: { readonly [of in 'prompt' | 'completion' | 'cached']: number | undefined } | undefined;
  /** The model reported an error of its own inside a stream. */
  modelError = false;
  error: PrivatemodeError | undefined;
  readonly bytes = { fromClient: 0, toRemote: 0, fromRemote: 0, toClient: 0 };
}
