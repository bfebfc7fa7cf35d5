/** Handles every request of an application: responds here or forwards it, and reports it when it is over. */
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { type LocalId, type Offered, served } from '../api/endpoints.ts';
import { estimateResponse, INERT_HEADERS } from '../api/error-response.ts';
import { untilAborted } from '../clock.ts';
import { PrivatemodeError } from '../errors.ts';
import { type HealthResponse, healthzResponse, readyzResponse } from '../observe/health.ts';
import { tokenEstimateReader } from '../pipeline/token-estimate.ts';
import { VERSION } from '../version.ts';
import type { AppResponse } from './app-response.ts';
import type { GatewayDeps } from './deps.ts';
import { reportEnd } from './end-of-request.ts';
import { Exchange, type ForwardedExchange } from './exchange.ts';
import { enterGate, forward } from './forward.ts';
import { breakConnection, concludeFailed, noteBroken, respondError, respondWhole } from './own-response.ts';
import { receive } from './receive.ts';
import { copyToDump } from './request-dump.ts';

export type Gateway = ReturnType<typeof createGateway>;

/**
 * Creates the gateway. `handle` is the listener for requests: it follows each request to its end, and never
 * throws. `active` counts the running exchanges (`isWork`).
 */
export function createGateway(deps: GatewayDeps) {
  const { counters } = deps.metrics;
  const offered = offeredBy(deps);
  const open = new Set<Exchange>();
  const running = new Set<Exchange>(); // those that are work
  let settled = (): void => {};
  // One listener for all exchanges: each signal that derives from `terminate` would stay in memory
  // (docs/hazards.md 25).
  deps.terminate.addEventListener('abort', () => {
    for (const exchange of running) exchange.abort(deps.terminate.reason);
  });

  function handle(req: IncomingMessage, res: ServerResponse): void {
    const exchange = new Exchange(deps, req, res as AppResponse, offered, endIfOver); // the listener makes no others
    open.add(exchange);
    res.on('error', () => {}); // the client has left, and 'close' follows
    res.on('timeout', (socket: Socket) => endUnread(exchange, socket));
    if (isWork(exchange)) {
      if (deps.terminate.aborted) exchange.abort(deps.terminate.reason);
      running.add(exchange);
      counters.inFlight = running.size;
    }
    const over = (): void => {
      exchange.concluded = true;
      endIfOver(exchange);
    };
    const failed = (thrown: unknown): void => {
      concludeFailed(exchange, thrown);
      over();
    };
    try {
      const responded = respondTo(exchange, offered);
      if (responded === undefined) over();
      else responded.then(over, failed);
    } catch (thrown) {
      failed(thrown);
    }
  }

  /** Only when the response has been closed too, the gateway knows how the exchange ended. */
  function endIfOver(exchange: Exchange): void {
    if (!exchange.concluded || !exchange.closed) return;
    open.delete(exchange);
    if (running.delete(exchange)) counters.inFlight = running.size;
    try {
      exchange.permit?.release(exchange.tokens);
      reportEnd(exchange);
    } catch (fault) {
      deps.log.error({ err: fault }, 'An exchange could not be closed');
    }
    if (open.size === 0) settled();
  }

  return {
    handle,
    active: (): number => running.size,
    /** Resolves when all exchanges are over and reported, a moment after their connections have closed. */
    settled: (): Promise<void> =>
      new Promise((resolve) => {
        if (open.size === 0) resolve();
        else settled = resolve;
      }),
    /** How many events of streams the running exchanges have sent so far. */
    events: (): number => [...running].reduce((sum, { decrypter }) => sum + (decrypter?.events ?? 0), 0),
  };
}

/**
 * Called when a connection has been idle for the time limit of the listener (`readerWait`). If bytes wait in
 * it, its client takes nothing of its response, and loses its place; else it waits for the service.
 */
function endUnread(exchange: Exchange, { writableLength }: Socket): void {
  if (writableLength === 0) return;
  const message = 'the client has taken nothing of its response for too long';
  noteBroken(exchange, new PrivatemodeError('response_not_read', message));
  breakConnection(exchange);
}

/**
 * Whether an exchange counts as running: it is forwarded, or it counts tokens or asks for the verification
 * document. The proxy's other pages do not count.
 */
const isWork = ({ decision }: Exchange): boolean =>
  decision.kind === 'endpoint' ||
  (decision.kind === 'local' && (decision.id === 'count_tokens' || decision.id === 'verification'));

/** Responds as admission decided. Throws, or rejects with, the failure. */
function respondTo(exchange: Exchange, offered: readonly Offered[]): Promise<void> | undefined {
  const { deps, req, res, decision } = exchange;
  switch (decision.kind) {
    case 'endpoint':
      if (deps.dumper !== undefined) copyToDump(req, res, deps.dumper);
      deps.metrics.counters.requests += 1;
      return forward(exchange as ForwardedExchange);
    case 'local':
      if (decision.id === 'count_tokens') return respondTokenEstimate(exchange);
      if (decision.id === 'verification') return respondVerification(exchange);
      respondLocally(exchange, LOCAL_RESPONSES[decision.id](deps, offered));
      return undefined;
    case 'preflight':
      respondWhole(exchange, { status: 204, headers: decision.headers });
      return undefined;
    case 'refusal':
      exchange.failed(decision.error);
      respondError(exchange, decision.error, { allow: decision.allow });
      return undefined;
    case 'fault': // a fault of the program in one request must not end all the others
      exchange.faulty(decision.thrown);
      res.destroy();
      return undefined;
  }
}

const offeredBy = ({ verification, createTranslator }: GatewayDeps): readonly Offered[] => [
  ...(verification === undefined ? [] : (['verification'] as const)),
  ...(createTranslator === undefined ? [] : (['responses'] as const)),
];

const respondLocally = (exchange: Exchange, own: HealthResponse): void =>
  respondWhole(exchange, { ...own, headers: { ...own.headers, ...INERT_HEADERS, ...exchange.headers } });

const JSON_TYPE = { 'content-type': 'application/json', 'cache-control': 'no-store' };

async function respondVerification(exchange: Exchange): Promise<void> {
  const body = await untilAborted(exchange.deps.verification?.(), exchange.signal);
  if (body === undefined) throw new PrivatemodeError('internal', 'there is no document');
  respondLocally(exchange, { status: 200, headers: JSON_TYPE, body });
}

/**
 * Responds with an estimate, because the service counts no tokens and agents need a number to decide when to
 * compact a conversation.
 */
async function respondTokenEstimate(exchange: Exchange): Promise<void> {
  await enterGate(exchange);
  const { tokens, release } = await receive(exchange, tokenEstimateReader);
  release();
  const { headers, body } = estimateResponse(tokens, exchange.requestId);
  respondWhole(exchange, { status: 200, headers: { ...headers, ...exchange.headers }, body });
}

/** The responses of the proxy's own pages. */
const LOCAL_RESPONSES: Record<
  Exclude<LocalId, 'count_tokens' | 'verification'>,
  (deps: GatewayDeps, offered: readonly Offered[]) => HealthResponse
> = {
  root: () => ({
    ...healthzResponse(),
    body: `privatemode-proxy v${VERSION}\nAPI base URLs: /v1 (OpenAI style), / (Anthropic style)\n`,
  }),
  api: ({ aliases }, offered) => {
    const own = { name: 'privatemode-proxy', version: VERSION, endpoints: served(offered) };
    const about = aliases === undefined ? own : { ...own, model_aliases: [...aliases.keys()] };
    return { status: 200, headers: JSON_TYPE, body: `${JSON.stringify(about)}\n` };
  },
  healthz: healthzResponse,
  readyz: ({ session }) => readyzResponse(session.standing()),
};
