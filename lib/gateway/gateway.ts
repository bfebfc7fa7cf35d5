/** Handles every request of an application: answers or forwards it, and reports it when it is over. */
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { type LocalId, served } from '../api/endpoints.ts';
import { estimateResponse, INERT_HEADERS } from '../api/error-response.ts';
import { PrivatemodeError } from '../errors.ts';
import { asksServing, type HealthResponse, healthzResponse, readyzResponse } from '../observe/health.ts';
import { tokenEstimateReader } from '../pipeline/token-estimate.ts';
import { VERSION } from '../version.ts';
import type { GatewayDeps } from './deps.ts';
import { reportEnd } from './end-of-request.ts';
import { Exchange, type ForwardedExchange } from './exchange.ts';
import { enterGate, forward } from './forward.ts';
import type { AppResponse } from './observed-response.ts';
import { breakConnection, concludeFailed, noteBroken, respondWhole } from './own-response.ts';
import { receive } from './receive.ts';

/** `handle` takes requests, and never throws. `active` counts running exchanges that did not end at once. */
export function createGateway(deps: GatewayDeps) {
  const { counters } = deps.metrics;
  const open = new Set<Exchange>();
  const running = new Set<Exchange>();
  let settled = (): void => {};
  // All exchanges share one listener: signals of their own would stay in memory (docs/architecture.md H25).
  deps.terminate.addEventListener('abort', () => {
    for (const exchange of running) exchange.abort(deps.terminate.reason);
  });

  function handle(req: IncomingMessage, res: ServerResponse): void {
    const exchange = new Exchange(deps, req, res as AppResponse); // the listener makes AppResponses
    open.add(exchange);
    res.on('error', () => {}); // an error means that the client has left, and 'close' follows
    res.on('timeout', (socket: Socket) => endUnread(exchange, socket));
    let isConcluded = false; // the outcome is known only when the response has been closed, too
    const over = (): void => {
      isConcluded = true;
      if (res.closed) end(exchange);
    };
    res.once('close', () => {
      exchange.closed();
      if (isConcluded) end(exchange);
    });
    const failed = (thrown: unknown): void => {
      concludeFailed(exchange, thrown);
      over();
    };
    try {
      const responded = respondTo(exchange);
      if (responded === undefined) return void over();
      running.add(exchange);
      counters.inFlight = running.size;
      if (deps.terminate.aborted) exchange.abort(deps.terminate.reason);
      responded.then(over, failed);
    } catch (thrown) {
      failed(thrown);
    }
  }

  function end(exchange: Exchange): void {
    open.delete(exchange);
    if (running.delete(exchange)) counters.inFlight = running.size;
    try {
      const { prompt = 0, completion = 0 } = exchange.stats.usage ?? {};
      exchange.permit?.release(prompt + completion);
      reportEnd(exchange);
    } catch (fault) {
      deps.log.error({ err: fault }, 'An exchange could not be closed');
    }
    if (open.size === 0) settled();
  }

  return {
    handle,
    active: (): number => running.size,
    /** Resolves when all exchanges are over and reported. */
    settled: () =>
      new Promise<void>((resolve) => {
        if (open.size === 0) resolve();
        else settled = resolve;
      }),
    events: (): number => [...running].reduce((sum, { decrypter }) => sum + (decrypter?.events ?? 0), 0),
  };
}

/** Called after `readerWait`. Breaks off a response of which the client read nothing in that time. */
function endUnread(exchange: Exchange, { writableLength }: Socket): void {
  if (writableLength === 0) return;
  const message = 'the client has taken nothing of its response for too long';
  noteBroken(exchange, new PrivatemodeError('response_not_read', message));
  breakConnection(exchange);
}

/** Starts the response. Returns undefined if all is written at once. Throws, or rejects with, the failure. */
function respondTo(exchange: Exchange): Promise<void> | undefined {
  const { deps, decision } = exchange;
  switch (decision.kind) {
    case 'endpoint':
      deps.dump?.(exchange.req, exchange.res);
      return forward(exchange as ForwardedExchange);
    case 'local': {
      const give = (page: HealthResponse): void => {
        const headers = { ...page.headers, ...INERT_HEADERS, ...exchange.headers };
        respondWhole(exchange, { ...page, headers });
      };
      const page = PAGES[decision.id](exchange);
      return page instanceof Promise ? page.then(give) : void give(page);
    }
    case 'preflight':
      return void respondWhole(exchange, { status: 204, headers: decision.headers });
    case 'refusal':
      throw decision.error;
  }
}

const JSON_TYPE = { 'content-type': 'application/json', 'cache-control': 'no-store' };

type Page = (exchange: Exchange) => HealthResponse | Promise<HealthResponse>;

const PAGES: Readonly<Record<LocalId, Page>> = {
  root: () => ({
    ...healthzResponse(),
    body: `privatemode-proxy v${VERSION}\nAPI base URLs: /v1 (OpenAI style), / (Anthropic style)\n`,
  }),
  api({ deps: { aliases, createTranslator } }) {
    const endpoints = served(createTranslator !== undefined);
    const own = { name: 'privatemode-proxy', version: VERSION, endpoints };
    const about = aliases === undefined ? own : { ...own, model_aliases: [...aliases.keys()] };
    return { status: 200, headers: JSON_TYPE, body: `${JSON.stringify(about)}\n` };
  },
  healthz: healthzResponse,
  readyz: ({ deps: { session, service }, req }) =>
    readyzResponse({ ...session.standing(), notServing: asksServing(req.url) && service?.notServing() }),
  /** The service counts no tokens, but agents need a number to decide when to compact a conversation. */
  async count_tokens(exchange) {
    await enterGate(exchange);
    const { tokens, release } = await receive(exchange, tokenEstimateReader);
    release();
    return { status: 200, ...estimateResponse(tokens, exchange.requestId) };
  },
};
