/**
 * What the admin listener shows about the requests: the metrics, and the traffic of the last minutes.
 */
import type { Clock } from '../clock.ts';
import type { createMetrics } from './metrics.ts';
import { createTrafficLog } from './recent-traffic.ts';
import type { Finished } from './status-report.ts';

/**
 * Starts to collect. The caller calls `observe` once per request, when the request is over. `events` returns
 * how many events of streams the running requests have sent; it is called once a second, and for each report.
 * Loads prom-client, which takes a tenth of a start, so it is for the admin listener only.
 */
export async function watchRequests({
  events,
  ...options
}: Parameters<typeof createMetrics>[0] & { readonly clock: Clock; readonly events: () => number }) {
  const metrics = (await import('./metrics.ts')).createMetrics(options);
  const { clock, counters } = options;
  let ended = 0;
  const inFlight = (): number => counters.inFlight;
  const traffic = createTrafficLog({ inFlight, events: () => ended + events() }, clock);
  return {
    metrics,
    traffic,
    observe(request: Finished): void {
      const { method, path, outcome, code, endpoint } = request;
      if (outcome === 'refused' && code !== null) traffic.refuse({ method, path, code });
      if (endpoint === 'none') return; // refused before an endpoint was found: errors_total has its code
      ended += request.events;
      metrics.observe(request);
      traffic.observe(request);
    },
  };
}
