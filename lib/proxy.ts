/** The composition root: creates the parts of a proxy and connects them, in the order in which they start. */
import { join } from 'node:path';
import type { TrustRoots } from './attestation/verify-evidence.ts';
import { type Clock, every, systemClock } from './clock.ts';
import { type ConfiguredKey, configuredKey } from './config/api-key.ts';
import type { Config } from './config/config.ts';
import { endpointNote } from './config/environment.ts';
import { prepareWorkspace, readManifestFile } from './config/files.ts';
import { inheritedSocket } from './config/inherited-socket.ts';
import { openListeners } from './config/open-listeners.ts';
import { trustRoots, withSimulatorHint } from './config/trust-roots.ts';
import { socketPath } from './config/values.ts';
import type { PrivatemodeError } from './errors.ts';
import { type GatewayServer, startGatewayServer } from './gateway-server.ts';
import { claimSocket } from './listener/listen.ts';
import { createManifestLog } from './manifest-log/manifest-log.ts';
import { plainHost, reachableHost, serviceUrl, urlHost } from './network/addresses.ts';
import { createCollateralStore } from './network/collateral-store.ts';
import { createControlCall } from './network/control-call.ts';
import { createOutbound, type Outbound } from './network/outbound.ts';
import { type Environment, loadTrustStore } from './network/trust-store.ts';
import { type Conditions, createConditions } from './observe/conditions.ts';
import { type Counters, createCounters } from './observe/counters.ts';
import type { Logger, StatusOutput } from './observe/log.ts';
import { runtimeDefect } from './observe/runtime-floor.ts';
import { isPreliminary, reportStart, sessionLog, watchStanding } from './observe/session-log.ts';
import { createVerification } from './observe/verification-document.ts';
import { openAdmin } from './open-admin.ts';
import { openGate, openReceipts } from './open-records.ts';
import { randomSalt } from './pipeline/inject-salt.ts';
import { createCollateralCache } from './session/collateral-cache.ts';
import { createControlApi } from './session/control-api.ts';
import type { Observer } from './session/events.ts';
import { managedManifest, staticManifest } from './session/manifest-source.ts';
import { type AttestedSession, createSession, type SessionDeps } from './session/session.ts';
import type { Standing } from './session/standing.ts';
import { recordExchange } from './verdict/saved-exchange.ts';
import { VERSION } from './version.ts';

/** `reload` reads the key file again too. */
export interface RunningProxy
  extends Pick<GatewayServer, 'url' | 'port' | 'opened' | 'reload' | 'announceStop' | 'endGrace' | 'close'> {
  readonly session: AttestedSession;
  readonly counters: Counters;
}

export interface ProxyEnvironment {
  /** SSL_CERT_FILE, https_proxy and no_proxy are read from here. */
  readonly env: Environment;
  readonly log: Logger;
  /** Called on errors that a retry cannot fix; the process is expected to end. */
  readonly onPermanent?: (error: PrivatemodeError) => void;
  /** A terminal for the line that changes during the start; undefined: none. */
  readonly status?: StatusOutput | undefined;
  /** Tests hand in another one. */
  readonly clock?: Clock;
}

/**
 * Starts the proxy; the port is open when it resolves, with --reuse-port when `opened` does. Throws
 * config_invalid, unsafe_roots_refused, listen_failed.
 */
export async function startProxy(config: Config, environment: ProxyEnvironment): Promise<RunningProxy> {
  const { env, log, status, clock = systemClock } = environment;
  await using opened = new AsyncDisposableStack(); // if the start fails, no half of a proxy goes on serving
  const fd = inheritedSocket(env);
  const socket = socketPath(config.listenAddress);
  if (fd === undefined && socket !== undefined) await claimSocket(socket);
  const note = endpointNote(env, config);
  if (note !== undefined) log.info(note);
  prepareWorkspace(config.workspace);
  const counters = createCounters();
  const conditions = createConditions({ log, clock });
  opened.defer(() => conditions.close());
  const authorities = loadTrustStore(env);
  const outbound = createOutbound(env, { connectTimeout: config.connectTimeout, clock, authorities });
  opened.defer(() => outbound.close());
  const key = configuredKey(config);
  const named = (error: PrivatemodeError): PrivatemodeError =>
    withSimulatorHint(key.named(error), config, env);
  let serving: GatewayServer | undefined; // set last, because the server needs all the rest

  const gate = await openGate(config, { key, authorities, log, counters, conditions, opened, clock });
  const receipts = config.receipts
    ? await openReceipts(config, { log, counters, conditions, clock })
    : undefined;
  opened.defer(() => receipts?.close());
  const { adminAddress } = config;
  const statusPage =
    adminAddress === undefined || adminAddress.port === 0
      ? undefined
      : `http://${urlHost(reachableHost(adminAddress.host))}:${adminAddress.port}/`;
  const report = reportStart({ clock, log, status, statusPage });
  opened.defer(() => report.close());
  const { session, standing, verification } = await openVerifiedSession(config, {
    ...environment,
    clock,
    key,
    named,
    outbound,
    conditions,
    opened,
    server: () => serving,
    observers: [
      sessionLog(log, counters, { forPeople: config.logFormat === 'text' }),
      report.observe,
      (event) => {
        if (event.type !== 'verdict') return;
        receipts?.keepVerdict(event.sha256, event.report, event.exchange);
      },
    ],
  });
  opened.defer(() => session.close());
  session.start();
  const watch = await openAdmin(config, {
    session,
    standing,
    verification,
    counters,
    conditions,
    log,
    opened,
    server: () => serving,
    instance: receipts?.instance,
    clock,
  });
  const server = await startGatewayServer(config, {
    clock,
    session,
    key,
    gate,
    receipts,
    conditions,
    fd,
    log,
    outbound,
    metrics: { counters, observe: watch?.observe ?? (() => {}) },
    sharedSalt: config.disablePromptCache ? undefined : (config.promptCacheSalt ?? randomSalt()),
    verification: config.exposeVerification ? verification.text : undefined,
    onPermanent: (error) => environment.onPermanent?.(error),
  });
  opened.defer(() => server.close());
  serving = server;
  server.sessionChanged(); // the state may have changed while the server was starting
  const { url, port } = server;
  // Only the open listener knows where a socket of systemd listens.
  noteSetUp(conditions, config, env, fd === undefined ? undefined : hostIn(url));
  log.info(
    { endpoint: url },
    url.startsWith('https') ? 'Starting HTTPS server' : 'Starting HTTP server without TLS',
  );
  report.listening(url, { awaitsKey: key.value() === undefined });

  const keyWatch = key.watch({
    clock,
    onKey(next) {
      session.updateConfiguredKey(next);
      server.keyReplaced();
      server.sessionChanged();
      log.info('The API key file was read again');
    },
    onError: ({ message }) => conditions.set('api_key_file_unusable', message),
    onUsable: () => conditions.clear('api_key_file_unusable'),
  });
  opened.defer(() => keyWatch?.close());
  const running = opened.move();
  return {
    url,
    port,
    opened: server.opened,
    session,
    counters,
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

interface SessionParts extends Pick<ProxyEnvironment, 'log' | 'onPermanent'> {
  readonly clock: Clock;
  readonly key: ConfiguredKey;
  readonly outbound: Outbound;
  readonly conditions: Conditions;
  /** The parts to close at the end, in the reverse order. */
  readonly opened: AsyncDisposableStack;
  /** Adds to an error what its operator should know about it. */
  readonly named: (error: PrivatemodeError) => PrivatemodeError;
  /** Serves the applications; undefined before it listens. */
  readonly server: () => GatewayServer | undefined;
  readonly observers: readonly Observer[];
}

/**
 * Opens the session, and the document on what it verified. The session's events go to the observers, and then
 * to the server. Throws config_invalid.
 */
async function openVerifiedSession(
  config: Config,
  { clock, key, outbound, conditions, log, opened, named, server, observers, onPermanent }: SessionParts,
) {
  const roots = trustRoots(config);
  let isOpen = false;
  const session: AttestedSession = await openSession(config, outbound, roots, {
    clock,
    apiKey: key.value(),
    onPermanent: (error) => onPermanent?.(named(error)),
    recordExchange: config.receipts
      ? (collateral) => recordExchange(collateral, serviceUrl(config.apiEndpoint))
      : undefined,
    observe(event) {
      isOpen = isPreliminary(event, isOpen);
      const told = 'error' in event ? { ...event, error: named(event.error) } : event;
      for (const observe of observers) observe(told);
      verification.changed();
      setImmediate(look); // once the session is in the state that the event reports
    },
  });
  const noteStanding = watchStanding({ conditions, log });
  const standing = (): Standing => {
    const found = session.standing();
    return { ...found, error: found.error && named(found.error) };
  };
  const note = (): void => {
    if (isOpen) return;
    const now = standing();
    // A condition that held until then is not over because the proxy is.
    if (now.state !== 'ended') noteStanding(now);
  };
  const look = (): void => {
    server()?.sessionChanged();
    note();
  };
  opened.defer(every(clock, clock.times.standingLook, look)); // no event reports the end of a secret
  const verification = createVerification({
    version: VERSION,
    protocol: config.protocolVersion,
    workspace: config.workspace,
    clock,
    epoch: session.current,
    standing: session.standing,
    verdict: session.lastVerdict,
  });
  return { session, standing, verification };
}

/** Creates a session with the connections and files of `config`. Throws config_invalid. */
async function openSession(
  config: Config,
  outbound: Outbound,
  roots: TrustRoots,
  rest: Pick<SessionDeps, 'clock' | 'apiKey' | 'onPermanent' | 'observe' | 'recordExchange'>,
): Promise<AttestedSession> {
  const { clock } = rest;
  const { apiEndpoint: endpoint, manifestPath, cdnBaseUrl, amdKdsUrl, intelPcsUrl, workspace } = config;
  const call = createControlCall(outbound.dispatcher, clock);
  const store = createCollateralStore(join(workspace, 'collateral'));
  return createSession({
    ...rest,
    random: Math.random,
    host: endpoint.host,
    control: createControlApi({ call, endpoint, protocolVersion: config.protocolVersion, clock }),
    roots,
    collateral: createCollateralCache({ call, store, amdKdsUrl, intelPcsUrl, clock }),
    manifests:
      manifestPath === undefined
        ? managedManifest({ call, cdnBaseUrl, clock })
        : staticManifest(await readManifestFile(manifestPath)),
    manifestLog: createManifestLog(workspace),
  });
}
