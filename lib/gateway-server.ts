/** Composes the gateway from the configuration, opens its port, follows its certificate, and ends it. */
import { type Clock, every } from './clock.ts';
import type { Config } from './config/config.ts';
import { socketPath } from './config/values.ts';
import type { PrivatemodeError } from './errors.ts';
import { AppResponse } from './gateway/app-response.ts';
import { type CorsPolicy, ownNames } from './gateway/cors.ts';
import type { GatewayDeps } from './gateway/deps.ts';
import { createGateway } from './gateway/gateway.ts';
import { createDump } from './gateway/request-dump.ts';
import { drain } from './listener/drain.ts';
import { type Listener, listen } from './listener/listen.ts';
import { sharePort } from './listener/shared-port.ts';
import { expiryWarning, firstToEnd, loadTls, watchTls } from './listener/tls.ts';
import { urlHost } from './network/addresses.ts';
import type { Outbound } from './network/outbound.ts';
import { createUpstream } from './network/upstream.ts';
import { type ConditionSink, whileUnusable } from './observe/conditions.ts';

/** The application side of the proxy, listening. */
export type GatewayServer = Awaited<ReturnType<typeof startGatewayServer>>;

/** The parts of the gateway that this file makes from the configuration, beside `settings`. */
type Made = 'upstream' | 'aliases' | 'createTranslator' | 'cors' | 'memory' | 'dump' | 'terminate';

export interface GatewayServerDeps extends Omit<GatewayDeps, Made | 'settings'> {
  readonly outbound: Outbound;
  readonly conditions: ConditionSink;
  /** A socket that listens already; undefined: none. */
  readonly fd: number | undefined;
  /** With --reuse-port: called with listen_failed if the port cannot be opened. */
  readonly onPermanent: (error: PrivatemodeError) => void;
}

/**
 * Opens the application side. The port is open when it resolves, with --reuse-port as soon as a secret is in
 * force. Throws config_invalid and listen_failed.
 */
export async function startGatewayServer(config: Config, deps: GatewayServerDeps) {
  const { outbound, fd, onPermanent, conditions, ...shared } = deps;
  const { clock, log, session, metrics } = shared;
  const { listenAddress, workspace, maxBufferedBytes: bytes } = config;
  const files = readTlsFiles(config);
  let cors = corsPolicy(config, files?.tls.cert);
  const { upstream, agent } = connectUpstream(config, outbound, clock);
  const terminate = new AbortController();
  const hurry = new AbortController();
  const gateway = createGateway({
    ...shared,
    settings: config,
    upstream,
    memory: {
      uploads: { of: 'uploads', limit: bytes, used: metrics.counters },
      responses: { of: 'responses', limit: bytes, used: { bufferedBytes: 0 } },
    },
    dump: config.dumpRequests ? createDump(workspace, log) : undefined,
    aliases: config.modelAlias.size === 0 ? undefined : config.modelAlias,
    createTranslator: config.responsesApi
      ? (await import('./responses-api/translator.ts')).createTranslator
      : undefined,
    cors: () => cors,
    terminate: terminate.signal,
  });
  const path = socketPath(listenAddress);
  const listener = await listen(
    {
      clock,
      listenAddress,
      port: config.port,
      reusePort: config.reusePort,
      socketFile: path === undefined ? undefined : { path, mode: config.listenMode },
      fd,
      tls: files?.tls,
      onWrongScheme: (advice) => log.warn(advice),
      response: AppResponse,
    },
    gateway.handle,
  );
  const { address, port, isOpen } = listener;
  // A socket file that was inherited does not say where it is.
  const host = fd === undefined ? listenAddress : address || `unix:${path ?? ''}`;
  const certified = (cert: string): void => {
    cors = corsPolicy(config, cert);
  };
  const tlsWatch = files && followTlsFiles(files, listener, certified, deps);
  const sharing = { secretEnds: () => session.current()?.expiresMonotonic, failed: onPermanent, log, clock };
  const sharedPort = config.reusePort ? sharePort(listener, sharing) : undefined;
  const sessionChanged = (): void => {
    agent.keep(session.current() !== undefined);
    sharedPort?.look();
  };
  sessionChanged();
  return {
    /** The address or name that the gateway listens on; `unix:PATH` for a socket file. */
    host,
    /** http(s)://HOST:PORT, or unix:PATH. */
    url: address === '' ? host : `${files ? 'https' : 'http'}://${urlHost(host)}:${port}`,
    port,
    /** Resolved once the port has been open. */
    opened: sharedPort?.opened ?? Promise.resolve(),
    isOpen,
    /** Called when the state of the session may have changed. */
    sessionChanged,
    events: gateway.events,
    /** When the TLS certificate, or one of its chain, expires, in ms since 1970; undefined without TLS. */
    certificateEnds: () => tlsWatch?.certificateEnds(),
    /** Looks now at the files of the certificate. */
    reload: async () => await tlsWatch?.reload(),
    /**
     * From now on each response ends its connection, so that clients go elsewhere; with --reuse-port the port
     * is closed too. /readyz reports the state of the session, whose `announceEnd` makes it 503.
     */
    announceStop() {
      sharedPort?.end();
      listener.announceEnd();
    },
    /** Ends the grace of `close` now. */
    endGrace: () => hurry.abort(),
    /** Stops accepting, and lets streams finish for at most the shutdown grace (lib/listener/drain.ts). */
    async close() {
      tlsWatch?.close();
      sharedPort?.end();
      const grace = config.shutdownGrace;
      await drain(listener, { ...gateway, grace, hurry: hurry.signal, terminate, log, clock });
    },
  };
}

/** Opens the way to the service: `upstream` sends requests, and `agent` keeps connections ready for them. */
export function connectUpstream(
  config: Pick<Config, 'apiEndpoint' | 'connectTimeout' | 'firstByteTimeout' | 'warmConnections'>,
  outbound: Outbound,
  clock: Clock,
) {
  const { apiEndpoint, connectTimeout, firstByteTimeout, warmConnections: count } = config;
  const agent = outbound.agent({ keepAlive: true, maxFreeSockets: 256 }, { ...apiEndpoint, count });
  const freshAgent = outbound.agent({ keepAlive: false });
  const limits = { connectTimeout, firstByteTimeout, clock };
  return { upstream: createUpstream({ ...apiEndpoint, agent, freshAgent, ...limits }), agent };
}

function corsPolicy(config: Config, cert: string | undefined): CorsPolicy {
  const names = [...ownNames(config.listenAddress, cert), ...config.allowedHosts];
  return { allowedOrigins: config.corsAllowedOrigins, ownNames: names };
}

type TlsContent = NonNullable<ReturnType<typeof readTlsFiles>>;

/** Reads the certificate and its key; undefined without TLS. Throws config_invalid. */
function readTlsFiles({ tlsCertPath: certPath, tlsKeyPath: keyPath }: Config) {
  if (certPath === undefined || keyPath === undefined) return undefined;
  return { certPath, keyPath, tls: loadTls({ certPath, keyPath }) };
}

/**
 * Makes the listener use what its files hold whenever they change, and warns before the certificate expires.
 * A bad file leaves the old content in force, and sets a condition. `certified` is called with each new
 * certificate.
 */
function followTlsFiles(
  { certPath, keyPath, tls: first }: TlsContent,
  listener: Listener,
  certified: (cert: string) => void,
  { conditions, log, clock }: GatewayServerDeps,
) {
  let certificate = firstToEnd(first.cert);
  const noteExpiry = (): void => {
    const warning = expiryWarning(certPath, certificate, clock);
    if (warning === undefined) conditions.clear('tls_certificate_expiry');
    else conditions.set('tls_certificate_expiry', warning.message, warning);
  };
  noteExpiry();
  const watch = watchTls({ certPath, keyPath }, first, {
    changed(tls) {
      certificate = firstToEnd(tls.cert);
      certified(tls.cert);
      listener.replaceTls(tls);
      noteExpiry();
      const { subject, ends } = certificate;
      log.info({ subject, expires: ends.toISOString() }, 'The TLS certificate was replaced');
    },
    ...whileUnusable(conditions, 'tls_pair_unusable'),
    clock,
  });
  const endLooks = every(clock, clock.times.expiryLook, noteExpiry);
  return {
    certificateEnds: (): number => certificate.ends.getTime(),
    reload: watch.reload,
    close(): void {
      endLooks();
      watch.close();
    },
  };
}
