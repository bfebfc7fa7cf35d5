/** The composition root: the only file that imports every room, and the one place where things are wired together. */
import { readFileSync } from 'node:fs';
import type { TextOutput } from './cli.ts';
import { readApiKey, watchApiKey } from './config/api-key.ts';
import type { Config } from './config.ts';
import { PROTOCOL_VERSION } from './envelope/protection.ts';
import type { PrivatemodeError } from './errors.ts';
import { type CorsPolicy, ownNames } from './gateway/cors.ts';
import { drain } from './gateway/drain.ts';
import { createDumper } from './gateway/dump.ts';
import { createGateway } from './gateway/gateway.ts';
import { inheritedSocket } from './gateway/listen-fds.ts';
import { listen } from './gateway/server.ts';
import { loadTls, type TlsMaterial, watchTls } from './gateway/tls.ts';
import { createUpstream } from './gateway/upstream.ts';
import { startAdmin } from './observe/admin.ts';
import { type Counters, createCounters } from './observe/counters.ts';
import { createLogger, type Logger } from './observe/log.ts';
import { createMetrics } from './observe/metrics.ts';
import { serviceManager } from './observe/service-manager.ts';
import { randomSalt } from './pipeline/salt.ts';
import { openSession } from './session/open-session.ts';
import { createOutbound, type Environment } from './session/outbound.ts';
import type { AttestedSession } from './session/session.ts';
import { VERSION } from './version.ts';

export interface RunningProxy {
  /** http(s)://ADDRESS:PORT of the application side. */
  readonly url: string;
  readonly port: number;
  readonly session: AttestedSession;
  readonly counters: Counters;
  /** Reads certificate and key files again. */
  reload(): void;
  /** Stops accepting, lets streams finish for at most the shutdown grace, ends the rest with an error event. */
  close(): Promise<void>;
}

export interface ProxyEnvironment {
  /** SSL_CERT_FILE, https_proxy and no_proxy are read from here. */
  readonly env: Environment;
  readonly log: Logger;
  /** Told of causes that waiting cannot cure; the process is expected to end. */
  readonly onPermanent?: (error: PrivatemodeError) => void;
}

/** Starts the proxy; the port is open when it resolves. Throws config_invalid, unsafe_roots_refused, listen_failed. */
export async function startProxy(
  config: Config,
  { env, log, onPermanent }: ProxyEnvironment,
): Promise<RunningProxy> {
  const counters = createCounters();
  const outbound = createOutbound(env, config.connectTimeout);
  const apiKey =
    config.apiKey === undefined ? undefined : readApiKey(config.apiKey, (path) => readFileSync(path));
  const key = { configured: apiKey };
  const session = await openSession(config, {
    outbound,
    protocolVersion: PROTOCOL_VERSION,
    apiKey,
    log,
    counters,
    onPermanent,
  });

  const tlsFiles =
    config.tlsCertPath === undefined || config.tlsKeyPath === undefined
      ? undefined
      : { certPath: config.tlsCertPath, keyPath: config.tlsKeyPath };
  const tls = tlsFiles && loadTls(tlsFiles);
  let cors = corsPolicy(config, tls);
  const terminate = new AbortController();
  const metrics = createMetrics({
    counters,
    protection: () => session.current(),
    serverAddress: config.apiEndpoint.host,
  });

  const { host, port } = config.apiEndpoint;
  const gateway = createGateway({
    session,
    upstream: createUpstream({
      host,
      port,
      agent: outbound.agent({ keepAlive: true, maxFreeSockets: 256 }),
      freshAgent: outbound.agent({ keepAlive: false }),
      connectTimeout: config.connectTimeout,
      firstByteTimeout: config.firstByteTimeout,
    }),
    counters,
    log,
    observe: metrics.observe,
    upstreamAuthority: port === 443 ? host : `${host}:${port}`,
    configuredKey: () => key.configured,
    apiKeyFallback: config.apiKeyFallback,
    sharedSalt: sharedSalt(config),
    gpuPolicy: {
      allowUnknown: config.gpuOcspAllowUnknown,
      gracePeriodHours: config.gpuOcspRevokedGracePeriodHours,
    },
    cors: () => cors,
    limits: { maxBodyBytes: config.maxBodyBytes, minUploadRate: config.minUploadRate },
    epochTimeout: EPOCH_TIMEOUT,
    streamIdleTimeout: config.streamIdleTimeout,
    dumper: config.dumpRequests ? createDumper({ workspace: config.workspace, log }) : undefined,
    terminate: terminate.signal,
  });

  const { listenAddress, maxBodyBytes } = config;
  const fd = inheritedSocket(env);
  const listener = await listen({ listenAddress, port: config.port, tls, maxBodyBytes, fd }, gateway.handle);
  const boundTo = fd === undefined ? listenAddress : listener.address;
  const url = `${tls === undefined ? 'http' : 'https'}://${printableHost(boundTo)}:${listener.port}`;
  log.info(
    { endpoint: url },
    tls === undefined ? 'Starting HTTP server without TLS' : 'Starting HTTPS server',
  );
  const admin =
    config.metricsAddress &&
    (await startAdmin({
      ...config.metricsAddress,
      metrics,
      readiness: () => ({ state: session.state(), lastError: session.lastError() }),
    }));

  const tlsWatch =
    tlsFiles &&
    watchTls(tlsFiles, tls as TlsMaterial, {
      changed(material) {
        listener.replaceTls(material);
        cors = corsPolicy(config, material);
        log.info('The TLS certificate was replaced');
      },
      failed: (error) =>
        log.error({ reason: error.message }, 'The new TLS certificate cannot be used, the old one stays'),
    });
  const keyWatch =
    config.apiKey?.kind === 'file'
      ? watchApiKey({
          path: config.apiKey.path,
          current: apiKey as string,
          onKey(next) {
            key.configured = next;
            session.updateConfiguredKey(next);
            log.info('The API key file was read again');
          },
          onError: (error) =>
            log.error({ reason: error.message }, 'The API key file cannot be used, the old key stays'),
        })
      : undefined;

  return {
    url,
    port: listener.port,
    session,
    counters,
    reload() {
      tlsWatch?.check();
      void keyWatch?.reload();
    },
    async close() {
      tlsWatch?.close();
      keyWatch?.close();
      await drain(listener, { active: gateway.active, grace: config.shutdownGrace, terminate, log });
      session.close();
      await Promise.all([admin?.close(), outbound.close()]);
    },
  };
}

/** ms a request waits for the first epoch (design decision 13). */
const EPOCH_TIMEOUT = 30_000;

function sharedSalt({ disablePromptCache, promptCacheSalt }: Config): string | undefined {
  return disablePromptCache ? undefined : (promptCacheSalt ?? randomSalt());
}

function corsPolicy(config: Config, tls: TlsMaterial | undefined): CorsPolicy {
  return { allowedOrigins: config.corsAllowedOrigins, ownNames: ownNames(config.listenAddress, tls?.cert) };
}

const printableHost = (host: string): string => (host.includes(':') ? `[${host}]` : host);

/**
 * Runs the proxy until it is told to stop: 0 after SIGTERM or SIGINT and a clean drain, 1 where it cannot start or
 * must not go on (design decision 13).
 */
export async function run(
  config: Config,
  warnings: readonly string[],
  io: { readonly stderr: TextOutput & { readonly isTTY?: boolean } },
): Promise<number> {
  const log = createLogger({ format: config.logFormat, level: config.logLevel, output: io.stderr });
  log.info({ version: `v${VERSION}`, protocol: PROTOCOL_VERSION }, 'Privatemode encryption proxy');
  for (const warning of warnings) log.warn(warning);

  const { promise: ended, resolve: end } = Promise.withResolvers<number>();
  const proxy = await startProxy(config, {
    env: process.env,
    log,
    onPermanent(error) {
      const { code, message, remedy } = error;
      log.error({ code, reason: message, remedy }, 'The proxy cannot go on');
      end(1);
    },
  });
  const signals = {
    SIGTERM: () => end(0),
    SIGINT: () => end(0),
    SIGHUP: () => proxy.reload(),
  } as const;
  for (const [signal, handler] of Object.entries(signals)) process.on(signal, handler);
  const manager = serviceManager(process.env, (reason) =>
    log.warn({ reason }, 'The service manager cannot be told'),
  );
  await manager.ready(`listening on ${proxy.url}`);
  const code = await ended;
  log.info('Shutting down server');
  await Promise.all([manager.stopping(), proxy.close()]);
  for (const [signal, handler] of Object.entries(signals)) process.off(signal, handler);
  return code;
}
