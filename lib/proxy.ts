/** The composition root: creates the parts of a proxy and connects them, in the order of their start. */
import { join } from 'node:path';
import { type Clock, every, systemClock } from './clock.ts';
import { configuredKey } from './config/api-key.ts';
import type { Config } from './config/config.ts';
import { trustRoots, withSimulatorHint } from './config/hardware-roots.ts';
import { inheritedSocket } from './config/inherited-socket.ts';
import { givenManifest, prepareWorkspace } from './config/input-files.ts';
import { tellReach } from './config/rules.ts';
import type { PrivatemodeError } from './errors.ts';
import { type GatewayServer, startGatewayServer } from './gateway-server.ts';
import { createManifestLog } from './manifest-log.ts';
import { reachableHost, serviceUrl, urlHost } from './network/addresses.ts';
import { createCollateralStore } from './network/collateral-store.ts';
import { createOutbound } from './network/outbound.ts';
import type { Environment } from './network/outbound-proxy.ts';
import { loadTrustStore } from './network/trust-store.ts';
import { createCounters } from './observe/counters.ts';
import type { Logger, StatusOutput } from './observe/log.ts';
import { createNotices, whileUnusable } from './observe/notices.ts';
import { runtimeDefect } from './observe/runtime-floor.ts';
import { watchService } from './observe/service-watch.ts';
import { reportStart, sessionLog } from './observe/session-log.ts';
import { openAccess } from './open-access.ts';
import { openAdmin, openReceipts } from './open-admin.ts';
import { randomSalt } from './pipeline/inject-salt.ts';
import { createCollateralCache } from './session/collateral-cache.ts';
import { createControlApi, managedManifest } from './session/control-api.ts';
import { createSession } from './session/session.ts';
import { recordExchange } from './verdict/record.ts';

export type RunningProxy = Awaited<ReturnType<typeof startProxy>>;

interface ProxyEnvironment {
  readonly env: Environment;
  readonly log: Logger;
  /** Called with an error that a retry cannot resolve. The process is expected to end. */
  readonly onPermanent?: (error: PrivatemodeError) => void;
  readonly status?: StatusOutput | undefined; // the terminal that shows the progress of the start
  readonly clock?: Clock;
  readonly warmConnections?: number; // the number of connections to the service that are kept ready
}

/**
 * Starts the proxy. Resolves when the port is open. With --reuse-port, only `opened` waits for it. Throws
 * config_invalid, unsafe_roots_refused, receipts_unavailable, listen_failed, and errors of givenManifest.
 */
export async function startProxy(config: Config, environment: ProxyEnvironment) {
  const { env, log, status, onPermanent = () => {}, clock = systemClock } = environment;
  const { apiEndpoint: endpoint, adminAddress: admin, manifestPath, workspace } = config;
  await using opened = new AsyncDisposableStack(); // if the start fails, ends the parts that have started
  const fd = inheritedSocket(env);
  prepareWorkspace(workspace);
  const counters = createCounters();
  const notices = createNotices(log, clock, standing);
  const service = watchService(notices, clock);
  const shared = { clock, log, counters, notices, opened };

  const authorities = loadTrustStore(env);
  const outbound = createOutbound(env, { connectTimeout: clock.times.connectTimeout, clock, authorities });
  opened.defer(() => outbound.close());
  const key = configuredKey(config.apiKey);
  /** Adds to an error the facts that only the operator should know. */
  const named = (error: PrivatemodeError) => withSimulatorHint(key.named(error), config);
  const salt = config.disablePromptCache ? undefined : (config.promptCacheSalt ?? randomSalt());
  const access = await openAccess(config, shared, key, salt, authorities);
  const receipts = config.receipts ? await openReceipts(config, shared) : undefined;

  let server: GatewayServer | undefined; // set last, because it needs all other parts
  // With port 0, the address of the status page is not known yet.
  const statusPage = admin?.port ? `http://${urlHost(reachableHost(admin.host))}:${admin.port}/` : undefined;
  const report = reportStart(clock, log, status, statusPage);
  opened.defer(() => report.close());
  const logEvent = sessionLog(log, counters);
  const control = { ...config, endpoint, clock, call: outbound.call };
  const store = createCollateralStore(join(workspace, 'collateral'));
  const given = manifestPath === undefined ? undefined : await givenManifest(manifestPath);
  const session = createSession({
    clock,
    random: Math.random,
    host: endpoint.host,
    roots: trustRoots(config),
    control: createControlApi(control),
    collateral: createCollateralCache({ ...control, store }),
    manifests: given === undefined ? managedManifest(control) : { kind: 'static', newest: given.current },
    manifestLog: createManifestLog(workspace),
    recordExchange: receipts && ((asked) => recordExchange(asked, serviceUrl(endpoint))),
    onPermanent: (error) => onPermanent(named(error)),
    observe(event) {
      const told = 'error' in event ? { ...event, error: named(event.error) } : event;
      logEvent(told);
      report.observe(told);
      if (told.type === 'epoch') service.answered();
      setImmediate(look); // `look` runs after the event, in the state that the event reports
    },
  });
  opened.defer(() => session.close());
  function standing() {
    const now = session.standing();
    return { ...now, error: now.error && named(now.error) };
  }
  function look(): void {
    server?.sessionChanged();
    notices.look();
  }
  opened.defer(every(clock, clock.times.standingLook, look)); // no event reports the expiry of a secret
  session.updateConfiguredKey(key.value());

  const seen = { ...access, service, session: { ...session, standing }, server: () => server };
  const observe = await openAdmin(config, shared, seen);
  server = await startGatewayServer(config, {
    ...shared,
    ...access,
    service,
    fd,
    outbound,
    session,
    key,
    receipts,
    salt: { shared: salt },
    metrics: { counters, observe },
    warmConnections: environment.warmConnections,
    onPermanent,
  });
  const { url, host, announceStop } = server;
  opened.defer(server.close);
  const kind = config.tlsCertPath === undefined ? 'HTTP server without TLS' : 'HTTPS server';
  log.info({ endpoint: url }, `Starting ${kind}`);
  // Only an open listener knows the address of a socket that systemd passed.
  tellReach(config, env, log, fd === undefined ? undefined : host);
  const outdated = runtimeDefect(process.versions.node);
  if (outdated !== undefined) log.info(outdated);
  report.listening(url, { awaitsKey: key.value() === undefined });

  const keyWatch = key.watch({
    clock,
    changed(next) {
      session.updateConfiguredKey(next);
      access.ownKeys.replaced();
      log.info('The API key file was read again');
    },
    ...whileUnusable(notices, 'api_key_file_unusable'),
  });
  opened.defer(() => keyWatch?.close());
  const manifestWatch = given?.watch({
    clock,
    changed: () => log.info('The manifest file was read again; the next verification expects it'),
    ...whileUnusable(notices, 'manifest_file_unusable'),
  });
  opened.defer(() => manifestWatch?.close());
  const parts = opened.move();
  return {
    ...server,
    session,
    counters,
    /** Checks at once whether any followed file has changed. */
    reload() {
      for (const followed of [server, access.clients, keyWatch, manifestWatch]) void followed?.reload();
    },
    /** Announces the end to clients as the server does, and makes /readyz respond with status 503. */
    announceStop() {
      session.announceEnd();
      announceStop();
    },
    close: () => parts.disposeAsync(),
  };
}
