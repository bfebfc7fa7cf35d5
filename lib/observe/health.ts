/**
 * The responses of `/healthz` and `/readyz`: whether the proxy is alive, and whether it is ready for
 * requests.
 */
import type { Standing } from '../session/standing.ts';

export interface HealthResponse {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
}

const NO_STORE = { 'cache-control': 'no-store' };
const TEXT = { 'content-type': 'text/plain; charset=utf-8', ...NO_STORE };

/** `/healthz`: the process is alive. */
export const healthzResponse = (): HealthResponse => ({ status: 200, headers: TEXT, body: 'ok\n' });

/** No `Retry-After`: this process will not be ready again. */
const ENDED: HealthResponse = {
  status: 503,
  headers: { ...TEXT, 'privatemode-proxy-error': 'shutting_down', connection: 'close' },
  body: 'ended: the proxy was told to stop\n',
};

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
export function readyzResponse({
  state,
  ready,
  awaitsKey,
  error,
  isServed = true,
  notServing,
}: Readiness): HealthResponse {
  if (state === 'ended') return ENDED;
  if (ready && isServed && !notServing) {
    // The proxy verifies the service with the key of the first client, so a probe must not keep that client
    // away.
    const awaiting = awaitsKey ? { 'privatemode-proxy-state': 'awaiting-key' } : {};
    return { status: 204, headers: { ...NO_STORE, ...awaiting }, body: '' };
  }
  const [code, reason] = !ready
    ? error === undefined
      ? ['not_ready', 'the remote is being verified']
      : [error.code, `${error.code}: ${error.message}`]
    : isServed
      ? ['not_ready', `the service cannot be reached: ${notServing}`]
      : ['not_ready', 'the port for applications is closed'];
  const headers = { ...TEXT, 'retry-after': '2', 'privatemode-proxy-error': code };
  return { status: 503, headers, body: `${state}: ${reason}\n` };
}
