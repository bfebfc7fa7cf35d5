/**
 * Opens the sources of information for operators: the receipts, and the listeners of --admin-address and
 * --metrics-address. The table ROUTES says which routes each listener serves.
 */
import { once } from 'node:events';
import { createServer, type IncomingMessage } from 'node:http';
import type { AddressInfo } from 'node:net';
import { resolve } from 'node:path';
import type { Clock } from './clock.ts';
import type { Config } from './config/config.ts';
import { asPrivatemodeError, PrivatemodeError } from './errors.ts';
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
import { createTrafficLog } from './observe/recent-traffic.ts';
import type { ServiceWatch } from './observe/service-watch.ts';
import { loadStatusPage } from './observe/status-html.ts';
import { type Finished, type StatusReport, statusReport } from './observe/status-report.ts';
import { viewOf } from './observe/status-view.ts';
import { verificationDocument } from './observe/verification-document.ts';
import type { Shared } from './open-access.ts';
import { openReceiptLog, type ReceiptLog } from './receipts/receipt-log.ts';
import { VERSION } from './version.ts';

const DAY_MS = 86_400_000;

/** Opens the receipts of this instance, and writes their first line to disk. Throws receipts_unavailable. */
export async function openReceipts(
  { workspace, unsafeTrustRoots }: Config,
  { clock, log, counters, notices, opened }: Shared,
): Promise<ReceiptLog> {
  let forget = (): void => {}; // cancels the timer of the notice, because no event says that a loss is over
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
 * Opens the listeners of --admin-address and --metrics-address. Returns the function to call with each
 * finished request. Throws listen_failed.
 */
export async function openAdmin(
  { adminAddress, metricsAddress, allowedHosts, apiEndpoint, maxBufferedBytes, protocolVersion }: Config,
  { clock, log, counters, notices, opened }: Shared,
  seen: {
    readonly session: Parameters<typeof verificationDocument>[0]; // the `error` of a session is for operators
    readonly clients: { sha256(): string } | undefined;
    readonly service: ServiceWatch;
    readonly server: () => GatewayServer | undefined; // the server is undefined before it listens
  },
): Promise<(request: Finished) => void> {
  const { session, clients, server, service } = seen;
  const { standing } = session;
  if (adminAddress === undefined && metricsAddress === undefined) return () => {};
  // prom-client is imported only if needed, because loading it takes a tenth of the start.
  const { createMetrics } = await import('./observe/metrics.ts');
  const metrics = createMetrics({
    clock,
    counters,
    standing,
    notices: notices.list,
    certificateEnds: () => server()?.certificateEnds(),
    protection: session.current,
    serverAddress: apiEndpoint.host,
    maxBufferedBytes,
    clients: clients !== undefined,
  });
  const inFlight = () => counters.inFlight;
  const traffic = createTrafficLog({ inFlight, events: () => server()?.events() ?? 0 }, clock);
  opened.defer(() => traffic.close());
  const status = (): StatusReport => {
    const now = clock.now();
    const verification = verificationDocument(session, { protocol: protocolVersion, now });
    const [conditions, clientsFile] = [notices.list(), clients?.sha256()];
    const about = { now, conditions, traffic: traffic.snapshot(), verification, clientsFile };
    return statusReport(about, standing());
  };
  const readiness = (): Readiness => ({
    ...standing(),
    isServed: server()?.isOpen() ?? false,
    notServing: service.notServing(),
  });
  for (const [flag, address, what] of [
    ['admin-address', adminAddress, 'Serving status page and metrics'],
    ['metrics-address', metricsAddress, 'Serving metrics'],
  ] as const) {
    if (address === undefined) continue;
    const shown = { metrics, readiness, status, page: loadStatusPage() };
    const listener = await startAdmin({ ...address, ...shown, flag, clock, allowedHosts });
    opened.defer(() => listener.close());
    log.info({ admin: `http://${urlHost(address.host)}:${listener.port}` }, what);
  }
  return (request) => {
    metrics.observe(request);
    traffic.observe(request);
  };
}

export type AdminListener = Awaited<ReturnType<typeof startAdmin>>;

/** The data that a listener shows, read again for each request. */
interface Shown {
  readonly metrics: Pick<Metrics, 'contentType' | 'render'>;
  readonly readiness: () => Readiness;
  readonly status: () => StatusReport;
  readonly page: ReturnType<typeof loadStatusPage>;
}

type Route = (shown: Shown & { readonly target: string }) => HealthResponse | Promise<HealthResponse>;
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

/** The routes of each listener, by the flag that opens the listener. */
const ROUTES = {
  'admin-address': {
    '/': ({ page, status }) => page(viewOf(status())),
    '/status': ({ status }) => json(`${JSON.stringify(status())}\n`),
    '/verification': ({ status }) => json(`${JSON.stringify(status().verification, undefined, 2)}\n`),
    ...METRICS_ROUTES,
  },
  'metrics-address': METRICS_ROUTES,
} satisfies Record<string, Routes>;

const json = (body: string): HealthResponse => ({
  status: 200,
  headers: { 'content-type': 'application/json', 'cache-control': 'no-store' },
  body,
});

/**
 * Opens a separate listener for the routes of `flag`. The separate listener hides the traffic of other
 * clients from a client that may use the port for applications, and hides the clients and requests of the
 * status page (--admin-address) from a reader of the metrics (--metrics-address). Serves only GET and HEAD.
 * Refuses requests of web pages. By DNS rebinding, a foreign page could otherwise read the responses through
 * a host name that leads to this listener. Throws listen_failed.
 */
export async function startAdmin(
  options: Shown & {
    readonly clock: Clock;
    readonly flag: keyof typeof ROUTES;
    readonly host: string;
    readonly port: number; // the value 0 means any free port
    readonly allowedHosts: readonly string[]; // other names of this host, besides `host`
  },
) {
  const { flag, host, allowedHosts, clock } = options;
  const routes: Routes = ROUTES[flag];
  const policy = { allowedOrigins: [], ownNames: [host, ...allowedHosts] };
  const answer = async (req: IncomingMessage): Promise<HealthResponse> => {
    refuseForeignPage(req, policy);
    const { url: target = '' } = req;
    const path = target.split('?', 1)[0] as string;
    const route = Object.hasOwn(routes, path) ? routes[path] : undefined;
    if (route === undefined) {
      const paths = Object.keys(routes).join(', ');
      throw new PrivatemodeError('unknown_path', `--${flag} has ${paths}; applications use --port`);
    }
    if (req.method !== 'GET' && req.method !== 'HEAD')
      throw new PrivatemodeError('method_not_allowed', 'use GET');
    return route({ ...options, target });
  };
  const { adminTimeout } = clock.times;
  const limits = { requestTimeout: adminTimeout, headersTimeout: adminTimeout };
  const server = createServer(limits, async (req, res) => {
    // Node calls this for all requests that were sent ahead, at once: thousands of pages would be made.
    if (res.socket === null) return void req.socket.destroy();
    const { status, headers, body } = await answer(req).catch(refusal);
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

/** An error of another class may quote private text, so the response has a fixed text in its place. */
function refusal(thrown: unknown): HealthResponse {
  const { status, code, message } = asPrivatemodeError(thrown);
  const type = 'text/plain; charset=utf-8';
  const headers = { 'content-type': type, 'privatemode-proxy-error': code, allow: 'GET, HEAD' };
  return { status, headers, body: `${code}: ${message}\n` };
}
