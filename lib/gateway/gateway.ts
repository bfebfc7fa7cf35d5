import type { IncomingMessage, ServerResponse } from 'node:http';
import {
  type LocalAnswer,
  type LocalId,
  type Match,
  matchEndpoint,
  type Refusal,
  SERVED,
} from '../api/endpoints.ts';
import { INERT_HEADERS } from '../api/error-format.ts';
import { asPrivatemodeError, PrivatemodeError } from '../errors.ts';
import { count } from '../observe/counters.ts';
import { type HealthAnswer, healthzAnswer, readyzAnswer } from '../observe/health.ts';
import type { Logger } from '../observe/log.ts';
import { VERSION } from '../version.ts';
import { answer, answerError } from './answers.ts';
import { decideOrigin, type OriginDecision, preflightHeaders } from './cors.ts';
import { tapExchange } from './dump-tap.ts';
import { type Call, logStage } from './exchange.ts';
import { exchange } from './forward.ts';
import { checkHead } from './headers.ts';
import { clientIdOf, echoOf, newRequestId } from './request-id.ts';
import { type RequestRecord, requestLine } from './request-line.ts';
import { newTally, observationOf } from './request-stats.ts';
import { answerTokenEstimate } from './token-estimate.ts';
import type { World } from './world.ts';

export interface Gateway {
  readonly handle: (req: IncomingMessage, res: ServerResponse) => void;
  /** Exchanges that are not finished. */
  readonly active: () => number;
}

/** A request whose head has been read, and nothing else. */
interface Arrival {
  readonly req: IncomingMessage;
  readonly res: ServerResponse;
  readonly requestId: string;
  readonly log: Logger;
  readonly origin: OriginDecision;
  /** For whatever is answered: CORS headers, and the id that the client gave its request. */
  readonly headers: Readonly<Record<string, string>>;
  readonly found: Match | LocalAnswer | Refusal;
  readonly record: RequestRecord;
}

/** Decides what a request is, before anything is done for it, and answers or forwards it. */
export function createGateway(world: World): Gateway {
  // One controller per call and one listener for all of them: a signal made of two others (AbortSignal.any) is held by weak
  // references, which keep everything of a call alive until the next full collection.
  const running = new Set<AbortController>();
  world.terminate.addEventListener('abort', () => {
    for (const call of running) call.abort(world.terminate.reason);
  });

  /** Counts a request as running until its response is over. A shutdown that loses patience aborts what is returned. */
  function begin(res: ServerResponse): AbortController {
    const control = new AbortController();
    if (world.terminate.aborted) control.abort(world.terminate.reason);
    running.add(control);
    world.counters.inFlight = running.size;
    res.once('close', () => {
      running.delete(control);
      world.counters.inFlight = running.size;
    });
    return control;
  }

  function estimate(arrival: Arrival): void {
    const { req, res, requestId, log, headers } = arrival;
    const { signal } = begin(res);
    void answerTokenEstimate(world, { req, res, requestId, log, headers, signal });
  }

  function forward(arrival: Arrival, match: Match): void {
    const { req, res, requestId, log, headers, record } = arrival;
    const control = begin(res);
    const call: Call = {
      world,
      req,
      res,
      match,
      requestId,
      log,
      extraHeaders: headers,
      signal: control.signal,
      phase: 'before_headers',
      debug: log.isLevelEnabled('debug'),
      tally: newTally(),
    };
    record.call = call;
    if (world.dumper !== undefined) {
      const { method = '', url = '', rawHeaders } = req;
      tapExchange(req, res, world.dumper.begin({ method, target: url, rawHeaders }));
    }
    world.counters.requests += 1;
    res.once('close', () => {
      world.observe(observationOf(match.endpoint, req, res, call.tally));
      if (res.writableFinished || call.broken) return;
      count(world.counters.clientAborts, call.phase);
      control.abort(new Error('the client went away'));
    });
    logStage(call, 'queued');
    if (call.debug && match.dropped.length > 0)
      log.debug({ parameters: match.dropped.join(', ') }, 'Query parameters were dropped');
    void exchange(call);
  }

  function handle(req: IncomingMessage, res: ServerResponse): void {
    res.on('error', () => {}); // the client went away; 'close' tells
    const requestId = newRequestId();
    const clientRequestId = clientIdOf(req.headers['x-request-id']);
    const log = world.log.child({ requestId, clientRequestId });
    const record: RequestRecord = {
      req,
      res,
      startedAt: performance.now(),
      call: undefined,
      refusal: undefined,
    };
    res.once('close', () => logRequest(log, record));
    try {
      const origin = decideOrigin(req.headers, world.cors());
      const arrival: Arrival = {
        req,
        res,
        requestId,
        log,
        origin,
        headers: { ...origin.headers, ...echoOf(clientRequestId, requestId) },
        found: matchEndpoint(req.method as string, req.url as string),
        record,
      };
      if (answeredHere(world, arrival)) return;
      if (arrival.found.kind === 'local') estimate(arrival);
      else forward(arrival, arrival.found as Match);
    } catch (thrown) {
      // A fault of the program in one request must not end all the others.
      record.refusal = asPrivatemodeError(thrown);
      log.error({ err: thrown }, 'A request could not be treated');
      res.destroy();
    }
  }

  return { handle, active: () => running.size };
}

/** One line for each request at level info; what the proxy says about itself, to probes mostly, and preflights at level debug. */
function logRequest(log: Logger, record: RequestRecord): void {
  const level = record.call === undefined && record.refusal === undefined ? 'debug' : 'info';
  if (log.isLevelEnabled(level)) log[level]({ ...requestLine(record) }, 'Request ended');
}

/** Answers what needs neither remote nor body: refusals, preflights, and what the proxy says about itself. */
function answeredHere(world: World, arrival: Arrival): boolean {
  const { req, res, origin, headers: always, found } = arrival;
  try {
    checkHead(req.rawHeaders, req.httpVersion);
  } catch (thrown) {
    refuse(arrival, thrown as PrivatemodeError);
    return true;
  }
  const preflight = preflightHeaders(req.method as string, req.headers, world.cors());
  if (preflight !== undefined) {
    answer(req, res, { status: 204, headers: preflight });
    return true;
  }
  if (origin.refusal !== undefined) {
    refuse(arrival, new PrivatemodeError('origin_forbidden', origin.refusal));
    return true;
  }
  if (found.kind === 'local') {
    if (found.id === 'count_tokens') return false;
    const { status, headers, body } = localAnswer(world, found.id);
    answer(req, res, { status, headers: { ...headers, ...INERT_HEADERS, ...always }, body });
    return true;
  }
  if (found.kind === 'refusal') {
    refuse(arrival, new PrivatemodeError(found.code, found.words), found.allow);
    return true;
  }
  return false;
}

function refuse(arrival: Arrival, error: PrivatemodeError, allow?: readonly string[]): void {
  const { req, res, requestId, headers, found, record } = arrival;
  record.refusal = error;
  const { dialect } = found.kind === 'endpoint' ? found.endpoint : found;
  answerError(req, res, error, { dialect, requestId, allow }, { headers });
}

/** What the proxy answers about itself (design decision 13). */
function localAnswer(world: World, id: Exclude<LocalId, 'count_tokens'>): HealthAnswer {
  switch (id) {
    case 'root':
      return {
        ...healthzAnswer(),
        body: `privatemode-proxy v${VERSION}\nAPI base URLs: /v1 (OpenAI style), / (Anthropic style)\n`,
      };
    case 'api':
      return {
        status: 200,
        headers: { 'content-type': 'application/json', 'cache-control': 'no-store' },
        body: `${JSON.stringify({ name: 'privatemode-proxy', version: VERSION, endpoints: SERVED })}\n`,
      };
    case 'hello':
    case 'healthz':
      return healthzAnswer();
    case 'readyz':
      return readyzAnswer({ state: world.session.state(), lastError: world.session.lastError() });
  }
}
