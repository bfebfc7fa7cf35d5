/** Every request of an application: admitted, and then answered here or forwarded. */
import type { IncomingMessage, ServerResponse } from 'node:http';
import { type LocalId, SERVED } from '../api/endpoints.ts';
import { INERT_HEADERS } from '../api/error-format.ts';
import type { EndpointMatch } from '../api/match-endpoint.ts';
import { asPrivatemodeError } from '../errors.ts';
import { count } from '../observe/counters.ts';
import { type HealthAnswer, healthzAnswer, readyzAnswer } from '../observe/health.ts';
import type { Logger } from '../observe/log.ts';
import { VERSION } from '../version.ts';
import { type Admission, admit } from './admission.ts';
import {
  clientIdOf,
  type Exchange,
  echoOf,
  type GatewayDeps,
  logStage,
  newRequestId,
  newRequestStats,
} from './exchange.ts';
import { forward } from './forward.ts';
import { copyToDump } from './request-dump.ts';
import { observationOf, type RequestRecord, requestLine } from './request-stats.ts';
import { respondTokenEstimate } from './token-estimate.ts';
import { respondError, respondWhole } from './write-response.ts';

export interface Gateway {
  readonly handle: (req: IncomingMessage, res: ServerResponse) => void;
  /** Exchanges that are not finished. */
  readonly active: () => number;
}

/** A request that has been admitted, and nothing else. */
interface Arrival {
  readonly req: IncomingMessage;
  readonly res: ServerResponse;
  readonly requestId: string;
  readonly log: Logger;
  /** For whatever response: CORS headers, and the id that the application gave its request. */
  readonly headers: Readonly<Record<string, string>>;
  readonly record: RequestRecord;
}

export function createGateway(deps: GatewayDeps): Gateway {
  // One controller per exchange and one listener for all of them: a signal made of two others (AbortSignal.any) is held by weak
  // references, which keep everything of an exchange alive until the next full collection.
  const running = new Set<AbortController>();
  deps.terminate.addEventListener('abort', () => {
    for (const control of running) control.abort(deps.terminate.reason);
  });

  /** Counts a request as running until its response is `over`. A shutdown that loses patience aborts what is returned. */
  function begin(res: ServerResponse, over: (control: AbortController) => void = () => {}): AbortController {
    const control = new AbortController();
    if (deps.terminate.aborted) control.abort(deps.terminate.reason);
    running.add(control);
    deps.counters.inFlight = running.size;
    res.once('close', () => {
      running.delete(control);
      deps.counters.inFlight = running.size;
      over(control);
    });
    return control;
  }

  function beginExchange({ req, res, requestId, log, headers, record }: Arrival, match: EndpointMatch): void {
    const { signal } = begin(res, (control) => {
      deps.observe(observationOf(match.endpoint, req, res, exchange.stats));
      if (res.writableFinished || exchange.broken) return;
      count(deps.counters.clientAborts, exchange.phase);
      control.abort(new Error('the client went away'));
    });
    const exchange: Exchange = {
      deps,
      req,
      res,
      match,
      requestId,
      log,
      extraHeaders: headers,
      signal,
      phase: 'before_headers',
      debug: log.isLevelEnabled('debug'),
      stats: newRequestStats(),
    };
    record.exchange = exchange;
    if (deps.dumper !== undefined) {
      const { method = '', url = '', rawHeaders } = req;
      copyToDump(req, res, deps.dumper.begin({ method, target: url, rawHeaders }));
    }
    deps.counters.requests += 1;
    logStage(exchange, 'queued');
    if (exchange.debug && match.dropped.length > 0) {
      log.debug({ parameters: match.dropped.join(', ') }, 'Query parameters were dropped');
    }
    void forward(exchange);
  }

  function proceed(arrival: Arrival, admission: Admission): void {
    const { req, res, requestId, log, headers, record } = arrival;
    switch (admission.kind) {
      case 'endpoint':
        beginExchange(arrival, admission);
        break;
      case 'preflight':
        respondWhole(req, res, { status: 204, headers: admission.headers });
        break;
      case 'refused': {
        const { error, format, allow } = admission;
        record.refusal = error;
        respondError(req, res, error, { format, requestId, allow }, { headers });
        break;
      }
      case 'local': {
        if (admission.id === 'count_tokens') {
          const { signal } = begin(res);
          void respondTokenEstimate(deps, { req, res, requestId, log, headers, signal });
          break;
        }
        const { status, headers: own, body } = localResponse(deps, admission.id);
        respondWhole(req, res, { status, headers: { ...own, ...INERT_HEADERS, ...headers }, body });
      }
    }
  }

  function handle(req: IncomingMessage, res: ServerResponse): void {
    res.on('error', () => {}); // the client went away; 'close' tells
    const requestId = newRequestId();
    const clientRequestId = clientIdOf(req.headers['x-request-id']);
    const log = deps.log.child({ requestId, clientRequestId });
    const record: RequestRecord = {
      req,
      res,
      startedAt: performance.now(),
      exchange: undefined,
      refusal: undefined,
    };
    res.once('close', () => logRequest(log, record));
    try {
      const { admission, headers: cors } = admit(req, deps.cors());
      const headers = { ...cors, ...echoOf(clientRequestId, requestId) };
      proceed({ req, res, requestId, log, headers, record }, admission);
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
  const level = record.exchange === undefined && record.refusal === undefined ? 'debug' : 'info';
  if (log.isLevelEnabled(level)) log[level]({ ...requestLine(record) }, 'Request ended');
}

/** What the proxy says about itself. */
function localResponse(deps: GatewayDeps, id: Exclude<LocalId, 'count_tokens'>): HealthAnswer {
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
      return readyzAnswer({ state: deps.session.state(), lastError: deps.session.lastError() });
  }
}
