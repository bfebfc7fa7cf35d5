/**
 * Composes the gateway from the configuration, opens its port, follows the files of its certificates, and
 * closes it.
 */

import { createCertificates } from './access/certificates.ts';
import { type Clients, openClients } from './access/clients.ts';
import { type Clock, every } from './clock.ts';
import type { Config } from './config/config.ts';
import { socketPath } from './config/values.ts';
import type { PrivatemodeError } from './errors.ts';
import { AppResponse } from './gateway/app-response.ts';
import { type CorsPolicy, ownNames } from './gateway/cors.ts';
import type { GatewayDeps, GatewayOptions } from './gateway/deps.ts';
import { createGateway } from './gateway/gateway.ts';
import { createResponseBudget, createUploadBudget } from './gateway/memory-budget.ts';
import { createDumper } from './gateway/request-dump.ts';
import { firstToEnd, noteExpiry } from './listener/certificate-expiry.ts';
import { drain } from './listener/drain.ts';
import { type Listener, listen } from './listener/listen.ts';
import {
  type ClientCas,
  loadClientCas,
  loadTls,
  type TlsMaterial,
  watchClientCas,
  watchTls,
} from './listener/tls.ts';
import { urlHost } from './network/addresses.ts';
import type { Outbound } from './network/outbound.ts';
import { createUpstream } from './network/upstream.ts';
import type { ConditionId, ConditionSink } from './observe/conditions.ts';
import { keyDigest } from './observe/own-key.ts';
import type { Collected } from './observe/watch-requests.ts';

/** The application side of the proxy, listening: in this process, or in workers. */
export interface GatewayServer {
  /** http(s)://ADDRESS:PORT, or unix:PATH */
  readonly url: string;
  readonly port: number;
  /** Looks now at the files of the certificate, of the CAs of clients, and of the clients. */
  reload(): void;
  /** Called when the state of the session may have changed. */
  sessionChanged(): void;
  /** How many processes accept connections. */
  listening(): number;
  /**
   * Collects what each worker counted: its traffic, and with `withMetrics` its metrics; takes a second at
   * most. Leaves out what this process counted, so the result is empty without workers.
   */
  collect(withMetrics: boolean): Promise<readonly Collected[]>;
  /** How many events of streams the running requests of this process have sent so far. */
  events(): number;
  /**
   * When the TLS certificate of this process, or one of its chain, expires, in ms since 1970; undefined
   * without TLS.
   */
  certificateEnds(): number | undefined;
  /**
   * From now on each response ends its connection, so that clients go elsewhere. This does not change
   * /readyz, which reports the state of the session: `announceEnd` of the session makes it 503. A worker
   * learns that state as news from the primary.
   */
  announceStop(): void;
  /** Ends the grace of `close` now. */
  endGrace(): void;
  /** SHA-256 of the clients file that this process uses; undefined without --clients. */
  clientsFile(): string | undefined;
  /**
   * Stops accepting, lets streams finish for at most the shutdown grace, ends the rest with an error event.
   */
  close(): Promise<void>;
}

type Logger = GatewayDeps['log'];

/** The parts that the program shares with its gateway. This file makes all others from the configuration. */
export type SharedDeps = Pick<
  GatewayDeps,
  | 'clock'
  | 'session'
  | 'key'
  | 'observeOwnKey'
  | 'salt'
  | 'gate'
  | 'log'
  | 'metrics'
  | 'verification'
  | 'receipts'
>;

export interface GatewayServerDeps extends SharedDeps {
  readonly outbound: Outbound;
  readonly conditions: ConditionSink;
  /** A socket that listens already; undefined: none. */
  readonly fd: number | undefined;
}

/** Opens the application side; the port is open when it resolves. Throws config_invalid and listen_failed. */
export async function startGatewayServer(
  config: Config,
  { outbound, conditions, fd, ...shared }: GatewayServerDeps,
): Promise<GatewayServer> {
  const { log, clock } = shared;
  const front = openFront(config, { log, conditions, clock });
  const clients = await clientsOf(config, { ...shared, conditions }, front);
  const { upstream, agent } = connectUpstream(config, outbound, clock);
  const terminate = new AbortController();
  const hurry = new AbortController();
  const gateway = createGateway({
    ...gatewayDeps(config, shared),
    upstream,
    clients,
    aliases: config.modelAlias.size === 0 ? undefined : config.modelAlias,
    createTranslator: config.responsesApi
      ? (await import('./responses-api/translator.ts')).createTranslator
      : undefined,
    cors: front.cors,
    terminate: terminate.signal,
  });
  const { listener, url } = await open(config, { front, fd, log, clock, handle: gateway.handle }).catch(
    (refused: unknown) => {
      front.close();
      clients?.close();
      throw refused;
    },
  );
  front.follow(listener);

  let closing = false;
  const sessionChanged = (): void => {
    agent.keep(!closing && shared.session.current() !== undefined);
  };
  sessionChanged();
  return {
    url,
    port: listener.port,
    sessionChanged,
    reload() {
      front.reload();
      void clients?.reload();
    },
    listening: () => 1,
    collect: async () => [],
    events: gateway.events,
    certificateEnds: front.certificateEnds,
    announceStop: () => listener.announceEnd(),
    endGrace: () => hurry.abort(),
    clientsFile: () => clients?.sha256(),
    async close() {
      front.close();
      clients?.close();
      closing = true;
      sessionChanged();
      const { active, settled } = gateway;
      const grace = config.shutdownGrace;
      await drain(listener, { active, settled, grace, hurry: hurry.signal, terminate, log, clock });
    },
  };
}

/**
 * Creates the connections to the service that `config` asks for. Requests go out by `upstream`; `agent` keeps
 * connections ready for them.
 */
export function connectUpstream(
  config: Pick<Config, 'apiEndpoint' | 'connectTimeout' | 'firstByteTimeout' | 'warmConnections' | 'workers'>,
  outbound: Outbound,
  clock: Clock,
) {
  const { apiEndpoint, connectTimeout, firstByteTimeout, warmConnections, workers } = config;
  const agent = outbound.agent(
    { keepAlive: true, maxFreeSockets: 256 },
    { ...apiEndpoint, count: shareOf(warmConnections, workers), connectTimeout },
  );
  const freshAgent = outbound.agent({ keepAlive: false });
  const upstream = createUpstream({
    ...apiEndpoint,
    agent,
    freshAgent,
    clock,
    connectTimeout,
    firstByteTimeout,
  });
  return { upstream, agent };
}

/** The bytes that request bodies may take in one process. */
export const bufferedBytesOf = ({
  maxBufferedBytes,
  workers,
}: Pick<Config, 'maxBufferedBytes' | 'workers'>) => Math.floor(maxBufferedBytes / workers);

/**
 * Adds to `shared` the parts that follow from `config` alone. With several workers each gets its share of the
 * memory.
 */
export function gatewayDeps(
  config: GatewayOptions & Pick<Config, 'maxBufferedBytes' | 'workers' | 'dumpRequests' | 'workspace'>,
  shared: SharedDeps,
) {
  const { workspace } = config;
  const { clock } = shared;
  const bytes = bufferedBytesOf(config);
  return {
    settings: config,
    memory: {
      uploads: createUploadBudget(bytes, { counters: shared.metrics.counters, clock }),
      responses: createResponseBudget(bytes, { counters: { bufferedBytes: 0 }, clock }),
    },
    dumper: config.dumpRequests ? createDumper({ workspace, log: shared.log }) : undefined,
    ...shared,
    salt: { ...shared.salt, onSpoilt: shared.salt.onSpoilt ?? spoilWarning() },
  };
}

const SPOILT_CACHE =
  'Claude Code begins its prompts with a line that differs in each conversation, so conversations cannot share the prompt cache: start it with CLAUDE_CODE_ATTRIBUTION_HEADER=0';

/**
 * Makes a function that warns once of prompts that spoil the shared prompt cache. With several workers, the
 * primary warns.
 */
export function spoilWarning(): (log: Logger) => void {
  let warned = false;
  return (log) => {
    if (!warned) log.warn(SPOILT_CACHE);
    warned = true;
  };
}

/** The share of one worker in a limit for all workers together: at least one, unless the limit is 0. */
const shareOf = (limit: number, workers: number): number =>
  limit === 0 ? 0 : Math.max(1, Math.floor(limit / workers));

type Front = ReturnType<typeof openFront>;

/** Keeps a condition while a followed file cannot be used. */
const conditionOf = (conditions: ConditionSink, id: ConditionId) => ({
  failed: ({ message }: PrivatemodeError): void => conditions.set(id, message),
  recovered: (): void => conditions.clear(id),
});

/**
 * Reads the certificate, its key and the CAs of clients. `follow` makes the listener use new ones. Throws
 * config_invalid.
 */
function openFront(
  config: Config,
  { log, conditions, clock }: Pick<GatewayServerDeps, 'log' | 'conditions' | 'clock'>,
) {
  const { tlsCertPath: certPath, tlsKeyPath: keyPath, tlsClientCa } = config;
  const files = certPath === undefined || keyPath === undefined ? undefined : { certPath, keyPath };
  const certificates = tlsClientCa === undefined ? undefined : createCertificates();
  let tls = files && loadTls(files);
  let clientCas = tlsClientCa === undefined ? undefined : loadClientCas(tlsClientCa);
  let cors = corsPolicy(config, tls);
  let watches: readonly { reload(): void; close(): void }[] = [];
  const lookAtExpiry = (): void => {
    if (tls !== undefined)
      noteExpiry(conditions, 'tls_certificate_expiry', { path: certPath, ...firstToEnd(tls.cert) }, clock);
    if (clientCas !== undefined)
      noteExpiry(
        conditions,
        'client_ca_expiry',
        { path: tlsClientCa, ...firstToEnd(clientCas.join('\n')) },
        clock,
      );
  };
  lookAtExpiry();
  const endLooks = tls && every(clock, clock.times.expiryLook, lookAtExpiry);

  function follow(listener: Listener): void {
    const replaced = (): void => {
      listener.replaceTls(tls as TlsMaterial, clientCas);
      lookAtExpiry();
    };
    const ofTls =
      files &&
      watchTls(files, tls as TlsMaterial, {
        changed(material) {
          tls = material;
          cors = corsPolicy(config, material);
          replaced();
          const { subject, ends } = firstToEnd(material.cert);
          log.info({ subject, expires: ends.toISOString() }, 'The TLS certificate was replaced');
        },
        ...conditionOf(conditions, 'tls_pair_unusable'),
        clock,
      });
    const ofCas =
      tlsClientCa &&
      watchClientCas(tlsClientCa, clientCas as ClientCas, {
        changed(cas) {
          clientCas = cas;
          replaced();
          log.info({ certificates: cas.length }, 'The CAs of client certificates were replaced');
        },
        ...conditionOf(conditions, 'client_cas_unusable'),
        clock,
      });
    watches = [ofTls, ofCas].filter((watch) => typeof watch === 'object');
  }

  return {
    /** Undefined: without TLS. */
    tls,
    /** Remembers which connection showed which certificate; undefined: clients are not asked for any. */
    certificates,
    clientCertificates: certificates && clientCas && { ...certificates, cas: clientCas },
    cors: (): CorsPolicy => cors,
    certificateEnds: (): number | undefined => tls && firstToEnd(tls.cert).ends.getTime(),
    /** Makes the listener use the new files whenever they change. */
    follow,
    reload(): void {
      for (const watch of watches) watch.reload();
    },
    close(): void {
      endLooks?.();
      for (const watch of watches) watch.close();
    },
  };
}

function corsPolicy(config: Config, tls: TlsMaterial | undefined): CorsPolicy {
  const names = [...ownNames(config.listenAddress, tls?.cert), ...config.allowedHosts];
  return { allowedOrigins: config.corsAllowedOrigins, ownNames: names };
}

/**
 * Opens the table of clients that may use the gateway; undefined without --clients. Throws config_invalid.
 */
async function clientsOf(
  { clients: path }: Config,
  {
    key,
    salt,
    log,
    conditions,
    observeOwnKey,
    clock,
  }: SharedDeps & Pick<GatewayServerDeps, 'conditions' | 'clock'>,
  { certificates }: Front,
): Promise<Clients | undefined> {
  if (path === undefined) return undefined;
  const tellKeys = (): void => {
    const keys = new Map([...clients.keys()].map(([name, own]) => [name, keyDigest(own)]));
    observeOwnKey?.({ type: 'clients', keys });
  };
  const clients = await openClients({
    path,
    clock,
    // The key, once configured, never goes away: a bad key file leaves the old one.
    needsKeys: key.value() === undefined,
    tokensOptional: certificates !== undefined,
    certificateOf: certificates?.of,
    sharedSalt: salt.shared,
    changed(count) {
      log.info({ clients: count }, 'The clients file, or a key in it, was read again');
      tellKeys();
    },
    ...conditionOf(conditions, 'clients_file_unusable'),
    keyFailed(of, error) {
      if (error === undefined) conditions.clear('client_key_unusable', { of });
      else conditions.set('client_key_unusable', error.message, { of });
    },
  });
  tellKeys();
  return clients;
}

/** Opens the port that `config` names. Returns the listener and its URL. Throws listen_failed. */
async function open(
  config: Config,
  {
    front,
    fd,
    log,
    clock,
    handle,
  }: Pick<GatewayServerDeps, 'fd' | 'log' | 'clock'> & {
    readonly front: Front;
    readonly handle: Parameters<typeof listen>[1];
  },
): Promise<{ readonly listener: Listener; readonly url: string }> {
  const { listenAddress, port, listenMode } = config;
  const { tls, clientCertificates } = front;
  const path = socketPath(listenAddress);
  const socketFile = path === undefined ? undefined : { path, mode: listenMode };
  const onWrongScheme = (advice: string): void => log.warn(advice);
  const listener = await listen(
    {
      clock,
      listenAddress,
      port,
      socketFile,
      tls,
      fd,
      onWrongScheme,
      response: AppResponse,
      clientCertificates,
    },
    handle,
  );
  const boundTo = fd === undefined ? listenAddress : listener.address;
  const url =
    listener.address === ''
      ? `unix:${path ?? ''}` // an inherited socket does not say where it is
      : `${tls === undefined ? 'http' : 'https'}://${urlHost(boundTo)}:${listener.port}`;
  return { listener, url };
}
