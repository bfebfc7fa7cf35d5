/** Whether the proxy is alive and ready: what it answers, and how the command `healthcheck` asks it. */
import { get as httpGet, type IncomingMessage } from 'node:http';
import { get as httpsGet } from 'node:https';
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

const TIMEOUT_MS = 5_000;
const LONGEST_REASON = 1_000;

/**
 * Asks a proxy on this machine whether it is ready, for the `healthcheck` command of containers without a shell.
 * `listenAddress` as configured; where it stands for every interface, loopback is asked. Resolves with the text of /readyz,
 * or why it could not be asked; never rejects.
 */
export function probe(options: {
  readonly listenAddress: string;
  readonly port: number;
  readonly tls: boolean;
  readonly timeoutMs?: number;
}): Promise<{ readonly ready: boolean; readonly message: string }> {
  const { listenAddress, port, tls, timeoutMs = TIMEOUT_MS } = options;
  const host = { '0.0.0.0': '127.0.0.1', '::': '::1' }[listenAddress] ?? listenAddress;
  return new Promise((resolve) => {
    const failed = (message: string): void => resolve({ ready: false, message });
    const onResponse = (response: IncomingMessage): void => {
      let reason = '';
      response.setEncoding('utf8').on('data', (text: string) => {
        reason = (reason + text).slice(0, LONGEST_REASON);
      });
      const { statusCode } = response;
      if (statusCode === 204) resolve({ ready: true, message: 'ready' });
      else response.on('end', () => failed(`not ready (status ${statusCode}): ${reason.trim()}`));
      response.on('error', ({ message }) => failed(message));
    };
    const target = { host, port, path: '/readyz', agent: false };
    // The certificate is the operator's own and need not name loopback; nothing secret is sent, and one bit believed.
    const request = tls
      ? httpsGet({ ...target, rejectUnauthorized: false }, onResponse)
      : httpGet(target, onResponse);
    const tooLate = new Error(`no answer within ${timeoutMs} ms`);
    const deadline = setTimeout(() => request.destroy(tooLate), timeoutMs);
    request.on('close', () => clearTimeout(deadline));
    request.on('error', ({ code, message }: NodeJS.ErrnoException) => {
      const hint = 'give the --listen-address and --port of the proxy';
      const nobody = `nothing listens on ${host} port ${port} (ECONNREFUSED); ${hint}`;
      failed(code === 'ECONNREFUSED' ? nobody : message);
    });
  });
}
