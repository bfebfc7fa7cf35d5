import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { asPrivatemodeError, type ErrorCode, listenFailed } from '../errors.ts';
import { type HealthAnswer, healthzAnswer, type Readiness, readyzAnswer } from './health.ts';
import type { Metrics } from './metrics.ts';

export interface AdminListener {
  readonly port: number;
  close(): Promise<void>;
}

/**
 * /metrics, /healthz and /readyz on a listener of their own (--metrics-address), so that whoever may use the
 * port of the applications does not see the traffic of others. GET and HEAD only, and not for web pages: a page whose name is
 * rebound to this address could read the metrics. Throws listen_failed.
 */
export async function startAdmin(options: {
  readonly host: string;
  /** 0: any free one. */
  readonly port: number;
  readonly metrics: Metrics;
  readonly readiness: () => Readiness;
  /** Throws the error for a request that a foreign web page sends, by its head. */
  readonly admit: (req: IncomingMessage) => void;
}): Promise<AdminListener> {
  const routes: Readonly<Record<string, () => HealthAnswer | Promise<HealthAnswer>>> = {
    '/metrics': async () => ({
      status: 200,
      headers: { 'content-type': options.metrics.contentType },
      body: await options.metrics.render(),
    }),
    '/healthz': healthzAnswer,
    '/readyz': () => readyzAnswer(options.readiness()),
  };

  const server = createServer({ requestTimeout: 10_000, headersTimeout: 10_000 }, async (req, res) => {
    try {
      options.admit(req);
    } catch (thrown) {
      const { status, code, message } = asPrivatemodeError(thrown);
      return send(res, refusal(status, code, `${code}: ${message}`));
    }
    const path = req.url?.split('?', 1)[0] ?? '';
    const route = Object.hasOwn(routes, path) ? routes[path] : undefined;
    if (route === undefined)
      return send(res, refusal(404, 'unknown_path', 'use /metrics, /healthz or /readyz'));
    if (req.method !== 'GET' && req.method !== 'HEAD')
      return send(res, refusal(405, 'method_not_allowed', 'use GET', { allow: 'GET, HEAD' }));
    try {
      send(res, await route());
    } catch {
      send(res, refusal(500, 'internal', 'the metrics could not be collected'));
    }
  });

  await new Promise<void>((resolve, reject) => {
    server.once('error', (cause: NodeJS.ErrnoException) => {
      reject(listenFailed(`--metrics-address ${options.host} port ${options.port}`, options.port, cause));
    });
    server.listen(options.port, options.host, resolve);
  });
  return {
    port: (server.address() as AddressInfo).port,
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}

function refusal(
  status: number,
  code: ErrorCode,
  text: string,
  headers: Record<string, string> = {},
): HealthAnswer {
  return {
    status,
    headers: { 'content-type': 'text/plain; charset=utf-8', 'privatemode-proxy-error': code, ...headers },
    body: `${text}\n`,
  };
}

function send(res: ServerResponse, { status, headers, body }: HealthAnswer): void {
  res.writeHead(status, { ...headers, 'x-content-type-options': 'nosniff' });
  res.end(body);
}
