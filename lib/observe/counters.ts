/** What the program counts while it works; read by tests, soak and the metrics endpoint. */
export interface Counters {
  requests: number;
  responses: Map<number, number>;
  streamEvents: number;
  inFlight: number;
  /** Bytes of request bodies that are held, or that have room reserved. */
  bufferedBytes: number;
  decryptFailures: Map<string, number>;
  truncatedStreams: number;
  clientAborts: Map<'before_headers' | 'before_first_token' | 'mid_stream', number>;
  upstreamRetries: Map<string, number>;
  attestations: Map<'accepted' | 'failed', number>;
}

export function createCounters(): Counters {
  return {
    requests: 0,
    responses: new Map(),
    streamEvents: 0,
    inFlight: 0,
    bufferedBytes: 0,
    decryptFailures: new Map(),
    truncatedStreams: 0,
    clientAborts: new Map(),
    upstreamRetries: new Map(),
    attestations: new Map(),
  };
}

export function count<K>(map: Map<K, number>, key: K): void {
  map.set(key, (map.get(key) ?? 0) + 1);
}
