/** What is measured, in the order of the table. */
import type { Metric } from './metric.ts';
import { cancel } from './metrics/cancel.ts';
import { firstTokenAdded } from './metrics/first-token.ts';
import { interToken } from './metrics/inter-token.ts';
import { memoryPerStream } from './metrics/memory.ts';
import { requestCpu } from './metrics/request-cpu.ts';
import { requestRate } from './metrics/request-rate.ts';
import { timeToReady } from './metrics/start.ts';
import { streamCpu } from './metrics/stream-cpu.ts';
import { streamSaturated } from './metrics/stream-saturated.ts';
import { upload } from './metrics/upload.ts';

export const METRICS: readonly Metric[] = [
  streamCpu,
  streamSaturated,
  firstTokenAdded,
  requestCpu,
  requestRate,
  interToken,
  upload(2),
  upload(16),
  memoryPerStream,
  timeToReady,
  cancel,
];
