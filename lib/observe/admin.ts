import { once } from 'node:events';
import { createServer, type IncomingMessage } from 'node:http';
import type { AddressInfo } from 'node:net';
import { asPrivatemodeError, type ErrorCode, listenFailed } from '../errors.ts';
import type { Standing } from '../session/standing.ts';
import { type VerificationDocument, verificationText } from '../transparency/verification-document.ts';
import { type HealthAnswer, healthzAnswer, readyzAnswer } from './health.ts';
import type { Metrics } from './metrics.ts';
import { loadStatusPage, verdictFacts } from './status-page.ts';
import type { StatusReport } from './status-report.ts';

export type AdminListener = Awaited<ReturnType<typeof startAdmin>>;

/** The content of the listener at the time of a request. */
export interface Shown {
  readonly metrics: Pick<Metrics, 'contentType' | 'render'>;
  readonly readiness: () => Standing;
  readonly status: () => Promise<StatusReport>;
  readonly verification: () => Promise<VerificationDocument>;
}

type Route = (
  shown: Shown & { readonly page: ReturnType<typeof loadStatusPage> },
) => HealthAnswer | Promise<HealthAnswer>;

type Routes = Readonly<Record<string, Route>>;

const METRICS_ROUTES: Routes = {
  '/metrics': async ({ metrics }) => ({
    status: 200,
    headers: { 'content-type': metrics.contentType },
    body: await metrics.render(),
  }),
  '/healthz': healthzAnswer,
  '/readyz': ({ readiness }) => readyzAnswer(readiness()),
};

const ADMIN_ROUTES: Routes = {
  '/': async ({ status, verification, page }) => ({
    status: 200,
    ...page.renderStatusPage(verdictFacts(await status(), await verification())),
  }),
  '/status': async ({ status }) => json(`${JSON.stringify(await status())}\n`),
  '/verification': async ({ verification }) => json(verificationText(await verification())),
  ...METRICS_ROUTES,
};

/** The listeners by the flags that ask for them: what each serves, and where the rest is. */
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

const json = (body: string): HealthAnswer => ({
  status: 200,
  headers: { 'content-type': 'application/json', 'cache-control': 'no-store' },
  body,
});

/**
 * The routes of `flag` on a listener of their own, so that whoever may use the port of the applications does not see the traffic of
 * others, and whoever reads the metrics (--metrics-address) not the clients and requests on the status page (--admin-address). GET and HEAD only, and not for web pages: a page whose name is rebound to this address could read what they show. Throws
 * listen_failed.
 */
export async function startAdmin({
  flag,
  host,
  admit,
  ...options
}: Shown & {
  readonly flag: keyof typeof LISTENERS;
  readonly host: string;
  /** 0: any free one. */
  readonly port: number;
  /** Throws the error for a request that a foreign web page sends, by its head. */
  readonly admit: (req: IncomingMessage) => void;
}) {
  const { routes, elsewhere } = LISTENERS[flag];
  const page = loadStatusPage();
  const answer = async (req: IncomingMessage): Promise<HealthAnswer> => {
    try {
      admit(req);
    } catch (thrown) {
      const { status, code, message } = asPrivatemodeError(thrown);
      return refusal(status, code, `${code}: ${message}`);
    }
    const path = req.url?.split('?', 1)[0] ?? '';
    const route = Object.hasOwn(routes, path) ? routes[path] : undefined;
    if (route === undefined)
      return refusal(404, 'unknown_path', `use ${Object.keys(routes).join(', ')}; ${elsewhere}`);
    if (req.method !== 'GET' && req.method !== 'HEAD')
      return refusal(405, 'method_not_allowed', 'use GET', { allow: 'GET, HEAD' });
    return route({ ...options, page });
  };
  const server = createServer({ requestTimeout: 10_000, headersTimeout: 10_000 }, async (req, res) => {
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
): HealthAnswer => ({
  status,
  headers: { 'content-type': 'text/plain; charset=utf-8', 'privatemode-proxy-error': code, ...headers },
  body: `${text}\n`,
});
