/** The responses of `/healthz` (is the proxy alive?) and `/readyz` (is the proxy ready for requests?). */
import type { Standing } from '../session/standing.ts';
import { NOTICES } from './notices.ts';

export interface HealthResponse {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
}

const NO_STORE = { 'cache-control': 'no-store' };
const TEXT = { 'content-type': 'text/plain; charset=utf-8', ...NO_STORE };
const [AGAIN, END] = [{ 'retry-after': '2' }, { connection: 'close' }];

/** The response of `/healthz`: always 200, because a process that responds is alive. */
export const healthzResponse = (): HealthResponse => ({ status: 200, headers: TEXT, body: 'ok\n' });

export interface Readiness extends Standing {
  /** Whether the port for applications is open. Default: true. A probe on that port shows that it is open. */
  readonly isServed?: boolean;
  /** Why requests do not reach the service. Set only for a probe with `?serving`, while requests fail. */
  readonly notServing?: string | false | undefined;
}

/** Whether a probe asks, by `/readyz?serving`, if requests get through to the service. */
export const asksServing = (target = ''): boolean =>
  new URLSearchParams(target.split('?', 2)[1]).has('serving');

/**
 * The response of `/readyz`: 204 if clients should send requests to this proxy, otherwise 503 with the
 * reason. The reasons: the proxy was told to stop, it cannot send a request to the service, its port is
 * closed, or requests do not get through to the service.
 */
export function readyzResponse(asked: Readiness): HealthResponse {
  const { state, ready, awaitsKey, error, isServed = true, notServing } = asked;
  const refuse = (code: string, reason: string) => ({
    status: 503,
    // A proxy that was told to stop sends no Retry-After, because it will not be ready again.
    headers: { ...TEXT, ...(state === 'ended' ? END : AGAIN), 'privatemode-proxy-error': code },
    body: `${state}: ${reason}\n`,
  });
  if (state === 'ended') return refuse('shutting_down', 'the proxy was told to stop');
  if (!ready && error !== undefined) return refuse(error.code, `${error.code}: ${error.message}`);
  if (!ready) return refuse('not_ready', 'the remote is being verified');
  if (!isServed) return refuse('not_ready', 'the port for applications is closed');
  if (notServing) return refuse('not_ready', `${NOTICES.service_failing.title}: ${notServing}`);
  // Without a key of its own, the proxy verifies the service with the key of the first client. Before a
  // client has sent a key, the proxy counts as ready: otherwise load balancers would keep the first client
  // away.
  const awaiting = awaitsKey ? { 'privatemode-proxy-state': 'awaiting-key' } : {};
  return { status: 204, headers: { ...NO_STORE, ...awaiting }, body: '' };
}
