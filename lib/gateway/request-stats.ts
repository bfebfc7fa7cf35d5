import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Endpoint } from '../api/endpoints.ts';
import type { PrivatemodeError } from '../errors.ts';
import type { RequestObservation } from '../observe/metrics.ts';
import type { TokenUsage } from '../pipeline/token-usage.ts';

/** What is counted of one request on its way; times by performance.now(). */
export interface Tally {
  readonly startedAt: number;
  uploadedAt: number | undefined;
  sentAt: number | undefined;
  firstChunkAt: number | undefined;
  chunks: number;
  model: string | undefined;
  /** What the service says it counted. */
  usage: TokenUsage | undefined;
  /** The model reported an error of its own inside a stream. */
  modelError: boolean;
  error: PrivatemodeError | undefined;
  readonly bytes: { fromClient: number; toRemote: number; fromRemote: number; toClient: number };
}

export function newTally(): Tally {
  return {
    startedAt: performance.now(),
    uploadedAt: undefined,
    sentAt: undefined,
    firstChunkAt: undefined,
    chunks: 0,
    model: undefined,
    usage: undefined,
    modelError: false,
    error: undefined,
    bytes: { fromClient: 0, toRemote: 0, fromRemote: 0, toClient: 0 },
  };
}

/** One request as the metrics see it; to be asked when it is over. */
export function observationOf(
  endpoint: Endpoint,
  req: IncomingMessage,
  res: ServerResponse,
  tally: Tally,
): RequestObservation {
  const seconds = (from: number | undefined, to: number | undefined): number | undefined =>
    from === undefined || to === undefined ? undefined : (to - from) / 1000;
  return {
    route: endpoint.id,
    method: req.method as string,
    status: res.headersSent ? res.statusCode : 0,
    operation: endpoint.encrypted ? endpoint.operation : undefined,
    model: tally.model,
    error: tally.error?.code,
    duration: (performance.now() - tally.startedAt) / 1000,
    timeToFirstChunk: seconds(tally.startedAt, tally.firstChunkAt),
    chunks: tally.chunks,
    inputTokens: tally.usage?.prompt,
    outputTokens: tally.usage?.completion,
    addedFirstByte: seconds(tally.uploadedAt, tally.sentAt),
    bytes: tally.bytes,
  };
}
