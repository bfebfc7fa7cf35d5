/** The requests of one process on the admin listener: the metrics, and the traffic of the last minutes. */
import type { Counters } from './counters.ts';
import type { createMetrics, RequestObservation } from './metrics.ts';
import { createTrafficLog } from './traffic.ts';

/** The reply of a process about its requests: its metrics as prom-client joins them, its traffic, and its clients file. */
export type Collected = Awaited<ReturnType<Awaited<ReturnType<typeof watchRequests>>['collect']>> & {
  /** Its SHA-256; undefined without --clients. */
  readonly clientsFile: string | undefined;
};

/**
 * Starts to watch; `observe` is to be called once per request, when it is over. `chunks`: pieces of streams that the requests sent which
 * run now, asked for once a second. Loads prom-client, which takes a tenth of a start: only for the admin listener.
 */
export async function watchRequests({
  chunks,
  ...options
}: Parameters<typeof createMetrics>[0] & { readonly counters: Counters; readonly chunks: () => number }) {
  const metrics = (await import('./metrics.ts')).createMetrics(options);
  let ended = 0;
  const traffic = createTrafficLog({
    inFlight: () => options.counters.inFlight,
    chunks: () => ended + chunks(),
  });
  return {
    metrics,
    traffic,
    observe(observation: RequestObservation): void {
      const { route, method, path, status, requestId, client, outcome, firstTokenMs, stats } = observation;
      const { startedAt, firstChunkAt, endedAt, model, usage, error } = stats;
      if (outcome === 'refused' && error !== undefined) traffic.refuse({ method, path, code: error.code });
      if (route === 'none') return; // refused before an endpoint was found: errors_total has its code
      metrics.observe(observation);
      ended += stats.chunks;
      const gaps = stats.chunks - 1;
      const isPaced = firstTokenMs !== undefined && firstChunkAt !== undefined && gaps > 0;
      const finished = {
        id: requestId,
        at: Date.now(),
        ...(client === undefined ? {} : { client }),
        endpoint: route,
        model: model ?? null,
        status: status === 0 ? null : status,
        outcome,
        code: error?.code ?? null,
        durationMs: Math.round(endedAt - startedAt),
        firstTokenMs: firstTokenMs ?? null,
        tokensIn: usage?.prompt ?? null,
        tokensOut: usage?.completion ?? null,
        tokensCached: usage?.cached ?? null,
      };
      traffic.observe(finished, isPaced ? (endedAt - firstChunkAt) / gaps : undefined);
    },
    async collect() {
      return { metrics: await metrics.snapshot(), traffic: traffic.snapshot() };
    },
  };
}
