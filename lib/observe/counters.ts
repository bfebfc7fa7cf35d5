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

/** The counters of the program. Tests, the soak and the metrics endpoint read them. */
export function createCounters() {
  return {
    requests: 0,
    responses: new Map<number, number>(),
    streamEvents: 0,
    inFlight: 0,
    /** Bytes of request bodies that the proxy holds, or for which it has reserved memory. */
    bufferedBytes: 0,
    decryptFailures: new Map<string, number>(),
    truncatedStreams: 0,
    clientAborts: new Map<'before_headers' | 'before_first_token' | 'mid_stream', number>(),
    upstreamRetries: new Map<string, number>(),
    /** `unavailable`: collateral could not be fetched, so that nothing was judged. */
    attestations: new Map<'accepted' | 'failed' | 'unavailable', number>(),
    receipts: { written: 0, lost: 0 },
    /**
     * Requests that ended in an error of the proxy, by client name and by code. The name is empty if the
     * client is not known.
     */
    errors: new Map<string, Map<ErrorCode, number>>(),
    /**
     * Requests that the proxy admitted without checking their limits, since the store of the limits was away.
     */
    uncounted: 0,
  };
}

export type Counters = ReturnType<typeof createCounters>;

export function count<K>(map: Map<K, number>, key: K): void {
  map.set(key, (map.get(key) ?? 0) + 1);
}

/** Counts an error for `client`; undefined: the client is not known. */
export function countError({ errors }: Counters, client: string | undefined, code: ErrorCode): void {
  const name = client ?? '';
  const codes = errors.get(name) ?? new Map<ErrorCode, number>();
  errors.set(name, codes);
  count(codes, code);
}

/** Mean ms between the events of a stream that is over; undefined if it had fewer than two. */
export const meanGapMs = ({ firstChunkAt, endedAt, events }: RequestStats): number | undefined =>
  firstChunkAt === undefined || events < 2 ? undefined : (endedAt - firstChunkAt) / (events - 1);

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
