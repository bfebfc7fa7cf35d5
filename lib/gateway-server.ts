/** The gateway as it listens: its port, the certificates of that, what it is given of the configuration, and how it ends. */

import { createModelAliases } from './api/model-aliases.ts';
import { newRequestId } from './api/request-id.ts';
import { createCertificates } from './clients/certificates.ts';
import { openClients } from './clients/clients.ts';
import type { Config } from './config/config.ts';
import { socketPath } from './config/values.ts';
import { asPrivatemodeError } from './errors.ts';
import { requestHeaders } from './exchange/headers.ts';
import { ChunkedResponse } from './gateway/chunked-response.ts';
import { type CorsPolicy, ownNames } from './gateway/cors.ts';
import { DigestedResponse } from './gateway/digested-response.ts';
import type { GatewayDeps } from './gateway/exchange.ts';
import { createGateway } from './gateway/gateway.ts';
import { createResponseBudget, createUploadBudget } from './gateway/memory-budget.ts';
import { createDumper, DumpedResponse } from './gateway/request-dump.ts';
import { urlHost } from './network/addresses.ts';
import { createHttpCall } from './network/http-call.ts';
import type { Outbound } from './network/outbound.ts';
import { createUpstream } from './network/upstream.ts';
import { drain } from './server/drain.ts';
import { listen } from './server/listen.ts';
import { loadClientCas, loadTls, type TlsMaterial, watchClientCas, watchTls } from './server/tls.ts';

/** The application side of the proxy, listening. */
export interface GatewayServer {
  /** http(s)://ADDRESS:PORT, or unix:PATH */
  readonly url: string;
  readonly port: number;
  /** Looks at the files of certificate, CAs of clients, and clients now. */
  reload(): void;
  /** The state of the session may have changed. */
  sessionChanged(): void;
  /** Pieces of streams that the requests which run now have sent. */
  chunks(): number;
  /** Stops accepting, lets streams finish for at most the shutdown grace, ends the rest with an error event. */
  close(): Promise<void>;
}

export interface GatewayServerDeps
  extends Pick<
    GatewayDeps,
    | 'session'
    | 'counters'
    | 'log'
    | 'observe'
    | 'configuredKey'
    | 'keyOrigin'
    | 'sharedSalt'
    | 'receipts'
    | 'verification'
    | 'gate'
    | 'readers'
    | 'spoilsCache'
  > {
  readonly outbound: Outbound;
  /** A socket that listens already. */
  readonly fd: number | undefined;
  /** ms a request waits for the first epoch. Default 30 s. */
  readonly epochTimeout?: number | undefined;
  /** ms before the rate of an upload is judged for the first time, since uploads may get going slowly. Default 10 s. */
  readonly uploadRateGrace?: number;
}

const SPOILT_CACHE =
  'Claude Code begins its prompts with a line that differs in each conversation, so conversations cannot share the prompt cache: start it with CLAUDE_CODE_ATTRIBUTION_HEADER=0';

/** Warns once of prompts that spoil the shared prompt cache; of several workers, the primary does. */
export function spoilWarning(): (log: GatewayServerDeps['log']) => void {
  let warned = false;
  return (log) => {
    if (!warned) log.warn(SPOILT_CACHE);
    warned = true;
  };
}

/** Opens the application side; the port is open when it resolves. Throws config_invalid and listen_failed. */
export async function startGatewayServer(config: Config, deps: GatewayServerDeps): Promise<GatewayServer> {
  const { outbound, fd, epochTimeout = 30_000, uploadRateGrace = 10_000, ...shared } = deps;
  const { counters, log } = shared;
  const { tlsCertPath: certPath, tlsKeyPath: keyPath } = config;
  const tlsFiles = certPath === undefined || keyPath === undefined ? undefined : { certPath, keyPath };
  let tls = tlsFiles && loadTls(tlsFiles);
  let clientCas = config.tlsClientCa === undefined ? undefined : loadClientCas(config.tlsClientCa);
  const certificates = clientCas && createCertificates();
  let cors = corsPolicy(config, tls);
  const terminate = new AbortController();

  const { listenAddress, port, maxBodyBytes, minUploadRate } = config;
  const { connectTimeout, firstByteTimeout, streamIdleTimeout, streamKeepalive } = config;
  const bufferedBytes = Math.floor(config.maxBufferedBytes / config.workers);
  const uploadBudget = createUploadBudget(bufferedBytes, { counters });
  const responseBudget = createResponseBudget(bufferedBytes, { counters: { bufferedBytes: 0 } });
  // The key, once configured, never goes away: a bad key file leaves the old one.
  const clients =
    config.clients === undefined
      ? undefined
      : await openClients({
          path: config.clients,
          needsKeys: shared.configuredKey() === undefined,
          tokensOptional: certificates !== undefined,
          certificateOf: certificates?.of,
          sharedSalt: shared.sharedSalt,
          changed: (count) =>
            log.info({ clients: count }, 'The clients file, or a key in it, was read again'),
          failed: ({ message: reason }) =>
            log.error({ reason }, 'The clients file, or a key in it, cannot be used; what was known stays'),
        });
  const createTranslator = config.responsesApi
    ? (await import('./responses/translator.ts')).createTranslator
    : undefined;
  const aliases =
    config.modelAlias.size === 0
      ? undefined
      : createModelAliases(config.modelAlias, {
          onReal: (alias) =>
            log.warn({ alias }, 'The service has a model of the name of an alias; requests for it go there'),
          onUnknown(thrown) {
            const { message: reason } = asPrivatemodeError(thrown);
            log.warn({ reason }, 'Which models the service has is not known; aliases win over them for now');
          },
        });
  const agent = outbound.warmAgent(
    { ...config.apiEndpoint, limit: shareOf(config.warmConnections, config.workers) },
    { keepAlive: true, maxFreeSockets: 256 },
  );
  let closing = false;
  const sessionChanged = (): void => {
    const isOpen = !closing && shared.session.current() !== undefined;
    agent.connections.keep(isOpen);
    const key = shared.configuredKey();
    // Models of the service win over aliases. Without a key of its own, lists that pass tell which it has.
    if (isOpen && key !== undefined) void aliases?.ask(() => listModels(config, outbound, key));
  };
  const gateway = createGateway({
    spoilsCache: spoilWarning(),
    ...shared,
    clients,
    createTranslator,
    aliases,
    upstream: createUpstream({
      ...config.apiEndpoint,
      agent,
      connections: agent.connections,
      freshAgent: outbound.agent({ keepAlive: false }),
      connectTimeout,
      firstByteTimeout,
    }),
    apiKeyFallback: config.apiKeyFallback,
    gpuPolicy: {
      allowUnknown: config.gpuOcspAllowUnknown,
      gracePeriodHours: config.gpuOcspRevokedGracePeriodHours,
    },
    cors: () => cors,
    limits: { maxBodyBytes, minUploadRate, uploadRateGrace },
    uploadBudget,
    responseBudget,
    epochTimeout,
    streamIdleTimeout,
    streamKeepalive,
    dumper: config.dumpRequests ? createDumper({ workspace: config.workspace, log }) : undefined,
    terminate: terminate.signal,
  });

  const path = socketPath(listenAddress);
  const undumped = shared.receipts === undefined ? ChunkedResponse : DigestedResponse;
  const response = config.dumpRequests ? DumpedResponse : undumped;
  const onWrongScheme = (advice: string): void => log.warn(advice);
  const listener = await listen(
    {
      listenAddress,
      port,
      socketFile: path === undefined ? undefined : { path, mode: config.listenMode },
      tls,
      fd,
      onWrongScheme,
      response,
      clientCertificates: clientCas && certificates && { ...certificates, cas: clientCas },
    },
    gateway.handle,
  ).catch((refused: unknown) => {
    clients?.close();
    throw refused;
  });
  const boundTo = fd === undefined ? listenAddress : listener.address;
  const url =
    listener.address === ''
      ? `unix:${path ?? ''}` // a socket that was inherited does not say where it is
      : `${tls === undefined ? 'http' : 'https'}://${urlHost(boundTo)}:${listener.port}`;
  const tlsWatch =
    tlsFiles &&
    watchTls(tlsFiles, tls as TlsMaterial, {
      changed(material) {
        tls = material;
        listener.replaceTls(material, clientCas);
        cors = corsPolicy(config, material);
        log.info('The TLS certificate was replaced');
      },
      failed: (error) =>
        log.error({ reason: error.message }, 'The new TLS certificate cannot be used, the old one stays'),
    });
  const casWatch =
    config.tlsClientCa !== undefined && clientCas !== undefined
      ? watchClientCas(config.tlsClientCa, clientCas, {
          changed(cas) {
            clientCas = cas;
            listener.replaceTls(tls as TlsMaterial, cas);
            log.info({ certificates: cas.length }, 'The CAs of client certificates were replaced');
          },
          failed: ({ message: reason }) =>
            log.error({ reason }, 'The new CAs of client certificates cannot be used, the old ones stay'),
        })
      : undefined;

  sessionChanged();
  return {
    url,
    port: listener.port,
    sessionChanged,
    reload() {
      tlsWatch?.reload();
      casWatch?.reload();
      void clients?.reload();
    },
    chunks: gateway.chunks,
    async close() {
      tlsWatch?.close();
      casWatch?.close();
      clients?.close();
      closing = true;
      sessionChanged();
      await drain(listener, { active: gateway.active, grace: config.shutdownGrace, terminate, log });
    },
  };
}

/** The body of the service's list of models, which nothing authenticates. Rejects with the codes of the network. */
async function listModels(
  { apiEndpoint: { host, port }, connectTimeout }: Config,
  { dispatcher }: Outbound,
  key: string,
): Promise<Uint8Array> {
  const { body } = await createHttpCall(dispatcher)({
    method: 'GET',
    url: `https://${urlHost(host)}:${port}/v1/models`,
    headers: requestHeaders({
      ...{ rawHeaders: [], host: undefined, authorization: `Bearer ${key}` },
      requestId: newRequestId('proxy'),
    }),
    maxBytes: 1024 * 1024,
    timeout: connectTimeout,
  });
  return body;
}

/** Of a limit for all workers together; one each at least, unless it is 0. */
const shareOf = (limit: number, workers: number): number =>
  limit === 0 ? 0 : Math.max(1, Math.floor(limit / workers));

function corsPolicy(config: Config, tls: TlsMaterial | undefined): CorsPolicy {
  const names = [...ownNames(config.listenAddress, tls?.cert), ...config.allowedHosts];
  return { allowedOrigins: config.corsAllowedOrigins, ownNames: names };
}
