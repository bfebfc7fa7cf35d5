/** Reports a request at its end: to the log, in one line, and to the metrics. */
import { meant, parseTarget } from '../api/match-endpoint.ts';
import { countError } from '../observe/counters.ts';
import type { Exchange } from './request-state.ts';

/** Logs and counts an exchange whose response has been closed, and returns how it ended. */
export function reportEnd(exchange: Exchange): RequestOutcome {
  const { deps, req, res, match, caller } = exchange;
  const { stats } = exchange.accounts;
  const { log, client } = caller;
  const { counters, observe } = deps.metrics;
  // The proxy's own pages, which probes ask for mostly, and preflights are not worth a line at level info.
  const level = match === undefined && stats.error === undefined ? 'debug' : 'info';
  const outcome = outcomeOf(exchange);
  if (log.isLevelEnabled(level)) log[level](requestLine(exchange, outcome), 'Request ended');
  const { error } = stats;
  if (error !== undefined) countError(counters, client?.name, error.code);
  if (match === undefined && error === undefined) return outcome;
  const { id: route, encrypted, operation } = match?.endpoint ?? NO_ENDPOINT;
  observe({
    route,
    method: req.method as string,
    path: pathOf(exchange),
    status: res.headersSent ? res.statusCode : 0,
    stats,
    operation: encrypted ? operation : undefined,
    requestId: caller.requestId,
    client: client?.name,
    outcome,
    firstTokenMs: firstTokenMs(exchange),
  });
  return outcome;
}

const NO_ENDPOINT = { id: 'none', encrypted: false, operation: '' };

/** The path for the log, never the query. */
const pathOf = ({ match, req }: Exchange): string => match?.endpoint.path ?? pathForLog(req.url as string);

/**
 * How a request ended. `answered`: the client was given all of the response. `service_error`: it was given
 * all of the response, which reports an error of the service. `refused`: the proxy responded that the request
 * was wrong. `failed`: the proxy responded with an error that is not the client's. `broken_off`: the response
 * had begun, and its connection was broken. `client_aborted`: the client left before the end.
 */
export type RequestOutcome =
  | 'answered'
  | 'service_error'
  | 'refused'
  | 'failed'
  | 'broken_off'
  | 'client_aborted';

export type RequestLine = ReturnType<typeof requestLine>;

/**
 * The fields of the one log line of a request. Their names are an interface (docs/logs.md). The line
 * quotes nothing that a client sent, except for the model, which leaves unencrypted, and an origin that a
 * browser could have written.
 */
function requestLine(exchange: Exchange, outcome: RequestOutcome) {
  const { req, res, match, life, accounts } = exchange;
  const { stats, noted } = accounts;
  const { startedAt, endedAt, usage, error, model } = stats;
  const isRefused = outcome === 'refused';
  return {
    method: req.method as string,
    path: pathOf(exchange),
    outcome,
    durationMs: Math.round(endedAt - startedAt),
    status: res.headersSent ? res.statusCode : undefined,
    firstTokenMs: firstTokenMs(exchange),
    tokensIn: usage?.prompt,
    tokensCached: usage?.cached,
    tokensOut: usage?.completion,
    model,
    alias: noted.alias,
    toolsLeftOut: noted.toolsLeftOut,
    code: error?.code,
    // Other errors have a line of their own, above level info.
    reason: error?.blame === 'client' ? error.message : undefined,
    origin: isRefused ? originForLog(req.headers.origin) : undefined,
    phase: match && outcome === 'client_aborted' ? life.phase : undefined,
  };
}

/** ms from the head of a request to the first piece of its stream; undefined: there was none. */
function firstTokenMs({ life, accounts }: Exchange): number | undefined {
  const { startedAt, firstChunkAt } = accounts.stats;
  const isStream = life.phase === 'mid_stream' && firstChunkAt !== undefined;
  return isStream ? Math.round(firstChunkAt - startedAt) : undefined;
}

/** If the client was told an error and left afterwards, the error counts. */
function outcomeOf({ deps, res, match, life, accounts }: Exchange): RequestOutcome {
  const { stats } = accounts;
  const { broken } = life;
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

/** A segment that a log may show: a plain word or a version, nothing that could be an id, a key or a text. */
const PLAIN_SEGMENT = /^(?:[a-z]{1,16}|v[0-9]{1,2})$/;

/**
 * The path of a request as a log may show it: the path of the table's row that covers it, else its first
 * segment if that is a plain word (`/openai/*`), else `unknown`. Never the query.
 */
export function pathForLog(rawTarget: string): string {
  const parsed = parseTarget(rawTarget);
  if (typeof parsed === 'string') return 'unknown';
  const known = meant(parsed.path);
  if (known !== undefined) return known.row.path;
  const [, first = '', ...rest] = parsed.path.split('/');
  if (!PLAIN_SEGMENT.test(first)) return 'unknown';
  return rest.length === 0 ? `/${first}` : `/${first}/*`;
}

/** Browsers write origins in lower case: `https://host.example:8443`, `null`. */
const ORIGIN =
  /^(?:null|[a-z][a-z0-9+.-]{0,30}:\/\/(?:[a-z0-9_.-]{1,100}|\[[0-9a-f:.]{2,45}\])(?::[0-9]{1,5})?)$/;

const originForLog = (origin: string | undefined): string | undefined =>
  origin === undefined || ORIGIN.test(origin) ? origin : 'unknown';
