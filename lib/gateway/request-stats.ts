/** What the metrics and the log say of one exchange at its end. */
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Endpoint } from '../api/endpoints.ts';
import { pathForLog } from '../api/match-endpoint.ts';
import type { PrivatemodeError } from '../errors.ts';
import type { RequestObservation } from '../observe/metrics.ts';
import type { Exchange, RequestStats } from './exchange.ts';

/** One request as the metrics see it; to be asked when it is over. */
export function observationOf(
  endpoint: Endpoint,
  req: IncomingMessage,
  res: ServerResponse,
  stats: RequestStats,
): RequestObservation {
  const seconds = (from: number | undefined, to: number | undefined): number | undefined =>
    from === undefined || to === undefined ? undefined : (to - from) / 1000;
  return {
    route: endpoint.id,
    method: req.method as string,
    status: res.headersSent ? res.statusCode : 0,
    operation: endpoint.encrypted ? endpoint.operation : undefined,
    model: stats.model,
    error: stats.error?.code,
    duration: (performance.now() - stats.startedAt) / 1000,
    timeToFirstChunk: seconds(stats.startedAt, stats.firstChunkAt),
    chunks: stats.chunks,
    inputTokens: stats.usage?.prompt,
    outputTokens: stats.usage?.completion,
    addedFirstByte: seconds(stats.uploadedAt, stats.sentAt),
    bytes: stats.bytes,
  };
}

/**
 * How a request ended. `answered`: all of the response was given to the client; `service_error` too, but it tells an error of the service.
 * `refused`: the proxy answered that the request was wrong; `failed`: it answered with an error that is not the client's.
 * `broken_off`: the response had begun, and its connection was broken. `client_aborted`: the client left before the end.
 */
export type Outcome = 'answered' | 'service_error' | 'refused' | 'failed' | 'broken_off' | 'client_aborted';

/**
 * The one line of a request in the log, written when its response is over. The names are an interface (docs/operations.md). Nothing
 * in it quotes what a client sent, but for the model, which leaves unencrypted, and an origin that a browser could have written.
 */
export interface RequestLine {
  readonly method: string;
  /** As the endpoint table writes it; never the query. */
  readonly path: string;
  readonly outcome: Outcome;
  readonly durationMs: number;
  readonly status: number | undefined;
  /** Of streams only. */
  readonly firstTokenMs: number | undefined;
  readonly tokensIn: number | undefined;
  readonly tokensOut: number | undefined;
  readonly model: string | undefined;
  readonly code: string | undefined;
  /** Of what was refused; other errors have a line of their own above level info. */
  readonly reason: string | undefined;
  readonly origin: string | undefined;
  /** How far the response had come when the client left. */
  readonly phase: Exchange['phase'] | undefined;
}

/** A request from its head to its end; what is found out about it is filled in. */
export interface RequestRecord {
  readonly req: IncomingMessage;
  readonly res: ServerResponse;
  /** By performance.now(). */
  readonly startedAt: number;
  /** Where it was forwarded. */
  exchange: Exchange | undefined;
  /** What it was refused with before that. */
  refusal: PrivatemodeError | undefined;
}

/** To be asked when the response has been closed. */
export function requestLine({ req, res, startedAt, exchange, refusal }: RequestRecord): RequestLine {
  const error = refusal ?? exchange?.stats.error;
  const outcome = outcomeOf(res, exchange, error);
  const { model, usage, firstChunkAt } = exchange?.stats ?? {};
  const isStream = exchange?.phase === 'mid_stream' && firstChunkAt !== undefined;
  const isRefused = outcome === 'refused';
  return {
    method: req.method as string,
    path: exchange?.match.endpoint.path ?? pathForLog(req.url as string),
    outcome,
    durationMs: Math.round(performance.now() - startedAt),
    status: res.headersSent ? res.statusCode : undefined,
    firstTokenMs: isStream ? Math.round(firstChunkAt - startedAt) : undefined,
    tokensIn: usage?.prompt,
    tokensOut: usage?.completion,
    model,
    code: error?.code,
    reason: isRefused ? error?.message : undefined,
    origin: isRefused ? originForLog(req.headers.origin) : undefined,
    phase: outcome === 'client_aborted' ? exchange?.phase : undefined,
  };
}

/** An error that the client has been told counts more than that it left afterwards. */
function outcomeOf(
  res: ServerResponse,
  exchange: Exchange | undefined,
  error: PrivatemodeError | undefined,
): Outcome {
  if (error !== undefined) {
    if (exchange?.broken) return 'broken_off';
    return error.blame === 'client' ? 'refused' : 'failed';
  }
  // The last of a shutdown are cut off by the proxy.
  if (!res.writableFinished) return exchange?.deps.terminate.aborted ? 'broken_off' : 'client_aborted';
  const isError = exchange !== undefined && (res.statusCode >= 400 || exchange.stats.modelError);
  return isError ? 'service_error' : 'answered';
}

/** Browsers write origins in lower case: `https://host.example:8443`, `null`. */
const ORIGIN =
  /^(?:null|[a-z][a-z0-9+.-]{0,30}:\/\/(?:[a-z0-9_.-]{1,100}|\[[0-9a-f:.]{2,45}\])(?::[0-9]{1,5})?)$/;

const originForLog = (origin: string | undefined): string | undefined =>
  origin === undefined || ORIGIN.test(origin) ? origin : 'unknown';
