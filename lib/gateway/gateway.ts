/** Every request of an application: admitted, and then answered here or forwarded. */
import type { IncomingMessage, ServerResponse } from 'node:http';
import { type LocalId, type Offered, served } from '../api/endpoints.ts';
import { estimateResponse, INERT_HEADERS } from '../api/error-format.ts';
import type { EndpointMatch } from '../api/match-endpoint.ts';
import { asPrivatemodeError, PrivatemodeError } from '../errors.ts';
import { count } from '../observe/counters.ts';
import { type HealthAnswer, healthzAnswer, readyzAnswer } from '../observe/health.ts';
import { createTokenEstimate } from '../pipeline/token-estimate.ts';
import { VERSION } from '../version.ts';
import { type Admission, admit } from './admission.ts';
import { corsHeaders } from './cors.ts';
import { addHeaders, type Exchange, type GatewayDeps, newExchange, setClient } from './exchange.ts';
import { forward } from './forward.ts';
import { respondError, respondWhole } from './own-response.ts';
import { type BodyLimit, enterGate, receive } from './receive-body.ts';
import { copyToDump } from './request-dump.ts';
import { reportEnd } from './request-log.ts';
import { addReceipt, beginReceipt } from './request-receipt.ts';
import { inTurns } from './request-turns.ts';
import { breakConnection, concludeFailed, noteBroken } from './respond.ts';
import { createReaderWatch } from './slow-readers.ts';

export type Gateway = ReturnType<typeof createGateway>;

/** `handle` sees to one request and never throws; `active` counts the exchanges that are not finished. */
export function createGateway(deps: GatewayDeps) {
  // One controller per exchange and one listener for all of them: a signal made of two others (AbortSignal.any) is held by weak
  // references, which keep everything of an exchange alive until the next full collection.
  const running = new Set<Exchange>();
  const offered = offeredBy(deps);
  const readers = createReaderWatch<Exchange>((exchange) => {
    const message = 'the client has taken nothing of its response for too long';
    noteBroken(exchange, new PrivatemodeError('response_not_read', message));
    breakConnection(exchange);
  }, deps.readers);
  deps.terminate.addEventListener('abort', () => {
    for (const { control } of running) control.abort(deps.terminate.reason);
  });

  /** Counts an exchange as running until its response is over. A shutdown that loses patience aborts it. */
  function begin(exchange: Exchange): void {
    if (deps.terminate.aborted) exchange.control.abort(deps.terminate.reason);
    running.add(exchange);
    deps.counters.inFlight = running.size;
  }

  function end(exchange: Exchange): void {
    readers.leave(exchange);
    if (running.delete(exchange)) deps.counters.inFlight = running.size;
    exchange.over = true;
    exchange.permit?.release(tokensOf(exchange));
    const outcome = reportEnd(exchange);
    if (exchange.receipt !== undefined) addReceipt(exchange, outcome);
    if (exchange.res.writableFinished || exchange.broken) return;
    if (exchange.match !== undefined) count(deps.counters.clientAborts, exchange.phase);
    exchange.control.abort(new Error('the client went away'));
  }

  function forwardTo(exchange: Exchange, match: EndpointMatch): void {
    const { req, res, log } = exchange;
    begin(exchange);
    if (deps.receipts !== undefined) beginReceipt(exchange, match.endpoint.id);
    if (deps.dumper !== undefined) copyToDump(req, res, deps.dumper);
    deps.counters.requests += 1;
    if (match.endpoint.translatedTo !== undefined)
      exchange.translator = deps.createTranslator?.(exchange.requestId);
    exchange.stage?.('queued');
    if (exchange.stage !== undefined && match.dropped.length > 0) {
      log.debug({ parameters: match.dropped.join(', ') }, 'Query parameters were dropped');
    }
    const aliased = match.endpoint.id === 'model' ? deps.aliases?.inPath(match.target) : undefined;
    if (aliased === undefined) void forward(Object.assign(exchange, { match }));
    else {
      exchange.aboutModel = aliased;
      exchange.alias = deps.aliases?.find(aliased)?.name;
      void forward(Object.assign(exchange, { match: { ...match, target: '/v1/models' } }));
    }
  }

  function proceed(exchange: Exchange, admission: Admission): void {
    exchange.format = admission.format;
    switch (admission.kind) {
      case 'endpoint':
        forwardTo(exchange, admission);
        break;
      case 'preflight':
        respondWhole(exchange, { status: 204, headers: admission.headers });
        break;
      case 'refusal':
        exchange.stats.error = admission.error;
        beginReceipt(exchange, null);
        respondError(exchange, admission.error, { allow: admission.allow });
        break;
      case 'local': {
        if (admission.id === 'count_tokens') {
          begin(exchange);
          beginReceipt(exchange, admission.id);
          void respondTokenEstimate(exchange);
        } else if (admission.id === 'verification') {
          begin(exchange);
          void respondVerification(exchange);
        } else respondLocally(exchange, LOCAL_RESPONSES[admission.id](deps));
      }
    }
  }

  function handle(req: IncomingMessage, res: ServerResponse): void {
    res.on('error', () => {}); // the client went away; 'close' tells
    const exchange = newExchange(deps, req, res);
    readers.enter(exchange);
    res.once('close', () => end(exchange));
    try {
      const keys = {
        clients: deps.clients,
        configuredKey: deps.configuredKey,
        fallback: deps.apiKeyFallback,
      };
      const policy = deps.cors();
      const { admission, client } = admit(req, policy, { offered, ...keys });
      addHeaders(exchange, { first: corsHeaders(req.headers.origin, policy) });
      if (client !== undefined) setClient(exchange, client);
      proceed(exchange, admission);
    } catch (thrown) {
      // A fault of the program in one request must not end all the others.
      exchange.stats.error = asPrivatemodeError(thrown);
      exchange.log.error({ err: thrown }, 'A request could not be treated');
      res.destroy();
    }
  }

  return {
    handle: inTurns(handle, () =>
      deps.log.warn(
        'A connection was ended: its client sends thousands of requests ahead of their responses',
      ),
    ),
    active: (): number => running.size,
    /** Pieces of streams that the exchanges which are not finished have sent so far. */
    chunks: (): number => [...running].reduce((sum, { stats }) => sum + stats.chunks, 0),
  };
}

const offeredBy = ({ verification, createTranslator }: GatewayDeps): readonly Offered[] => [
  ...(verification === undefined ? [] : (['verification'] as const)),
  ...(createTranslator === undefined ? [] : (['responses'] as const)),
];

/** Tokens in and out, as far as the service has told them. */
function tokensOf({ stats, decrypter }: Exchange): number {
  const { prompt = 0, completion = 0 } = stats.usage ?? decrypter?.usage ?? {};
  return prompt + completion;
}

const respondLocally = (exchange: Exchange, own: HealthAnswer): void =>
  respondWhole(exchange, { ...own, headers: { ...own.headers, ...INERT_HEADERS, ...exchange.headers } });

const JSON_TYPE = { 'content-type': 'application/json', 'cache-control': 'no-store' };

/** Never rejects. */
async function respondVerification(exchange: Exchange): Promise<void> {
  try {
    const body = await exchange.deps.verification?.();
    if (body === undefined) throw new PrivatemodeError('internal', 'there is no document');
    respondLocally(exchange, { status: 200, headers: JSON_TYPE, body });
  } catch (thrown) {
    concludeFailed(exchange, thrown);
  }
}

/** No conversation that is counted is larger: a million tokens are 4 MB of text. */
const MOST_COUNTED: BodyLimit = { bytes: 8 * 1024 * 1024, name: 'for counting tokens' };

/** The service counts no tokens, and agents need a number to decide when to compact a conversation. Never rejects. */
async function respondTokenEstimate(exchange: Exchange): Promise<void> {
  const { gate } = exchange.deps;
  try {
    if (gate !== undefined) await enterGate(exchange, gate);
    const estimate = await receive(exchange, createTokenEstimate(), MOST_COUNTED);
    estimate.release();
    const { headers, body } = estimateResponse(estimate.tokens, exchange.requestId);
    respondWhole(exchange, { status: 200, headers: { ...headers, ...exchange.headers }, body });
  } catch (thrown) {
    concludeFailed(exchange, thrown);
  }
}

/** The proxy's own pages. */
const LOCAL_RESPONSES: Record<
  Exclude<LocalId, 'count_tokens' | 'verification'>,
  (deps: GatewayDeps) => HealthAnswer
> = {
  root: () => ({
    ...healthzAnswer(),
    body: `privatemode-proxy v${VERSION}\nAPI base URLs: /v1 (OpenAI style), / (Anthropic style)\n`,
  }),
  api: (deps) => ({
    status: 200,
    headers: JSON_TYPE,
    body: `${JSON.stringify({ name: 'privatemode-proxy', version: VERSION, endpoints: served(offeredBy(deps)) })}\n`,
  }),
  hello: healthzAnswer,
  healthz: healthzAnswer,
  readyz: ({ session }) => readyzAnswer({ state: session.state(), lastError: session.lastError() }),
};
