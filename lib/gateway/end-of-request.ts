/** Reports a request that is over: one line of the log, one observation for the metrics, one receipt. */
import { readTarget } from '../api/match-endpoint.ts';
import { count, countError } from '../observe/counters.ts';
import type { TokenUsage } from '../pipeline/decrypter.ts';
import type { ReceiptOutcome, RequestReceipt } from '../receipts/receipt.ts';
import type { Epoch } from '../session/session.ts';
import type { Exchange } from './exchange.ts';

/**
 * How a request ended. `answered`: the client was given all of the response. `service_error`: it was given
 * all of the response, which reports an error of the service. `refused`: the proxy responded that the request
 * was wrong. `failed`: the proxy responded with an error that is not the client's. `broken_off`: the response
 * had begun, and its connection was broken. `client_aborted`: the client left before the end. With each: the
 * outcome in the receipt.
 */
const OUTCOMES = {
  answered: 'complete',
  service_error: 'failed',
  refused: 'refused',
  failed: 'failed',
  broken_off: 'truncated',
  client_aborted: 'aborted',
} as const satisfies Record<string, ReceiptOutcome>;

type Outcome = keyof typeof OUTCOMES;

/** Logs and counts an exchange whose response has been closed, and adds its receipt. */
export function reportEnd(exchange: Exchange): void {
  const { deps, req, res, match, client, stats } = exchange;
  const { counters, observe } = deps.metrics;
  stats.endedAt = performance.now();
  const { error } = stats;
  const outcome = outcomeOf(exchange);
  // The proxy's own pages, which probes ask for mostly, and preflights are not worth a line at level info.
  const level = match === undefined && error === undefined ? 'debug' : 'info';
  if (deps.log.isLevelEnabled(level)) exchange.log(level, requestLine(exchange, outcome), 'Request ended');
  if (error !== undefined) countError(counters, client?.name, error.code);
  if (match !== undefined && !res.writableFinished && !exchange.broken)
    count(counters.clientAborts, exchange.phase);
  addReceipt(exchange, outcome);
  if (match === undefined && error === undefined) return;
  const { id: route, operation } = match?.endpoint ?? NO_ENDPOINT;
  observe({
    route,
    method: req.method as string,
    path: pathOf(exchange),
    status: res.headersSent ? res.statusCode : 0,
    stats,
    operation,
    requestId: exchange.requestId,
    client: client?.name,
    outcome,
    firstTokenMs: firstTokenMs(exchange),
  });
}

const NO_ENDPOINT = { id: 'none', operation: undefined };

/** If the client was told an error and left afterwards, the error counts. */
function outcomeOf({ deps, res, match, broken, stats }: Exchange): Outcome {
  if (stats.error !== undefined) {
    if (broken) return 'broken_off';
    return stats.error.blame === 'client' ? 'refused' : 'failed';
  }
  // The proxy breaks a translated stream on purpose if the service reports an error in it; that is no cut. At
  // the end of a shutdown, the proxy cuts off the last responses; otherwise the client left.
  const isCut = !res.writableFinished && !(broken && stats.modelError);
  if (isCut) return match && deps.terminate.aborted ? 'broken_off' : 'client_aborted';
  const isError = match && (res.statusCode >= 400 || stats.modelError);
  return isError ? 'service_error' : 'answered';
}

/**
 * The fields of the one log line of a request. Their names are an interface (docs/logs.md). The line
 * quotes nothing that a client sent, except for the model, which leaves unencrypted, and an origin that a
 * browser could have written.
 */
function requestLine(exchange: Exchange, outcome: Outcome) {
  const { req, res, match, stats } = exchange;
  const { startedAt, uploadedAt, sentAt, endedAt, usage, error, model } = stats;
  const since = (at: number | undefined) => (at === undefined ? undefined : Math.round(at - startedAt));
  return {
    method: req.method as string,
    path: pathOf(exchange),
    outcome,
    durationMs: since(endedAt),
    status: res.headersSent ? res.statusCode : undefined,
    receivedMs: since(uploadedAt),
    sentMs: since(sentAt),
    firstTokenMs: firstTokenMs(exchange),
    tokensIn: usage?.prompt,
    tokensCached: usage?.cached,
    tokensOut: usage?.completion,
    model,
    alias: exchange.alias,
    toolsLeftOut: exchange.toolsLeftOut,
    code: error?.code,
    // Other errors have a line of their own, above level info.
    reason: error?.blame === 'client' ? error.message : undefined,
    origin: outcome === 'refused' ? originForLog(req.headers.origin) : undefined,
    phase: match && outcome === 'client_aborted' ? exchange.phase : undefined,
  };
}

/** ms from the head of a request to the first piece of its stream; undefined: there was none. */
function firstTokenMs({ phase, stats: { startedAt, firstChunkAt } }: Exchange): number | undefined {
  const isStream = phase === 'mid_stream' && firstChunkAt !== undefined;
  return isStream ? Math.round(firstChunkAt - startedAt) : undefined;
}

/** The path for the log, never the query. */
const pathOf = ({ match, req }: Exchange): string => match?.endpoint.path ?? pathForLog(req.url as string);

/** A segment that a log may show: a plain word or a version, nothing that could be an id, a key or a text. */
const PLAIN_SEGMENT = /^(?:[a-z]{1,16}|v[0-9]{1,2})$/;

/**
 * The path of a request as a log may show it: the path of the table's row that covers it, else its first
 * segment if that is a plain word (`/openai/*`), else `unknown`. Never the query.
 */
export function pathForLog(rawTarget: string): string {
  const read = readTarget(rawTarget);
  if (typeof read === 'string') return 'unknown';
  if (read.row !== undefined) return read.row.path;
  const [, first = '', ...rest] = read.path.split('/');
  if (!PLAIN_SEGMENT.test(first)) return 'unknown';
  return rest.length === 0 ? `/${first}` : `/${first}/*`;
}

/** Browsers write origins in lower case: `https://host.example:8443`, `null`. */
const ORIGIN =
  /^(?:null|[a-z][a-z0-9+.-]{0,30}:\/\/(?:[a-z0-9_.-]{1,100}|\[[0-9a-f:.]{2,45}\])(?::[0-9]{1,5})?)$/;

const originForLog = (origin: string | undefined): string | undefined =>
  origin === undefined || ORIGIN.test(origin) ? origin : 'unknown';

/** Adds the receipt of the exchange (docs/receipts.md), if it gets one. */
function addReceipt(exchange: Exchange, outcome: Outcome): void {
  const { deps, requestId, client, res, stats, receipt, attempt } = exchange;
  if (receipt === undefined) return;
  const { startedAt, endedAt, usage, error } = stats;
  const { endpoint, request, response } = receipt;
  deps.receipts?.add({
    id: requestId,
    time: new Date(Date.now() - (endedAt - startedAt)).toISOString(),
    durationMs: Math.round(endedAt - startedAt),
    endpoint,
    client: client?.name ?? null,
    model: stats.model ?? null,
    status: res.headersSent ? res.statusCode : null,
    request: request.digest(),
    response: { ...response.digest(), events: stats.events },
    tokens: usage === undefined ? null : tokensOf(usage),
    epoch: attempt?.cipher === undefined ? null : epochOf(attempt.epoch),
    outcome: OUTCOMES[outcome],
    code: error?.code ?? null,
  });
}

const tokensOf = ({ prompt, completion, cached }: TokenUsage): RequestReceipt['tokens'] => ({
  in: prompt ?? null,
  out: completion ?? null,
  cached: cached ?? null,
});

const epochOf = ({
  secretId,
  manifestSha256,
  verdictSha256,
  exchangeSha256,
}: Epoch): RequestReceipt['epoch'] => ({
  secretId,
  manifestSha256,
  verdictSha256,
  ...(exchangeSha256 === undefined ? {} : { exchangeSha256 }),
});
