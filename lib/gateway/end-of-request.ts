/** Reports a request that is over: one log line, one observation for the metrics, one receipt. */
import { readTarget } from '../api/match-endpoint.ts';
import { ForeignError } from '../http-rules/response-kind.ts';
import { UpstreamFailure } from '../network/transport-errors.ts';
import { type Counters, count } from '../observe/counters.ts';
import type { ReceiptOutcome } from '../receipts/receipt.ts';
import type { Exchange } from './exchange.ts';

/** How a request ended: the word for the log (docs/operating.md), and the word for the receipt. */
const OUTCOMES = {
  answered: 'complete',
  service_error: 'failed',
  refused: 'refused',
  failed: 'failed',
  broken_off: 'truncated',
  client_aborted: 'aborted',
} as const satisfies Record<string, ReceiptOutcome>;

type Outcome = keyof typeof OUTCOMES;

/**
 * Reports an exchange whose response has been closed. The log quotes only two things that a client sent: the
 * model, which is sent in clear, and the origin, if it has the form that browsers send.
 */
export function reportEnd(exchange: Exchange): void {
  const { deps, req, res, match, client, requestId, stats, alias, toolsLeftOut } = exchange;
  const { counters, observe } = deps.metrics;
  stats.endedAt = performance.now();
  const { startedAt, uploadedAt, sentAt, firstChunkAt, endedAt, usage, error, model, events } = stats;
  const since = (at: number | undefined) => (at === undefined ? undefined : Math.round(at - startedAt));
  const outcome = outcomeOf(exchange);
  const method = req.method as string;
  const path = match?.endpoint.path ?? pathForLog(req.url as string);
  const phase = phaseOf(exchange);
  const firstTokenMs = phase === 'mid_stream' ? since(firstChunkAt) : undefined;
  const origin = outcome === 'refused' ? req.headers.origin : undefined;
  // Preflights are not worth a line at level info. Nor are the proxy's own pages: mostly probes ask for them.
  const level = match === undefined && error === undefined ? 'debug' : 'info';
  const line = {
    method,
    path,
    outcome,
    durationMs: Math.round(endedAt - startedAt),
    status: res.headersSent ? res.statusCode : undefined,
    receivedMs: since(uploadedAt),
    sentMs: since(sentAt),
    firstTokenMs,
    tokensIn: usage?.prompt,
    tokensCached: usage?.cached,
    tokensOut: usage?.completion,
    model,
    alias,
    toolsLeftOut,
    code: error?.code,
    // An error that is not the client's fault has a line of its own, above level info.
    reason: error?.blame === 'client' ? error.message : undefined,
    origin: origin === undefined || ORIGIN.test(origin) ? origin : 'unknown',
    phase: match && outcome === 'client_aborted' ? phase : undefined,
  };
  if (deps.log.isLevelEnabled(level)) exchange.log(level, line, 'Request ended');
  if (error !== undefined) count(counters.errors, `${client?.name ?? ''}\n${error.code}`);
  if (match !== undefined && !res.writableFinished && !exchange.broken) count(counters.clientAborts, phase);
  noteService(exchange, outcome);
  if (match !== undefined) addBytes(counters.bytes, stats.bytes);
  addReceipt(exchange, outcome);
  if (level === 'debug') return;
  const isTimed = uploadedAt !== undefined && sentAt !== undefined;
  const isStream = firstChunkAt !== undefined && events > 1;
  observe({
    id: requestId,
    at: deps.clock.now(),
    client: client?.name,
    endpoint: match?.endpoint.id ?? 'none',
    operation: match?.endpoint.operation ?? null,
    method,
    path,
    model: model ?? null,
    status: line.status ?? null,
    outcome,
    code: error?.code ?? null,
    durationMs: line.durationMs,
    addedMs: isTimed ? sentAt - uploadedAt : null,
    firstTokenMs: firstTokenMs ?? null,
    gapMs: isStream ? (endedAt - firstChunkAt) / (events - 1) : null,
    events,
    tokensIn: usage?.prompt ?? null,
    tokensOut: usage?.completion ?? null,
    tokensCached: usage?.cached ?? null,
  });
}

function addBytes(sum: Counters['bytes'], bytes: Counters['bytes']): void {
  sum.fromClient += bytes.fromClient;
  sum.toRemote += bytes.toRemote;
  sum.fromRemote += bytes.fromRemote;
  sum.toClient += bytes.toClient;
}

/** How the exchange ended. If the client was told an error and left afterwards, the error counts. */
function outcomeOf({ deps, res, match, broken, stats }: Exchange): Outcome {
  if (stats.error !== undefined) {
    if (broken) return 'broken_off';
    return stats.error.blame === 'client' ? 'refused' : 'failed';
  }
  // A translated stream does not count as cut if the proxy breaks it off after an error of the service.
  const isCut = !res.writableFinished && !(broken && stats.modelError);
  if (isCut) return match && deps.terminate.aborted ? 'broken_off' : 'client_aborted';
  return match && (res.statusCode >= 400 || stats.modelError) ? 'service_error' : 'answered';
}

/**
 * Tells the service watch whether this exchange got through to the service, if that is known. An
 * unauthenticated error above 499 is a gateway's. A cut upload proves nothing: the body may be too large.
 */
function noteService({ deps, match, attempt, stats, res }: Exchange, outcome: Outcome): void {
  const { service } = deps;
  if (service === undefined || match === undefined || attempt === undefined) return;
  const { error } = stats;
  if (attempt.cipher?.hasOpened) service.answered();
  else if (error instanceof UpstreamFailure) {
    const isOnTheWay = error.blame === 'network' || error.blame === 'upstream';
    if (isOnTheWay && error.code !== 'upstream_closed_during_upload')
      service.failed(`${error.code}: ${error.message}`);
  } else if (outcome === 'answered' || outcome === 'service_error' || error instanceof ForeignError) {
    if (res.statusCode < 500) service.answered();
    else
      service.failed(
        error ? `${error.code}: ${error.message}` : `the service answered with status ${res.statusCode}`,
      );
  }
}

/** The phase in which a response ended. A whole response is sent at once and so has `before_headers`. */
function phaseOf({ decrypter, stats }: Exchange) {
  if (decrypter === undefined) return 'before_headers';
  return stats.firstChunkAt === undefined ? 'before_first_token' : 'mid_stream';
}

/** Browsers write origins in lower case: `https://host.example:8443`, `null`. */
const ORIGIN =
  /^(?:null|[a-z][a-z0-9+.-]{0,30}:\/\/(?:[a-z0-9_.-]{1,100}|\[[0-9a-f:.]{2,45}\])(?::[0-9]{1,5})?)$/;

/** A plain word or a version number, but nothing that could be an id, a key or a text. */
const PLAIN_SEGMENT = /^(?:[a-z]{1,16}|v[0-9]{1,2})$/;

/** The path for the log, without a query: the row's path, else the first segment if it is a plain word. */
export function pathForLog(rawTarget: string): string {
  const read = readTarget(rawTarget);
  if (typeof read === 'string') return 'unknown';
  if (read.row !== undefined) return read.row.path;
  const [, first = '', ...rest] = read.path.split('/');
  if (!PLAIN_SEGMENT.test(first)) return 'unknown';
  return rest.length === 0 ? `/${first}` : `/${first}/*`;
}

function addReceipt(exchange: Exchange, outcome: Outcome): void {
  const { deps, requestId, match, client, res, stats, bodies, attempt } = exchange;
  if (bodies === undefined) return;
  const { startedAt, endedAt, usage, error, model, events } = stats;
  const { prompt = null, completion = null, cached = null } = usage ?? {};
  deps.receipts?.add({
    id: requestId,
    time: new Date(Date.now() - (endedAt - startedAt)).toISOString(),
    durationMs: Math.round(endedAt - startedAt),
    endpoint: match?.endpoint.id ?? 'count_tokens', // no other response of the proxy itself has a receipt
    client: client?.name ?? null,
    model: model ?? null,
    status: res.headersSent ? res.statusCode : null,
    request: bodies.request.digest(),
    response: { ...bodies.response.digest(), events },
    tokens: usage === undefined ? null : { in: prompt, out: completion, cached },
    epoch: attempt?.cipher === undefined ? null : attempt.epoch,
    outcome: OUTCOMES[outcome],
    code: error?.code ?? null,
  });
}
