/** What the program counts while it works; read by tests, soak and the metrics endpoint. */
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
  };
}

export type Counters = ReturnType<typeof createCounters>;

export function count<K>(map: Map<K, number>, key: K): void {
  map.set(key, (map.get(key) ?? 0) + 1);
}
