/** Whether the proxy is alive and ready: what it answers. */
import { asPrivatemodeError } from '../errors.ts';
import type { Session } from '../session/session.ts';

export interface Readiness {
  readonly state: ReturnType<Session['state']>;
  readonly lastError: Error | undefined;
}

export interface HealthAnswer {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
}

const NO_STORE = { 'cache-control': 'no-store' };
const TEXT = { 'content-type': 'text/plain; charset=utf-8', ...NO_STORE };

/** `/healthz`: the process is alive. */
export const healthzAnswer = (): HealthAnswer => ({ status: 200, headers: TEXT, body: 'ok\n' });

/** `/readyz`: whether a request could be sent now, and if not, why. */
export function readyzAnswer({ state, lastError }: Readiness): HealthAnswer {
  switch (state) {
    case 'ready':
      return { status: 204, headers: NO_STORE, body: '' };
    case 'awaiting-key':
      // Ready for the first client, whose key the remote is verified with; a probe must not keep it away.
      return { status: 204, headers: { ...NO_STORE, 'privatemode-proxy-state': state }, body: '' };
    case 'starting':
    case 'failing': {
      const error = lastError && asPrivatemodeError(lastError);
      const reason = error === undefined ? 'the remote is being verified' : `${error.code}: ${error.message}`;
      const headers = { ...TEXT, 'retry-after': '2', 'privatemode-proxy-error': error?.code ?? 'not_ready' };
      return { status: 503, headers, body: `${state}: ${reason}\n` };
    }
  }
}
