/** What is measured, in the order of the table. */
import type { Metric } from './metric.ts';
import { cancel } from './metrics/cancel.ts';
import { streamsOnTwoCores } from './metrics/capacity.ts';
import { clients } from './metrics/clients.ts';
import { coldBurst } from './metrics/cold-burst.ts';
import { features } from './metrics/features.ts';
import { fieldMock } from './metrics/field-mock.ts';
import { firstTokenAdded } from './metrics/first-token.ts';
import { interToken } from './metrics/inter-token.ts';
import { link } from './metrics/link.ts';
import { loopDelay } from './metrics/loop-delay.ts';
import { memoryPerStream } from './metrics/memory.ts';
import { neighbourStall } from './metrics/neighbour-stall.ts';
import { oneByteChunks } from './metrics/one-byte-chunks.ts';
import { requestCpu } from './metrics/request-cpu.ts';
import { requestRate } from './metrics/request-rate.ts';
import { responses } from './metrics/responses.ts';
import { responsesTurn } from './metrics/responses-turn.ts';
import { timeToReady } from './metrics/start.ts';
import { streamCpu } from './metrics/stream-cpu.ts';
import { streamSaturated } from './metrics/stream-saturated.ts';
import { upload } from './metrics/upload.ts';
import { uploadMemory } from './metrics/upload-memory.ts';

export const METRICS: readonly Metric[] = [
  streamCpu,
  streamSaturated,
  firstTokenAdded,
  requestCpu,
  requestRate,
  coldBurst,
  fieldMock,
  interToken,
  loopDelay,
  streamsOnTwoCores,
  upload(2),
  upload(16),
  neighbourStall,
  memoryPerStream,
  uploadMemory,
  oneByteChunks,
  features,
  responses,
  responsesTurn,
  clients,
  timeToReady,
  link,
  cancel,
];
