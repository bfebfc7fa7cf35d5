import { get as httpGet, type IncomingMessage } from 'node:http';
import { get as httpsGet } from 'node:https';

const TIMEOUT_MS = 5_000;
const LONGEST_REASON = 1_000;

export interface HealthcheckResult {
  readonly ready: boolean;
  /** The text of /readyz, or why it could not be asked. */
  readonly message: string;
}

/**
 * Asks a proxy on this machine whether it is ready, for the `healthcheck` command of containers without a shell.
 * `listenAddress` as configured; where it stands for every interface, loopback is asked. Never rejects.
 */
export function probe(options: {
  readonly listenAddress: string;
  readonly port: number;
  readonly tls: boolean;
  readonly timeoutMs?: number;
}): Promise<HealthcheckResult> {
  const host = { '0.0.0.0': '127.0.0.1', '::': '::1' }[options.listenAddress] ?? options.listenAddress;
  const timeoutMs = options.timeoutMs ?? TIMEOUT_MS;
  const target = { host, port: options.port, path: '/readyz', agent: false, timeout: timeoutMs };
  return new Promise((resolve) => {
    const failed = (message: string): void => resolve({ ready: false, message });
    const onResponse = (response: IncomingMessage): void => {
      const { statusCode } = response;
      if (statusCode === 204) {
        response.resume();
        resolve({ ready: true, message: 'ready' });
        return;
      }
      let reason = '';
      response.setEncoding('utf8').on('data', (text: string) => {
        reason = (reason + text).slice(0, LONGEST_REASON);
      });
      response.on('end', () => failed(`not ready (status ${statusCode}): ${reason.trim()}`));
      response.on('error', (error) => failed(error.message));
    };
    // The certificate is the operator's own and need not name loopback; nothing secret is sent, and one bit believed.
    const request = options.tls
      ? httpsGet({ ...target, rejectUnauthorized: false }, onResponse)
      : httpGet(target, onResponse);
    const deadline = setTimeout(
      () => request.destroy(new Error(`no answer within ${timeoutMs} ms`)),
      timeoutMs,
    );
    request.on('close', () => clearTimeout(deadline));
    request.on('error', (error: NodeJS.ErrnoException) =>
      failed(
        error.code === 'ECONNREFUSED'
          ? `nothing listens on ${host} port ${options.port} (ECONNREFUSED); give the --listen-address and --port of the proxy`
          : error.message,
      ),
    );
  });
}
