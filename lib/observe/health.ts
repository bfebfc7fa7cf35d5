/** Whether the proxy is alive and ready: what it answers. */
import type { Standing } from '../session/standing.ts';

export interface HealthAnswer {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
}

const NO_STORE = { 'cache-control': 'no-store' };
const TEXT = { 'content-type': 'text/plain; charset=utf-8', ...NO_STORE };

/** `/healthz`: the process is alive. */
export const healthzAnswer = (): HealthAnswer => ({ status: 200, headers: TEXT, body: 'ok\n' });

/** No `Retry-After`: this process will not be ready again. */
const ENDED: HealthAnswer = {
  status: 503,
  headers: { ...TEXT, 'privatemode-proxy-error': 'shutting_down', connection: 'close' },
  body: 'ended: the proxy was told to stop\n',
};

/** `/readyz`: whether to send requests here. 503 once the proxy was told to stop, or where a request could not be sent now, with the reason. */
export function readyzAnswer({ state, ready, awaitsKey, error }: Standing): HealthAnswer {
  if (state === 'ended') return ENDED;
  if (ready) {
    // With the key of the first client the service is verified; a probe must not keep that client away.
    const awaiting = awaitsKey ? { 'privatemode-proxy-state': 'awaiting-key' } : {};
    return { status: 204, headers: { ...NO_STORE, ...awaiting }, body: '' };
  }
  const reason = error === undefined ? 'the remote is being verified' : `${error.code}: ${error.message}`;
  const headers = { ...TEXT, 'retry-after': '2', 'privatemode-proxy-error': error?.code ?? 'not_ready' };
  return { status: 503, headers, body: `${state}: ${reason}\n` };
}
