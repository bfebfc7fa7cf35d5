/** The composition root: creates the parts of a proxy and connects them, in the order in which they start. */
import type { IncomingMessage } from 'node:http';
import { join, resolve } from 'node:path';
import { checkClients } from './access/clients.ts';
import type { TrustRoots } from './attestation/verify-evidence.ts';
import { type ConfiguredKey, configuredKey } from './config/api-key.ts';
import type { Config } from './config/config.ts';
import { endpointNote } from './config/environment.ts';
import { prepareWorkspace, readManifestFile } from './config/files.ts';
import { inheritedSocket } from './config/inherited-socket.ts';
import { parseStoreUrl } from './config/limits-store.ts';
import { openListeners } from './config/open-listeners.ts';
import { trustRoots, withSimulatorHint } from './config/trust-roots.ts';
import { socketPath } from './config/values.ts';
import { PrivatemodeError } from './errors.ts';
import { diskFailure } from './files/disk-failure.ts';
import { refuseForeignPage } from './gateway/admission.ts';
import { type GatewayServer, type GatewayServerDeps, startGatewayServer } from './gateway-server.ts';
import { openCountLog } from './limits/count-log.ts';
import { createRequestCounts } from './limits/count-requests.ts';
import { createFairQueue } from './limits/fair-queue.ts';
import type { RequestCounts } from './limits/limits.ts';
import { openRedisCounts } from './limits/redis-counts.ts';
import { createRequestGate, type RequestGate } from './limits/request-gate.ts';
import { claimSocket, SOCKET_UMASK } from './listener/listen.ts';
import { createManifestLog } from './manifest-log/manifest-log.ts';
import { plainHost, reachableHost, serviceUrl, urlHost } from './network/addresses.ts';
import { createCollateralStore } from './network/collateral-store.ts';
import { createControlCall } from './network/control-call.ts';
import { createOutbound, type Outbound } from './network/outbound.ts';
import { type Environment, loadTrustStore } from './network/trust-store.ts';
import { startAdmin } from './observe/admin.ts';
import { type Conditions, createConditions } from './observe/conditions.ts';
import { type Counters, createCounters } from './observe/counters.ts';
import type { Logger, StatusOutput } from './observe/log.ts';
import { watchOwnKey } from './observe/own-key.ts';
import { joinTraffic } from './observe/recent-traffic.ts';
import { runtimeDefect } from './observe/runtime-floor.ts';
import { isPreliminary, reportStart, sessionLog, watchStanding } from './observe/session-log.ts';
import { type StatusReport, statusReport } from './observe/status-report.ts';
import { createVerification } from './observe/verification-document.ts';
import { type Collected, watchRequests } from './observe/watch-requests.ts';
import { randomSalt } from './pipeline/inject-salt.ts';
import { openReceiptLog, type ReceiptLog } from './receipts/receipt-log.ts';
import { systemClock } from './session/clock.ts';
import { createCollateralCache } from './session/collateral-cache.ts';
import { createControlApi } from './session/control-api.ts';
import type { Observer } from './session/events.ts';
import type { Lifetimes } from './session/lifetimes.ts';
import { managedManifest, staticManifest } from './session/manifest-source.ts';
import { type AttestedSession, createSession, type SessionDeps } from './session/session.ts';
import type { Standing } from './session/standing.ts';
import { recordExchange } from './verdict/saved-exchange.ts';
import { VERSION } from './version.ts';
import { startWorkers } from './workers/primary.ts';

/** `reload` reads the key file again too. */
export interface RunningProxy
  extends Pick<GatewayServer, 'url' | 'port' | 'reload' | 'announceStop' | 'endGrace' | 'close'> {
  readonly session: AttestedSession;
  /** What this process counted; with several workers each counts for itself. */
  readonly counters: Counters;
}

const DAY_MS = 86_400_000;
/** ms between two looks at the state of the session. */
const STANDING_INTERVAL = 10_000;

/** ms that a worker gets beyond the grace of its streams before it is killed. */
const WORKER_PATIENCE = 5_000;

export interface ProxyEnvironment {
  /** SSL_CERT_FILE, https_proxy and no_proxy are read from here. */
  readonly env: Environment;
  readonly log: Logger;
  /** Called on errors that a retry cannot fix; the process is expected to end. */
  readonly onPermanent?: (error: PrivatemodeError) => void;
  /** A terminal for the line that changes during the start; undefined: none. */
  readonly status?: StatusOutput | undefined;
  /** For a simulated service that keeps its secrets for another time than the real one. */
  readonly lifetimes?: Lifetimes;
  /** Time limits of exchanges; tests wait less. */
  readonly patience?: GatewayServerDeps['patience'];
}

/** What the steps of a start share. */
interface Start extends Pick<ProxyEnvironment, 'env' | 'log'> {
  readonly config: Config;
  /** The parts to close at the end, in the reverse order. */
  readonly opened: AsyncDisposableStack;
  readonly counters: Counters;
  readonly conditions: Conditions;
  /** The certificates that outbound connections trust. */
  readonly authorities: readonly string[];
  readonly outbound: Outbound;
  readonly key: ConfiguredKey;
  /** Adds to an error what its operator should know about it. */
  readonly named: (error: PrivatemodeError) => PrivatemodeError;
  /**
   * Serves the applications once it listens: the gateway of this process, or the workers. It is set last,
   * because it needs all the rest.
   */
  serving: GatewayServer | undefined;
}

/**
 * Starts the proxy; the port is open when it resolves. Throws config_invalid, unsafe_roots_refused,
 * listen_failed.
 */
export async function startProxy(config: Config, environment: ProxyEnvironment): Promise<RunningProxy> {
  const { env, log, patience, status } = environment;
  await using opened = new AsyncDisposableStack(); // if the start fails, no half of a proxy goes on serving
  const fd = inheritedSocket(env);
  const createsSocket = fd === undefined && (await claimOwnSocket(config));
  const note = endpointNote(env, config);
  if (note !== undefined) log.info(note);
  prepareWorkspace(config.workspace);
  const counters = createCounters();
  const conditions = createConditions({ log });
  opened.defer(() => conditions.close());
  const authorities = loadTrustStore(env);
  const outbound = createOutbound(env, config.connectTimeout, authorities);
  opened.defer(() => outbound.close());
  const key = configuredKey(config);
  const named = (error: PrivatemodeError): PrivatemodeError =>
    withSimulatorHint(key.named(error), config, env);
  const start: Start = {
    ...{ config, env, log, opened, counters, conditions, authorities, outbound, key, named },
    serving: undefined,
  };

  const gate = await openGate(start);
  const receipts = config.receipts ? await openReceipts(start) : undefined;
  opened.defer(() => receipts?.close());
  const { adminAddress } = config;
  const statusPage =
    adminAddress === undefined || adminAddress.port === 0
      ? undefined
      : `http://${urlHost(reachableHost(adminAddress.host))}:${adminAddress.port}/`;
  const report = reportStart({ log, status, statusPage });
  opened.defer(() => report.close());
  const { session, verification } = await openVerifiedSession(start, environment, [
    sessionLog(log, counters, { forPeople: config.logFormat === 'text' }),
    report.observe,
    (event) => {
      if (event.type !== 'verdict') return;
      receipts?.keepVerdict(event.sha256, event.report, event.exchange);
    },
  ]);
  opened.defer(() => session.close());
  session.start();
  const watch = await openAdmin(start, { session, verification, instance: receipts?.instance });

  const shared = {
    ...{ session, key, gate, receipts, conditions, fd, log },
    observeOwnKey: watchOwnKey({ conditions, origin: key.origin }),
    salt: { shared: config.disablePromptCache ? undefined : (config.promptCacheSalt ?? randomSalt()) },
    verification: config.exposeVerification ? verification.text : undefined,
  };
  const server = await (config.workers > 1
    ? startWorkers({
        ...{ ...shared, config, authorities },
        patience: config.shutdownGrace + WORKER_PATIENCE,
        startingUmask: createsSocket ? SOCKET_UMASK : undefined,
        onPermanent: environment.onPermanent,
        workerEnded({ metrics = [], traffic }) {
          watch?.metrics.keepTotals(metrics);
          watch?.traffic.keepRefused(traffic.refused);
        },
      })
    : startGatewayServer(config, {
        ...{ ...shared, outbound, patience },
        metrics: { counters, observe: watch?.observe ?? (() => {}) },
      }));
  opened.defer(() => server.close());
  start.serving = server;
  server.sessionChanged(); // the state may have changed while the server was starting
  const { url, port } = server;
  // Only the open listener knows where a socket of systemd listens.
  noteSetUp(conditions, config, env, fd === undefined ? undefined : hostIn(url));
  log.info(
    { endpoint: url, workers: config.workers },
    url.startsWith('https') ? 'Starting HTTPS server' : 'Starting HTTP server without TLS',
  );
  report.listening(url, { awaitsKey: key.value() === undefined });

  const keyWatch = key.watch({
    onKey(next) {
      shared.observeOwnKey({ type: 'configured', key: next });
      session.updateConfiguredKey(next);
      server.sessionChanged();
      log.info('The API key file was read again');
    },
    onError: ({ message }) => conditions.set('api_key_file_unusable', message),
    onUsable: () => conditions.clear('api_key_file_unusable'),
  });
  opened.defer(() => keyWatch?.close());
  const running = opened.move();
  return {
    ...{ url, port, session, counters },
    reload() {
      server.reload();
      void keyWatch?.reload();
    },
    announceStop() {
      session.announceEnd();
      server.sessionChanged();
      server.announceStop();
    },
    endGrace: () => server.endGrace(),
    close: () => running.disposeAsync(),
  };
}

/** Sets the conditions that a start decides. `inherited`: as for `openListeners`. */
function noteSetUp(conditions: Conditions, config: Config, env: Environment, inherited?: string): void {
  for (const { listener, isMeant, message } of openListeners(config, env, inherited))
    conditions.set(`${listener}_open`, message, { severity: isMeant ? 'info' : 'warning' });
  const outdated = runtimeDefect(process.versions.node, {
    tls: config.tlsCertPath !== undefined,
    clientCertificates: config.tlsClientCa !== undefined,
  });
  if (outdated !== undefined) conditions.set('runtime_outdated', outdated);
}

/** The address in the URL of a listener; the URL itself for a socket file. */
const hostIn = (url: string): string =>
  socketPath(url) === undefined ? plainHost(new URL(url).hostname) : url;

/** Makes the path of the socket file free, if the proxy is to create one. Returns whether it is. */
async function claimOwnSocket({ listenAddress }: Config): Promise<boolean> {
  const socket = socketPath(listenAddress);
  if (socket !== undefined) await claimSocket(socket);
  return socket !== undefined;
}

/**
 * Opens the gate that gives requests their permits; undefined: they need none. Throws config_invalid, also if
 * the clients file cannot be used.
 */
async function openGate(start: Start): Promise<RequestGate | undefined> {
  const { clients: path, maxInFlight, tlsClientCa } = start.config;
  const needsKeys = start.key.value() === undefined;
  if (path !== undefined) await checkClients({ path, needsKeys, tokensOptional: tlsClientCa !== undefined });
  const counts = path === undefined ? undefined : await openCounts(start);
  start.opened.defer(() => counts?.close());
  const queue = maxInFlight === undefined ? undefined : createFairQueue(maxInFlight);
  return counts === undefined && queue === undefined ? undefined : createRequestGate({ counts, queue });
}

/** The versions for reports. `protocol`: the version that is announced to the service. */
const about = ({ protocolVersion: protocol }: Config) => ({ version: VERSION, protocol });

/**
 * Opens the session, and the document on what it verified. The session's events go to the observers, and then
 * to the part that serves. Throws config_invalid.
 */
async function openVerifiedSession(
  start: Start,
  { onPermanent, lifetimes }: ProxyEnvironment,
  observers: readonly Observer[],
) {
  const { config, conditions, log, opened, outbound, key, named } = start;
  const roots = trustRoots(config);
  let isOpen = false;
  const session: AttestedSession = await openSession(config, outbound, roots, {
    apiKey: key.value(),
    onPermanent: (error) => onPermanent?.(named(error)),
    lifetimes,
    recordExchange: config.receipts
      ? (collateral) => recordExchange(collateral, serviceUrl(config.apiEndpoint))
      : undefined,
    observe(event) {
      isOpen = isPreliminary(event, isOpen);
      const told = 'error' in event ? { ...event, error: named(event.error) } : event;
      for (const observe of observers) observe(told);
      verification.changed();
      setImmediate(() => {
        // once the session is in the state that the event reports
        start.serving?.sessionChanged();
        note();
      });
    },
  });
  const noteStanding = watchStanding({ conditions, log });
  const note = (): void => {
    if (isOpen) return;
    const { error, ...standing } = session.standing();
    // A condition that held until then is not over because the proxy is.
    if (standing.state === 'ended') return;
    noteStanding({ ...standing, error: error && named(error) });
  };
  const timer = setInterval(note, STANDING_INTERVAL).unref(); // no event reports the end of a secret
  opened.defer(() => clearInterval(timer));
  const verification = createVerification({
    ...{ ...about(config), workspace: config.workspace },
    epoch: session.current,
    standing: session.standing,
    verdict: session.lastVerdict,
  });
  return { session, verification };
}

/**
 * Opens the listeners of --admin-address and --metrics-address. Returns what wants to know of each request
 * that is over, and of each worker that ends; undefined: neither listener is set.
 */
async function openAdmin(
  start: Start,
  {
    session,
    verification,
    instance,
  }: Awaited<ReturnType<typeof openVerifiedSession>> & { readonly instance: string | undefined },
) {
  const { counters, conditions, log, opened, named } = start;
  const { adminAddress, metricsAddress, allowedHosts, apiEndpoint, clients, maxBufferedBytes, workers } =
    start.config;
  if (adminAddress === undefined && metricsAddress === undefined) return undefined;
  const startedAt = Date.now();
  const collect = async (withMetrics: boolean): Promise<readonly Collected[]> =>
    (await start.serving?.collect(withMetrics)) ?? [];
  const watch = await watchRequests({
    counters,
    events: () => start.serving?.events() ?? 0,
    conditions: conditions.list,
    certificateEnds: () => start.serving?.certificateEnds(),
    protection: session.current,
    standing: session.standing,
    serverAddress: apiEndpoint.host,
    maxBufferedBytes: workers > 1 ? 0 : maxBufferedBytes, // each worker shows its part
    clients: clients !== undefined,
    ...(workers > 1 ? { others: async () => (await collect(true)).map(({ metrics = [] }) => metrics) } : {}),
  });
  opened.defer(() => watch.traffic.close());
  const standing = (): Standing => {
    const found = session.standing();
    return { ...found, error: found.error && named(found.error) };
  };
  const status = async (): Promise<StatusReport> => {
    const collected = await collect(false);
    const traffic = joinTraffic([watch.traffic.snapshot(), ...collected.map((each) => each.traffic)]);
    const files = [start.serving?.clientsFile(), ...collected.map((each) => each.clientsFile)];
    const clientsFile = clients === undefined ? undefined : files.filter((each) => each !== undefined);
    const facts = {
      now: Date.now(),
      startedAt,
      workers,
      conditions: conditions.list(),
      traffic,
      clientsFile,
    };
    return statusReport({
      ...{ ...about(start.config), ...facts, session, standing: standing(), counters, instance },
    });
  };
  const shown = {
    metrics: watch.metrics,
    readiness: () => ({ ...standing(), isServed: (start.serving?.listening() ?? 0) > 0 }),
    status,
    verification: verification.document,
  };
  for (const [flag, address] of [
    ['admin-address', adminAddress],
    ['metrics-address', metricsAddress],
  ] as const) {
    if (address === undefined) continue;
    const policy = { allowedOrigins: [], ownNames: [address.host, ...allowedHosts] };
    const admit = (req: IncomingMessage): void => refuseForeignPage(req, policy);
    const listener = await startAdmin({ flag, ...address, ...shown, admit });
    opened.defer(() => listener.close());
    const what = flag === 'admin-address' ? 'Serving status page and metrics' : 'Serving metrics';
    log.info({ admin: `http://${urlHost(address.host)}:${listener.port}` }, what);
  }
  return watch;
}

/**
 * Opens the counts of the clients' requests and tokens, for all workers. They are kept in a Redis, or in the
 * memory of this process, which begins with the counts that were stored in the workspace.
 */
async function openCounts({ config, authorities, log, counters, conditions }: Start): Promise<RequestCounts> {
  const { workspace, limitsStore, limitsStoreFailure } = config;
  if (limitsStore !== undefined) {
    const { host, port } = parseStoreUrl(limitsStore, '--limits-store');
    const store = `${urlHost(host)}:${port}`;
    return openRedisCounts({
      ...{ url: limitsStore, onFailure: limitsStoreFailure, ca: authorities },
      connected: () => log.info({ store }, 'Connected to the store of the limits'),
      failed: (_error, reason) => conditions.set('limits_store_away', `${store}: ${reason}`),
      recovered: () => conditions.clear('limits_store_away'),
      unusable: (client, reason) =>
        conditions.set('client_counts_unusable', `${client}: ${reason}`, { of: client, fields: { client } }),
      usable: (client) => conditions.clear('client_counts_unusable', { of: client }),
      uncounted() {
        counters.uncounted += 1;
      },
    });
  }
  const stored = await openCountLog({
    workspace,
    onFailure: (error) => conditions.set('counts_waiting', diskFailure(resolve(workspace), error)),
    onRecovery: (lost) => conditions.clear('counts_waiting', { fields: { lost } }),
  });
  const { before, unreadable: lines } = stored;
  if (lines > 0)
    log.warn({ lines }, 'Some lines of the counts of the limits cannot be read, and are left out');
  return { ...createRequestCounts({ before, record: stored.add }), close: stored.close };
}

/** The loss of receipts with a worker that ended without its last messages. Perhaps it had none. */
const LAST_OF_WORKER = {
  of: 'workers', // a loss that is certain, and worse, stays beside it
  message: 'perhaps some, with a worker that ended before it had handed over its last ones',
  remedy:
    'The log says how the worker ended; often the system killed it for want of memory. The chain of the receipts shows the gap.',
  severity: 'warning',
  lasts: DAY_MS,
  fields: { lost: 'unknown' },
} as const;

/** Opens the receipts of this instance, with their first line on disk. Throws receipts_unavailable. */
async function openReceipts({ config, log, counters, conditions }: Start): Promise<ReceiptLog> {
  const opened = await openReceiptLog({
    ...{ workspace: config.workspace, version: VERSION, counters: counters.receipts },
    onFailure(error) {
      const remedy = error instanceof PrivatemodeError ? error.remedy : undefined;
      conditions.set('receipts_waiting', diskFailure(resolve(config.workspace), error), { remedy });
    },
    onRecovery: (lost) => conditions.clear('receipts_waiting', { fields: { lost } }),
    onLoss(lost) {
      if (lost === null) conditions.set('receipts_lost', LAST_OF_WORKER.message, LAST_OF_WORKER);
      else {
        const message = `${counters.receipts.lost} since the start`;
        conditions.set('receipts_lost', message, { lasts: DAY_MS, fields: { lost } });
      }
    },
    onUnpruned: ({ message: reason }) =>
      log.warn(
        { reason },
        'Old exchanges beside the receipts could not be removed; the next verification tries again',
      ),
    onReplaced: () =>
      conditions.set('receipts_moved', `${config.workspace}/receipts lacked the key`, { lasts: DAY_MS }),
  });
  const { instance, publicKey } = opened;
  if (opened.isKeyChanged)
    conditions.set(
      'receipts_key_changed',
      `${config.workspace}/receipts named another public key, or has receipts whose public key is not in its keys`,
      {
        lasts: DAY_MS,
      },
    );
  log.info({ instance, publicKey }, 'Each request gets a receipt, signed with this key');
  return opened;
}

/** Creates a session with the connections and files of `config`. Throws config_invalid. */
async function openSession(
  config: Config,
  outbound: Outbound,
  roots: TrustRoots,
  rest: Pick<SessionDeps, 'apiKey' | 'onPermanent' | 'lifetimes' | 'observe' | 'recordExchange'>,
): Promise<AttestedSession> {
  const { apiEndpoint: endpoint, manifestPath, cdnBaseUrl, amdKdsUrl, intelPcsUrl, workspace } = config;
  const call = createControlCall(outbound.dispatcher);
  const store = createCollateralStore(join(workspace, 'collateral'));
  return createSession({
    ...rest,
    clock: systemClock,
    random: Math.random,
    host: endpoint.host,
    control: createControlApi({ call, endpoint, protocolVersion: config.protocolVersion }),
    roots,
    collateral: createCollateralCache({ call, store, amdKdsUrl, intelPcsUrl, clock: systemClock }),
    manifests:
      manifestPath === undefined
        ? managedManifest({ call, cdnBaseUrl })
        : staticManifest(await readManifestFile(manifestPath)),
    manifestLog: createManifestLog(workspace),
  });
}
