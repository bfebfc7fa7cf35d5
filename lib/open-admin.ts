/**
 * Opens what operators read: the receipts, and the listeners of --admin-address and --metrics-address: which
 * routes each of them serves, and which requests it refuses.
 */
import { once } from 'node:events';
import { createServer, type IncomingMessage } from 'node:http';
import type { AddressInfo } from 'node:net';
import { resolve } from 'node:path';
import type { Clock } from './clock.ts';
import type { Config } from './config/config.ts';
import { asPrivatemodeError, type ErrorCode } from './errors.ts';
import { reasonOf } from './files/path-refusal.ts';
import { refuseForeignPage } from './gateway/admission.ts';
import type { GatewayServer } from './gateway-server.ts';
import { listenFailed } from './listener/listen.ts';
import { urlHost } from './network/addresses.ts';
import {
  asksServing,
  type HealthResponse,
  healthzResponse,
  type Readiness,
  readyzResponse,
} from './observe/health.ts';
import type { Metrics } from './observe/metrics.ts';
import type { ServiceWatch } from './observe/service-watch.ts';
import { loadStatusPage } from './observe/status-html.ts';
import { type StatusReport, statusReport } from './observe/status-report.ts';
import { viewOf } from './observe/status-view.ts';
import { type createVerification, verificationText } from './observe/verification-document.ts';
import { watchRequests } from './observe/watch-requests.ts';
import type { Shared } from './open-access.ts';
import { openReceiptLog, type ReceiptLog } from './receipts/receipt-log.ts';
import type { Session } from './session/session.ts';
import { VERSION } from './version.ts';

const DAY_MS = 86_400_000;

/** Opens the receipts of this instance, with their first line on disk. Throws receipts_unavailable. */
export async function openReceipts(
  { workspace, unsafeTrustRoots }: Config,
  { clock, log, counters, notices, opened }: Shared,
): Promise<ReceiptLog> {
  let forget = (): void => {}; // nobody sees the end of a loss
  opened.defer(() => forget());
  const receipts = await openReceiptLog({
    workspace,
    version: VERSION,
    roots: unsafeTrustRoots === undefined ? 'vendor' : 'custom',
    clock,
    counters: counters.receipts,
    onFailure: (error) => notices.set('receipts_unwritten', `${resolve(workspace)}: ${reasonOf(error)}`),
    onWritten: () => notices.clear('receipts_unwritten'),
    onLost() {
      forget();
      forget = clock.after(DAY_MS, () => notices.clear('receipts_lost'));
      notices.set('receipts_lost', `${counters.receipts.lost} lost since the start`);
    },
  });
  opened.defer(() => receipts.close());
  const { instance, publicKey } = receipts;
  log.info({ instance, publicKey }, 'Each request gets a receipt, signed with this key');
  return receipts;
}

/**
 * Opens the listeners of --admin-address and --metrics-address. Returns what wants to know of each request
 * that is over. Throws listen_failed.
 */
export async function openAdmin(
  { adminAddress, metricsAddress, allowedHosts, apiEndpoint, maxBufferedBytes, protocolVersion }: Config,
  { clock, log, counters, notices, opened }: Shared,
  seen: {
    readonly session: Pick<Session, 'current' | 'standing'>; // its error is what the operator should read
    readonly verification: Pick<ReturnType<typeof createVerification>, 'manifests' | 'document'>;
    readonly clients: { sha256(): string } | undefined;
    readonly receipts: Pick<ReceiptLog, 'instance'> | undefined;
    readonly service: ServiceWatch;
    readonly server: () => GatewayServer | undefined; // undefined before it listens
  },
) {
  const { verification, clients, receipts, server, service } = seen;
  const { current, standing } = seen.session;
  const listeners = [
    ['admin-address', adminAddress, 'Serving status page and metrics'],
    ['metrics-address', metricsAddress, 'Serving metrics'],
  ] as const;
  if (adminAddress === undefined && metricsAddress === undefined) return () => {};
  const startedAt = clock.now();
  const watch = await watchRequests({
    clock,
    counters,
    standing,
    events: () => server()?.events() ?? 0,
    notices: notices.list,
    certificateEnds: () => server()?.certificateEnds(),
    protection: current,
    serverAddress: apiEndpoint.host,
    maxBufferedBytes,
    clients: clients !== undefined,
  });
  opened.defer(() => watch.traffic.close());
  const status = async (): Promise<StatusReport> => {
    const manifests = await verification.manifests(); // all else is of one moment, so that it agrees
    const about = {
      protocol: protocolVersion,
      now: clock.now(),
      startedAt,
      conditions: notices.list(),
      traffic: watch.traffic.snapshot(),
      verification: verification.document(manifests),
      clientsFile: clients?.sha256(),
      receipts: receipts && { instance: receipts.instance, ...counters.receipts },
    };
    return statusReport(about, standing(), current());
  };
  for (const [flag, address, what] of listeners) {
    if (address === undefined) continue;
    const policy = { allowedOrigins: [], ownNames: [address.host, ...allowedHosts] };
    const listener = await startAdmin({
      ...address,
      flag,
      clock,
      admit: (req) => refuseForeignPage(req, policy),
      metrics: watch.metrics,
      readiness: () => ({
        ...standing(),
        isServed: server()?.isOpen() ?? false,
        notServing: service.notServing(),
      }),
      status,
    });
    opened.defer(() => listener.close());
    log.info({ admin: `http://${urlHost(address.host)}:${listener.port}` }, what);
  }
  return watch.observe;
}

export type AdminListener = Awaited<ReturnType<typeof startAdmin>>;

/** Sources of what the listener shows; each request reads them anew. */
interface Shown {
  readonly metrics: Pick<Metrics, 'contentType' | 'render'>;
  readonly readiness: () => Readiness;
  readonly status: () => Promise<StatusReport>;
}

type Route = (
  shown: Shown & { readonly page: ReturnType<typeof loadStatusPage>; readonly target: string },
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
  '/': async ({ page, status }) => page(viewOf(await status())),
  '/status': async ({ status }) => json(`${JSON.stringify(await status())}\n`),
  '/verification': async ({ status }) => json(verificationText((await status()).verification)),
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
