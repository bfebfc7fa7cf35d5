/**
 * What the admin listener shows about the requests: the metrics, and the traffic of the last minutes.
 */
import { type Counters, meanGapMs } from './counters.ts';
import type { createMetrics, RequestObservation } from './metrics.ts';
import { createTrafficLog } from './recent-traffic.ts';

/**
 * Starts to collect. The caller calls `observe` once per request, when the request is over. `events` returns
 * how many events of streams the running requests have sent; it is called once a second, and for each report.
 * Loads prom-client, which takes a tenth of a start, so it is for the admin listener only.
 */
export async function watchRequests({
  events,
  ...options
}: Parameters<typeof createMetrics>[0] & { readonly counters: Counters; readonly events: () => number }) {
  const metrics = (await import('./metrics.ts')).createMetrics(options);
  let ended = 0;
  const { clock, counters } = options;
  const traffic = createTrafficLog(
    { inFlight: () => counters.inFlight, events: () => ended + events() },
    clock,
  );
  return {
    metrics,
    traffic,
    observe(observation: RequestObservation): void {
      const { route, method, path, status, requestId, client, outcome, firstTokenMs, stats } = observation;
      const { startedAt, endedAt, model, usage, error } = stats;
      if (outcome === 'refused' && error !== undefined) traffic.refuse({ method, path, code: error.code });
      if (route === 'none') return; // refused before an endpoint was found: errors_total has its code
      metrics.observe(observation);
      ended += stats.events;
      const finished = {
        id: requestId,
        at: clock.now(),
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
      traffic.observe(finished, meanGapMs(stats));
    },
  };
}
