import type { Config } from '../config/config.ts';
import type { Outbound } from '../network/outbound.ts';
import type { Counters } from '../observe/counters.ts';
import type { Logger } from '../observe/log.ts';
import type { RequestObservation } from '../observe/metrics.ts';
import { createUpstream } from '../pipeline/upstream.ts';
import { drain } from '../server/drain.ts';
import { listen } from '../server/listen.ts';
import type { WrongScheme } from '../server/malformed-head.ts';
import { loadTls, type TlsMaterial, watchTls } from '../server/tls.ts';
import type { Session } from '../session/session.ts';
import { type CorsPolicy, ownNames } from './cors.ts';
import { createGateway } from './gateway.ts';
import { createDumper } from './request-dump.ts';
import { createUploadBudget } from './upload-budget.ts';

/** The application side of the proxy, listening. */
export interface Service {
  /** http(s)://ADDRESS:PORT */
  readonly url: string;
  readonly port: number;
  /** Looks at the certificate files now. */
  reload(): void;
  /** Stops accepting, lets streams finish for at most the shutdown grace, ends the rest with an error event. */
  close(): Promise<void>;
}

export interface ServiceDeps {
  readonly session: Session;
  readonly outbound: Outbound;
  readonly counters: Counters;
  readonly log: Logger;
  readonly observe: (observation: RequestObservation) => void;
  readonly configuredKey: () => string | undefined;
  /** The salt that all requests share; undefined: each request gets one of its own. */
  readonly sharedSalt: string | undefined;
  /** A socket that listens already. */
  readonly fd: number | undefined;
  /** ms a request waits for the first epoch. */
  readonly epochTimeout?: number | undefined;
  /** ms before the rate of an upload is judged for the first time. */
  readonly uploadRateGrace?: number;
}

/** ms that a request waits for the remote to be verified (docs/decisions.md 13). */
const EPOCH_TIMEOUT = 30_000;
/** Uploads may get going slowly. */
const UPLOAD_RATE_GRACE = 10_000;

/** Opens the application side; the port is open when it resolves. Throws config_invalid and listen_failed. */
export async function startService(config: Config, deps: ServiceDeps): Promise<Service> {
  const { session, outbound, counters, log, fd } = deps;
  const { certPath, keyPath } = { certPath: config.tlsCertPath, keyPath: config.tlsKeyPath };
  const tlsFiles = certPath === undefined || keyPath === undefined ? undefined : { certPath, keyPath };
  const tls = tlsFiles && loadTls(tlsFiles);
  let cors = corsPolicy(config, tls);
  const terminate = new AbortController();

  const { listenAddress, maxBodyBytes, minUploadRate } = config;
  const uploadBudget = createUploadBudget(Math.floor(config.maxBufferedBytes / config.workers), { counters });
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
    observe: deps.observe,
    configuredKey: deps.configuredKey,
    apiKeyFallback: config.apiKeyFallback,
    sharedSalt: deps.sharedSalt,
    gpuPolicy: {
      allowUnknown: config.gpuOcspAllowUnknown,
      gracePeriodHours: config.gpuOcspRevokedGracePeriodHours,
    },
    cors: () => cors,
    limits: { maxBodyBytes, minUploadRate, uploadRateGrace: deps.uploadRateGrace ?? UPLOAD_RATE_GRACE },
    uploadBudget,
    epochTimeout: deps.epochTimeout ?? EPOCH_TIMEOUT,
    streamIdleTimeout: config.streamIdleTimeout,
    streamKeepalive: config.streamKeepalive,
    dumper: config.dumpRequests ? createDumper({ workspace: config.workspace, log }) : undefined,
    terminate: terminate.signal,
  });

  const listener = await listen(
    {
      listenAddress,
      port: config.port,
      tls,
      maxBodyBytes: Math.min(maxBodyBytes, uploadBudget.limit),
      fd,
      onWrongScheme: wrongSchemeLog(log),
    },
    gateway.handle,
  );
  const boundTo = fd === undefined ? listenAddress : listener.address;
  const url = `${tls === undefined ? 'http' : 'https'}://${printableHost(boundTo)}:${listener.port}`;
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

  return {
    url,
    port: listener.port,
    reload: () => tlsWatch?.check(),
    async close() {
      tlsWatch?.close();
      await drain(listener, { active: gateway.active, grace: config.shutdownGrace, terminate, log });
    },
  };
}

const WRONG_SCHEME: Readonly<Record<WrongScheme, string>> = {
  http: 'A client speaks plain HTTP to the HTTPS port: its base URL has to begin with https://',
  https:
    'A client speaks TLS to the plain HTTP port: its base URL has to begin with http://, or give --tls-cert-path and --tls-key-path',
};
/** ms in which the same mistake is logged once: a client that retries must not fill the log. */
const WRONG_SCHEME_INTERVAL = 60_000;

function wrongSchemeLog(log: Logger): (scheme: WrongScheme) => void {
  let loggedAt = Number.NEGATIVE_INFINITY;
  return (scheme) => {
    const now = performance.now();
    if (now - loggedAt < WRONG_SCHEME_INTERVAL) return;
    loggedAt = now;
    log.warn(WRONG_SCHEME[scheme]);
  };
}

function corsPolicy(config: Config, tls: TlsMaterial | undefined): CorsPolicy {
  const names = [...ownNames(config.listenAddress, tls?.cert), ...config.allowedHosts];
  return { allowedOrigins: config.corsAllowedOrigins, ownNames: names };
}

const printableHost = (host: string): string => (host.includes(':') ? `[${host}]` : host);
