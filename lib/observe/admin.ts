import { createServer, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { PrivatemodeError } from '../errors.ts';
import { type HealthAnswer, healthzAnswer, type Readiness, readyzAnswer } from './health.ts';
import type { Metrics } from './metrics.ts';

export interface AdminListener {
  readonly port: number;
  close(): Promise<void>;
}

/**
 * /metrics, /healthz and /readyz on a listener of their own (--metrics-address), so that the port of the
 * applications shows nothing of the traffic of others. GET and HEAD only. Throws listen_failed.
 */
export async function startAdmin(options: {
  readonly host: string;
  /** 0: any free one. */
  readonly port: number;
  readonly metrics: Metrics;
  readonly readiness: () => Readiness;
}): Promise<AdminListener> {
  const answers: Readonly<Record<string, () => HealthAnswer | Promise<HealthAnswer>>> = {
    '/metrics': async () => ({
      status: 200,
      headers: { 'content-type': options.metrics.contentType },
      body: await options.metrics.render(),
    }),
    '/healthz': healthzAnswer,
    '/readyz': () => readyzAnswer(options.readiness()),
  };

  const server = createServer({ requestTimeout: 10_000, headersTimeout: 10_000 }, async (req, res) => {
    const path = req.url?.split('?', 1)[0] ?? '';
    const answer = Object.hasOwn(answers, path) ? answers[path] : undefined;
    if (answer === undefined) return send(res, plain(404, 'use /metrics, /healthz or /readyz'));
    if (req.method !== 'GET' && req.method !== 'HEAD')
      return send(res, plain(405, 'use GET', { allow: 'GET, HEAD' }));
    try {
      send(res, await answer());
    } catch {
      send(res, plain(500, 'the metrics could not be collected'));
    }
  });

  await new Promise<void>((resolve, reject) => {
    server.once('error', (cause: NodeJS.ErrnoException) => {
      const words = `listening on --metrics-address ${options.host} port ${options.port}: ${cause.code ?? cause.message}`;
      reject(new PrivatemodeError('listen_failed', words, { cause }));
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

const plain = (status: number, text: string, headers: Record<string, string> = {}): HealthAnswer => ({
  status,
  headers: { 'content-type': 'text/plain; charset=utf-8', ...headers },
  body: `${text}\n`,
});

function send(res: ServerResponse, { status, headers, body }: HealthAnswer): void {
  res.writeHead(status, headers);
  res.end(body);
}
