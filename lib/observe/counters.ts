/** What the program counts: the counters since its start, and the stats of one request. */
import type { ErrorCode, PrivatemodeError } from '../errors.ts';

/** Codes of errors for responses that arrived but could not be decrypted. Other codes mean a cut response. */
export const UNDECRYPTABLE: ReadonlySet<string> = new Set<ErrorCode>([
  'response_not_authentic',
  'response_not_encrypted',
  'response_malformed',
  'response_too_large',
]);

/** Creates the counters: plain numbers, which the metrics read at each scrape. */
export function createCounters() {
  return {
    inFlight: 0,
    /** How many bytes of request bodies the proxy holds, or has reserved memory for. */
    bufferedBytes: 0,
    /** Bytes of the bodies in exchanges that are over. */
    bytes: { fromClient: 0, toRemote: 0, fromRemote: 0, toClient: 0 },
    decryptFailures: new Map<string, number>(),
    truncatedStreams: 0,
    clientAborts: new Map<'before_headers' | 'before_first_token' | 'mid_stream', number>(),
    upstreamRetries: new Map<string, number>(),
    /** `unavailable`: collateral could not be fetched, and so no evidence was judged. */
    attestations: new Map<'accepted' | 'failed' | 'unavailable', number>(),
    receipts: { lost: 0 },
    /** How many requests ended in our own errors. Key: client name (empty if unknown), line feed, code. */
    errors: new Map<`${string}\n${ErrorCode}`, number>(),
    /** How many requests were admitted with limits unchecked, because the store of limits was unavailable. */
    uncounted: 0,
  };
}

export type Counters = ReturnType<typeof createCounters>;

export function count<K>(map: Map<K, number>, key: K, by = 1): void {
  map.set(key, (map.get(key) ?? 0) + by);
}

/** Counts and times (ms of performance.now()) of one exchange. The exchange begins with this object. */
export class RequestStats {
  readonly startedAt: number = performance.now();
  /** When the last byte of the request body had arrived. */
  uploadedAt: number | undefined;
  /** When the whole encrypted request body had been sent. */
  sentAt: number | undefined;
  firstChunkAt: number | undefined;
  endedAt: number = this.startedAt;
  /** Events of the response stream, set when the stream is over; 0 if the response is no stream. */
  events = 0;
  model: string | undefined;
  /** Tokens as the service has counted them. */
  usage: { readonly [of in 'prompt' | 'completion' | 'cached']: number | undefined } | undefined;
  /** Whether the model reported an error of its own inside the stream. */
  modelError = false;
  error: PrivatemodeError | undefined;
  readonly bytes = { fromClient: 0, toRemote: 0, fromRemote: 0, toClient: 0 };
}
