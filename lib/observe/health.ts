/**
 * The responses of `/healthz` and `/readyz`: whether the proxy is alive, and whether it is ready for
 * requests.
 */
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

/** `/healthz`: the process is alive. */
export const healthzResponse = (): HealthResponse => ({ status: 200, headers: TEXT, body: 'ok\n' });

export interface Readiness extends Standing {
  /** Whether the port for applications is open. Default: true, because the listener that answers is it. */
  readonly isServed?: boolean;
  /** Why requests do not get through to the service; nothing if nobody asked, or if they do. */
  readonly notServing?: string | false | undefined;
}

/** Whether a probe asks by `/readyz?serving` if requests get through to the service, too. */
export const asksServing = (target = ''): boolean =>
  new URLSearchParams(target.split('?', 2)[1]).has('serving');

/**
 * `/readyz`: whether clients should send requests to this proxy. 204 if so. 503 with the reason once the
 * proxy was told to stop, while it could not send a request to the service, while its port is closed, or
 * while what it sends does not get through.
 */
export function readyzResponse(asked: Readiness): HealthResponse {
  const { state, ready, awaitsKey, error, isServed = true, notServing } = asked;
  const refuse = (code: string, reason: string) => ({
    status: 503,
    // Whoever was told to stop will not be ready again.
    headers: { ...TEXT, ...(state === 'ended' ? END : AGAIN), 'privatemode-proxy-error': code },
    body: `${state}: ${reason}\n`,
  });
  if (state === 'ended') return refuse('shutting_down', 'the proxy was told to stop');
  if (!ready && error !== undefined) return refuse(error.code, `${error.code}: ${error.message}`);
  if (!ready) return refuse('not_ready', 'the remote is being verified');
  if (!isServed) return refuse('not_ready', 'the port for applications is closed');
  if (notServing) return refuse('not_ready', `${NOTICES.service_failing.title}: ${notServing}`);
  // With the key of the first client the proxy verifies the service, so a probe must not keep it away.
  const awaiting = awaitsKey ? { 'privatemode-proxy-state': 'awaiting-key' } : {};
  return { status: 204, headers: { ...NO_STORE, ...awaiting }, body: '' };
}
