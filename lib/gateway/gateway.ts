/**
 * Handles every request of an application: admits it, then responds here or forwards it, and closes its
 * accounts at the end.
 */
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { type LocalId, type Offered, served } from '../api/endpoints.ts';
import { estimateResponse, INERT_HEADERS } from '../api/error-response.ts';
import type { EndpointMatch } from '../api/match-endpoint.ts';
import { PrivatemodeError } from '../errors.ts';
import { untilAborted } from '../http-rules/until-aborted.ts';
import { count } from '../observe/counters.ts';
import { type HealthResponse, healthzResponse, readyzResponse } from '../observe/health.ts';
import { tokenEstimateReader } from '../pipeline/token-estimate.ts';
import { VERSION } from '../version.ts';
import type { GatewayDeps } from './deps.ts';
import { enterGate } from './enter-gate.ts';
import { forward } from './forward.ts';
import { breakConnection, concludeFailed, noteBroken, respondError, respondWhole } from './own-response.ts';
import { receive } from './receive-body.ts';
import { copyToDump } from './request-dump.ts';
import { reportEnd } from './request-log.ts';
import { addReceipt } from './request-receipt.ts';
import { type Exchange, newExchange } from './request-state.ts';

export type Gateway = ReturnType<typeof createGateway>;

/**
 * Creates the gateway. `handle` is the listener for requests: it follows each request to its end, and never
 * throws. `active` counts the running exchanges (`isWork`).
 */
export function createGateway(deps: GatewayDeps) {
  const { counters } = deps.metrics;
  const offered = offeredBy(deps);
  // The running exchanges (`isWork`). One listener aborts all of them; class Life says why their signals do
  // not derive from `terminate`.
  const running = new Set<Exchange>();
  const unsettled = new Set<Promise<void>>();
  deps.terminate.addEventListener('abort', () => {
    for (const { life } of running) life.abort(deps.terminate.reason);
  });
  /**
   * Handles a request from its head until its response has been closed: only then the gateway knows how it
   * ended.
   */
  async function handle(req: IncomingMessage, res: ServerResponse): Promise<void> {
    res.on('error', () => {}); // the client has left, and 'close' follows
    const { exchange, admission } = newExchange(deps, { req, res, offered });
    res.on('timeout', (socket: Socket) => endUnread(exchange, socket));
    if (isWork(admission)) countAsRunning(exchange);
    try {
      await respondTo(exchange, admission).catch((thrown: unknown) => concludeFailed(exchange, thrown));
    } catch (fault) {
      exchange.accounts.faulty(fault);
      res.destroy();
    } finally {
      await exchange.life.closed;
      end(exchange);
    }
  }

  function track(req: IncomingMessage, res: ServerResponse): void {
    const handled = handle(req, res)
      .catch((fault: unknown) => deps.log.error({ err: fault }, 'An exchange could not be closed'))
      .finally(() => unsettled.delete(handled));
    unsettled.add(handled);
  }

  /**
   * Counts an exchange as running until its response is over. It is aborted when the grace period of a
   * shutdown is over.
   */
  function countAsRunning(exchange: Exchange): void {
    if (deps.terminate.aborted) exchange.life.abort(deps.terminate.reason);
    running.add(exchange);
    counters.inFlight = running.size;
  }

  function end(exchange: Exchange): void {
    const { res, match, life, accounts } = exchange;
    if (running.delete(exchange)) counters.inFlight = running.size;
    accounts.close();
    addReceipt(exchange, reportEnd(exchange));
    if (match !== undefined && !res.writableFinished && !life.broken)
      count(counters.clientAborts, life.phase);
  }

  return {
    handle: track,
    active: (): number => running.size,
    /**
     * Resolves when the accounts of all exchanges that have begun are closed. That may be a moment after
     * their connections have closed.
     */
    async settled(): Promise<void> {
      await Promise.all(unsettled);
    },
    /** How many events of streams the running exchanges have sent so far. */
    events: (): number => [...running].reduce((sum, { accounts }) => sum + accounts.events, 0),
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

type Decision = ReturnType<typeof newExchange>['admission'];

/**
 * Whether an exchange counts as running: it is forwarded, or it counts tokens or asks for the verification
 * document. The proxy's other pages do not count.
 */
const isWork = (admission: Decision): boolean =>
  admission.kind === 'endpoint' ||
  (admission.kind === 'local' && (admission.id === 'count_tokens' || admission.id === 'verification'));

/** Responds as admission decided. Rejects with the failure. */
async function respondTo(exchange: Exchange, admission: Decision): Promise<void> {
  switch (admission.kind) {
    case 'endpoint':
      return forwardTo(exchange, admission);
    case 'local':
      if (admission.id === 'count_tokens') return respondTokenEstimate(exchange);
      if (admission.id === 'verification') return respondVerification(exchange);
      return respondLocally(exchange, LOCAL_RESPONSES[admission.id](exchange.deps));
    case 'preflight':
      return respondWhole(exchange, { status: 204, headers: admission.headers });
    case 'refusal':
      exchange.accounts.failed(admission.error);
      return respondError(exchange, admission.error, { allow: admission.allow });
    case 'fault': // a fault of the program in one request must not end all the others
      exchange.accounts.faulty(admission.thrown);
      exchange.res.destroy();
  }
}

async function forwardTo(exchange: Exchange, match: EndpointMatch): Promise<void> {
  const { deps, req, res, caller, accounts } = exchange;
  if (deps.dumper !== undefined) copyToDump(req, res, deps.dumper);
  deps.metrics.counters.requests += 1;
  accounts.stage('queued');
  if (accounts.traced && match.dropped.length > 0) {
    caller.log.debug({ parameters: match.dropped.join(', ') }, 'Query parameters were dropped');
  }
  await forward({ ...exchange, match });
}

const offeredBy = ({ verification, createTranslator }: GatewayDeps): readonly Offered[] => [
  ...(verification === undefined ? [] : (['verification'] as const)),
  ...(createTranslator === undefined ? [] : (['responses'] as const)),
];

const respondLocally = (exchange: Exchange, own: HealthResponse): void =>
  respondWhole(exchange, {
    ...own,
    headers: { ...own.headers, ...INERT_HEADERS, ...exchange.caller.headers },
  });

const JSON_TYPE = { 'content-type': 'application/json', 'cache-control': 'no-store' };

async function respondVerification(exchange: Exchange): Promise<void> {
  const { deps, life } = exchange;
  const body = await untilAborted(deps.verification?.(), life.signal);
  if (body === undefined) throw new PrivatemodeError('internal', 'there is no document');
  respondLocally(exchange, { status: 200, headers: JSON_TYPE, body });
}

/**
 * Responds with an estimate, because the service counts no tokens and agents need a number to decide when to
 * compact a conversation.
 */
async function respondTokenEstimate(exchange: Exchange): Promise<void> {
  const { caller } = exchange;
  await enterGate(exchange);
  const estimate = await receive(exchange, tokenEstimateReader);
  estimate.release();
  const { headers, body } = estimateResponse(estimate.tokens, caller.requestId);
  respondWhole(exchange, { status: 200, headers: { ...headers, ...caller.headers }, body });
}

/** The responses of the proxy's own pages. */
const LOCAL_RESPONSES: Record<
  Exclude<LocalId, 'count_tokens' | 'verification'>,
  (deps: GatewayDeps) => HealthResponse
> = {
  root: () => ({
    ...healthzResponse(),
    body: `privatemode-proxy v${VERSION}\nAPI base URLs: /v1 (OpenAI style), / (Anthropic style)\n`,
  }),
  api: (deps) => {
    const own = { name: 'privatemode-proxy', version: VERSION, endpoints: served(offeredBy(deps)) };
    const aliases = [...(deps.aliases?.keys() ?? [])];
    const about = aliases.length > 0 ? { ...own, model_aliases: aliases } : own;
    return { status: 200, headers: JSON_TYPE, body: `${JSON.stringify(about)}\n` };
  },
  hello: healthzResponse,
  healthz: healthzResponse,
  readyz: ({ session }) => readyzResponse(session.standing()),
};
