import { asPrivatemodeError } from '../errors.ts';

/** What the session says of itself (lib/session/session.ts). */
export interface Readiness {
  readonly state: 'ready' | 'awaiting-key' | 'starting' | 'failing';
  readonly lastError: Error | undefined;
}

export interface HealthAnswer {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
}

const TEXT = { 'content-type': 'text/plain; charset=utf-8', 'cache-control': 'no-store' };

/** `/healthz`: the process is alive. */
export function healthzAnswer(): HealthAnswer {
  return { status: 200, headers: TEXT, body: 'ok\n' };
}

/** `/readyz` (design decision 13): whether a request could be sent now, and if not, why. */
export function readyzAnswer({ state, lastError }: Readiness): HealthAnswer {
  switch (state) {
    case 'ready':
      return { status: 204, headers: { 'cache-control': 'no-store' }, body: '' };
    case 'awaiting-key':
      // Ready for the first client, whose key will attest; a probe must not keep it away.
      return {
        status: 204,
        headers: { 'cache-control': 'no-store', 'privatemode-proxy-state': 'awaiting-key' },
        body: '',
      };
    case 'starting':
    case 'failing': {
      const error = lastError && asPrivatemodeError(lastError);
      const reason = error === undefined ? 'the remote is being verified' : `${error.code}: ${error.message}`;
      const headers = { ...TEXT, 'retry-after': '2', 'privatemode-proxy-error': error?.code ?? 'not_ready' };
      return { status: 503, headers, body: `${state}: ${reason}\n` };
    }
  }
}
