/** Makes the gateway from the configuration, opens its port, follows its certificate, and shuts it down. */
import type { Clock } from './clock.ts';
import type { Config } from './config/config.ts';
import { socketPath } from './config/values.ts';
import type { PrivatemodeError } from './errors.ts';
import { type CorsPolicy, ownNames } from './gateway/cors.ts';
import type { GatewayDeps } from './gateway/deps.ts';
import { createGateway } from './gateway/gateway.ts';
import { AppResponse } from './gateway/observed-response.ts';
import { createDump } from './gateway/request-dump.ts';
import { claimSocket, listen } from './listener/listen.ts';
import { drain, sharePort } from './listener/serving.ts';
import { expiryOf, firstToEnd, loadTls, type TlsMaterial } from './listener/tls.ts';
import { urlHost } from './network/addresses.ts';
import type { Outbound } from './network/outbound.ts';
import { createUpstream } from './network/upstream.ts';
import { type NoticeSink, whileUnusable } from './observe/notices.ts';
import { watchFiles } from './watch-files.ts';

export type GatewayServer = Awaited<ReturnType<typeof startGatewayServer>>;

/** The members of GatewayDeps that this file makes from the configuration, except for `settings`. */
type Made = 'upstream' | 'aliases' | 'createTranslator' | 'cors' | 'memory' | 'dump' | 'terminate';

interface GatewayServerDeps extends Omit<GatewayDeps, Made | 'settings'> {
  readonly outbound: Outbound;
  readonly notices: NoticeSink;
  readonly fd: number | undefined; // an inherited socket, in the form that `listen` takes
  readonly warmConnections?: number | undefined; // the connections that connectUpstream keeps ready
  readonly onPermanent: (error: PrivatemodeError) => void; // called if a shared port cannot be opened
}

/** Opens the port. With --reuse-port, opens once there is a secret. Throws config_invalid, listen_failed. */
export async function startGatewayServer(config: Config, deps: GatewayServerDeps) {
  const { clock, log, session, metrics, outbound, fd } = deps;
  const { listenAddress, reusePort, workspace, maxBufferedBytes: bytes } = config;
  const { tlsCertPath: certPath, tlsKeyPath: keyPath } = config;
  const files = certPath === undefined || keyPath === undefined ? undefined : { certPath, keyPath };
  const tls = files && loadTls(files);
  const corsPolicy = (cert?: string): CorsPolicy => ({
    allowedOrigins: config.corsAllowedOrigins,
    ownNames: [...ownNames(listenAddress, cert), ...config.allowedHosts],
  });
  let cors = corsPolicy(tls?.cert);
  const { upstream, agent } = connectUpstream(config, outbound, clock, deps.warmConnections);
  const terminate = new AbortController();
  const hurry = new AbortController();
  const gateway = createGateway({
    ...deps,
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
  if (fd === undefined && path !== undefined) await claimSocket(path);
  const at = path === undefined ? { host: listenAddress, port: config.port, reusePort } : { path };
  const onWrongScheme = (advice: string): void => log.warn(advice);
  const listener = await listen({ at, fd, tls, response: AppResponse, onWrongScheme, clock }, gateway.handle);
  const { address, port } = listener;
  // An inherited socket file does not tell its own path.
  const host = fd === undefined ? listenAddress : address || `unix:${path ?? ''}`;
  const replaced = (next: TlsMaterial): void => {
    cors = corsPolicy(next.cert);
    listener.replaceTls(next);
  };
  const tlsWatch = files && tls && followTls(files, tls, replaced, deps);
  const sharedPort = reusePort ? sharePort(listener, deps) : undefined;
  const sessionChanged = (): void => {
    agent.keep(session.current() !== undefined);
    sharedPort?.look();
  };
  sessionChanged();
  return {
    host, // an address, a name or unix:PATH
    /** The URL of the port: http(s)://HOST:PORT, or unix:PATH. */
    url: address === '' ? host : `${files ? 'https' : 'http'}://${urlHost(host)}:${port}`,
    port,
    /** Resolves once the port is open. */
    opened: sharedPort?.opened ?? Promise.resolve(),
    isOpen: listener.isOpen,
    sessionChanged,
    events: gateway.events,
    /** When the TLS certificate or one in its chain expires (ms since 1970), or undefined without TLS. */
    certificateEnds: () => tlsWatch?.certificateEnds(),
    /** Checks at once whether the files of the TLS certificate have changed. */
    reload: async () => await tlsWatch?.reload(),
    /** After this call, each response ends its connection, and with --reuse-port the port is closed. */
    announceStop() {
      sharedPort?.end();
      listener.announceEnd();
    },
    /** Ends the grace period of `close` at once. */
    endGrace: () => hurry.abort(),
    /** Stops accepting connections, and lets streams finish within the shutdown grace period. */
    async close() {
      tlsWatch?.close();
      sharedPort?.end();
      const grace = config.shutdownGrace;
      await drain(listener, { ...gateway, grace, hurry: hurry.signal, terminate, log, clock });
    },
  };
}

/** The number of idle connections to the service that are kept ready, so that requests need no handshake. */
const WARM_CONNECTIONS = 2;

/**
 * Prepares the connections to the service. `upstream` sends requests, and `agent` keeps `count` connections
 * ready for these requests.
 */
export function connectUpstream(
  config: Pick<Config, 'apiEndpoint' | 'firstByteTimeout'>,
  outbound: Outbound,
  clock: Clock,
  count = WARM_CONNECTIONS,
) {
  const { apiEndpoint, firstByteTimeout } = config;
  const { connectTimeout } = clock.times;
  const agent = outbound.agent({ keepAlive: true, maxFreeSockets: 256 }, { ...apiEndpoint, count });
  const freshAgent = outbound.agent({ keepAlive: false }, { ...apiEndpoint, count: 0 });
  const way = { ...apiEndpoint, connectTimeout, firstByteTimeout, agent, freshAgent, clock };
  return { upstream: createUpstream(way), agent };
}

/** Calls `replaced` with each new usable pair of files. Warns before the certificate expires. */
function followTls(
  files: Parameters<typeof loadTls>[0],
  first: TlsMaterial,
  replaced: (tls: TlsMaterial) => void,
  { notices, log, clock }: GatewayServerDeps,
) {
  let certificate = firstToEnd(first.cert);
  const noteExpiry = (): void => {
    const { id: holds, reason } = expiryOf(files.certPath, certificate, clock);
    for (const id of ['tls_certificate_expiry', 'tls_certificate_expired'] as const)
      if (id === holds) notices.set(id, reason);
      else notices.clear(id);
  };
  const read = (): TlsMaterial => {
    noteExpiry(); // the certificate in use may expire, whatever the files contain
    return loadTls(files);
  };
  noteExpiry();
  const watch = watchFiles(first, read, clock.times.certificateLook, {
    changed(tls) {
      certificate = firstToEnd(tls.cert);
      replaced(tls);
      noteExpiry();
      const { subject, ends } = certificate;
      log.info({ subject, expires: ends.toISOString() }, 'The TLS certificate was replaced');
    },
    ...whileUnusable(notices, 'tls_pair_unusable'),
    clock,
  });
  return { ...watch, certificateEnds: (): number => certificate.ends.getTime() };
}
