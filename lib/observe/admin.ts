/**
 * The HTTP listeners for operators (--admin-address, --metrics-address): which routes each of them serves,
 * and which requests it refuses.
 */
import { once } from 'node:events';
import { createServer, type IncomingMessage } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { Clock } from '../clock.ts';
import { asPrivatemodeError, type ErrorCode } from '../errors.ts';
import { listenFailed } from '../listener/listen.ts';
import {
  asksServing,
  type HealthResponse,
  healthzResponse,
  type Readiness,
  readyzResponse,
} from './health.ts';
import type { Metrics } from './metrics.ts';
import { loadStatusPage, type StatusPage } from './status-page.ts';
import type { StatusReport } from './status-report.ts';
import { type VerificationDocument, verificationText } from './verification-document.ts';

export type AdminListener = Awaited<ReturnType<typeof startAdmin>>;

/** Sources of what the listener shows; each request reads them anew. */
export interface Shown {
  readonly metrics: Pick<Metrics, 'contentType' | 'render'>;
  readonly readiness: () => Readiness;
  readonly status: () => StatusReport;
  readonly verification: () => Promise<VerificationDocument>;
}

type Route = (
  shown: Shown & { readonly page: StatusPage; readonly target: string },
) => HealthResponse | Promise<HealthResponse>;

type Routes = Readonly<Record<string, Route>>;

const METRICS_ROUTES: Routes = {
  '/metrics': async ({ metrics }) => ({
    status: 200,
    headers: { 'content-type': metrics.contentType },
    body: await metrics.render(),
  }),
  '/healthz': healthzResponse,
  '/readyz'({ readiness, target }) {
    const { notServing, ...ready } = readiness();
    return readyzResponse({ ...ready, notServing: asksServing(target) && notServing });
  },
};

const ADMIN_ROUTES: Routes = {
  '/': ({ page }) => ({ status: 200, ...page }),
  '/status': ({ status }) => json(`${JSON.stringify(status())}\n`),
  '/verification': async ({ verification }) => json(verificationText(await verification())),
  ...METRICS_ROUTES,
};

/**
 * The listeners by the flags that open them: the routes of each, and a hint where the other endpoints are.
 */
const LISTENERS = {
  'admin-address': {
    routes: ADMIN_ROUTES,
    elsewhere: 'the endpoints for applications are on the other port (--port)',
  },
  'metrics-address': {
    routes: METRICS_ROUTES,
    elsewhere:
      'the status page is on the listener of --admin-address, the endpoints for applications on --port',
  },
} as const;

const json = (body: string): HealthResponse => ({
  status: 200,
  headers: { 'content-type': 'application/json', 'cache-control': 'no-store' },
  body,
});

/**
 * Opens a listener of its own for the routes of `flag`. A client that may use the port for applications thus
 * does not see the traffic of others, and a reader of the metrics (--metrics-address) does not see the
 * clients and requests on the status page (--admin-address). Serves GET and HEAD only. Refuses requests of
 * web pages: a page whose host name is rebound to this address could read the responses. Throws
 * listen_failed.
 */
export async function startAdmin({
  flag,
  host,
  admit,
  clock,
  ...options
}: Shown & {
  readonly clock: Clock;
  readonly flag: keyof typeof LISTENERS;
  readonly host: string;
  /** 0: any free port. */
  readonly port: number;
  /** Throws an error if the head of the request shows that a foreign web page sent it. */
  readonly admit: (req: IncomingMessage) => void;
}) {
  const { routes, elsewhere } = LISTENERS[flag];
  const page = loadStatusPage();
  const answer = async (req: IncomingMessage): Promise<HealthResponse> => {
    try {
      admit(req);
    } catch (thrown) {
      const { status, code, message } = asPrivatemodeError(thrown);
      return refusal(status, code, `${code}: ${message}`);
    }
    const { url: target = '' } = req;
    const path = target.split('?', 1)[0] as string;
    const route = Object.hasOwn(routes, path) ? routes[path] : undefined;
    if (route === undefined)
      return refusal(404, 'unknown_path', `use ${Object.keys(routes).join(', ')}; ${elsewhere}`);
    if (req.method !== 'GET' && req.method !== 'HEAD')
      return refusal(405, 'method_not_allowed', 'use GET', { allow: 'GET, HEAD' });
    return route({ ...options, page, target });
  };
  const { adminTimeout } = clock.times;
  const limits = { requestTimeout: adminTimeout, headersTimeout: adminTimeout };
  const server = createServer(limits, async (req, res) => {
    const { status, headers, body } = await answer(req).catch(() =>
      refusal(500, 'internal', 'what was asked for could not be collected'),
    );
    res.writeHead(status, { ...headers, 'x-content-type-options': 'nosniff' }).end(body);
  });

  server.listen(options.port, host);
  await once(server, 'listening').catch((cause) => {
    throw listenFailed(`--${flag} ${host} port ${options.port}`, options.port, cause);
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
): HealthResponse => ({
  status,
  headers: { 'content-type': 'text/plain; charset=utf-8', 'privatemode-proxy-error': code, ...headers },
  body: `${text}\n`,
});
