import { once } from 'node:events';
import { createServer, type IncomingMessage } from 'node:http';
import type { AddressInfo } from 'node:net';
import { asPrivatemodeError, type ErrorCode, listenFailed } from '../errors.ts';
import { type HealthAnswer, healthzAnswer, type Readiness, readyzAnswer } from './health.ts';
import type { Metrics } from './metrics.ts';

export type AdminListener = Awaited<ReturnType<typeof startAdmin>>;

/**
 * /metrics, /healthz and /readyz on a listener of their own (--admin-address), so that whoever may use the
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
}) {
  const routes: Readonly<Record<string, () => HealthAnswer | Promise<HealthAnswer>>> = {
    '/metrics': async () => ({
      status: 200,
      headers: { 'content-type': options.metrics.contentType },
      body: await options.metrics.render(),
    }),
    '/healthz': healthzAnswer,
    '/readyz': () => readyzAnswer(options.readiness()),
  };

  const answer = async (req: IncomingMessage): Promise<HealthAnswer> => {
    try {
      options.admit(req);
    } catch (thrown) {
      const { status, code, message } = asPrivatemodeError(thrown);
      return refusal(status, code, `${code}: ${message}`);
    }
    const path = req.url?.split('?', 1)[0] ?? '';
    const route = Object.hasOwn(routes, path) ? routes[path] : undefined;
    if (route === undefined) return refusal(404, 'unknown_path', 'use /metrics, /healthz or /readyz');
    if (req.method !== 'GET' && req.method !== 'HEAD')
      return refusal(405, 'method_not_allowed', 'use GET', { allow: 'GET, HEAD' });
    return route();
  };
  const server = createServer({ requestTimeout: 10_000, headersTimeout: 10_000 }, async (req, res) => {
    const { status, headers, body } = await answer(req).catch(() =>
      refusal(500, 'internal', 'the metrics could not be collected'),
    );
    res.writeHead(status, { ...headers, 'x-content-type-options': 'nosniff' }).end(body);
  });

  const { host } = options;
  server.listen(options.port, host);
  await once(server, 'listening').catch((cause) => {
    throw listenFailed(`--admin-address ${host} port ${options.port}`, options.port, cause);
  });
  const { port } = server.address() as AddressInfo;
  return {
    port,
    async close(): Promise<void> {
      server.close();
      server.closeAllConnections();
      await once(server, 'close');
    },
  };
}

const refusal = (
  status: number,
  code: ErrorCode,
  text: string,
  headers: Readonly<Record<string, string>> = {},
): HealthAnswer => ({
  status,
  headers: { 'content-type': 'text/plain; charset=utf-8', 'privatemode-proxy-error': code, ...headers },
  body: `${text}\n`,
});
