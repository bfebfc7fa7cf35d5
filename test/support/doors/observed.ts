/** A request that is over, and metrics to observe it with. */
import { type Counters, createCounters } from '../../../lib/observe/counters.ts';
import type { createMetrics } from '../../../lib/observe/metrics.ts';
import type { Finished } from '../../../lib/observe/status-report.ts';
import { createFakeClock } from '../remote/fake-clock.ts';

/** A stream that the service answered. */
export const finished = (more: Partial<Finished> = {}): Finished => ({
  ...{ id: 'r', at: 0, client: undefined, endpoint: 'chat', operation: 'chat', method: 'POST' },
  ...{ path: '/v1/chat/completions', model: 'm1', status: 200, outcome: 'answered', code: null },
  ...{ durationMs: 3_000, addedMs: 0.4, firstTokenMs: 1_000, gapMs: 500, events: 5 },
  ...{ tokensIn: 5, tokensOut: 1_000, tokensCached: 3 },
  ...more,
});

type Options = Parameters<typeof createMetrics>[0];

/** What metrics are made with, of a proxy that has seen nothing; the time is 100 s. */
export const metricsOptions = (more: Partial<Options> = {}): Options & { readonly counters: Counters } => ({
  clock: createFakeClock(100_000),
  counters: createCounters(),
  protection: () => undefined,
  standing: () => ({ verified: false }),
  serverAddress: 'api.example',
  maxBufferedBytes: 100,
  notices: () => [],
  certificateEnds: () => undefined,
  clients: false,
  processMetrics: false,
  ...more,
});
