/** Composes the gateway from the configuration, opens and closes its port, and ends it. */

import type { Clock } from './clock.ts';
import type { Config } from './config/config.ts';
import { socketPath } from './config/values.ts';
import type { PrivatemodeError } from './errors.ts';
import { AppResponse } from './gateway/app-response.ts';
import type { GatewayDeps, GatewayOptions } from './gateway/deps.ts';
import { createGateway } from './gateway/gateway.ts';
import { createResponseBudget, createUploadBudget } from './gateway/memory-budget.ts';
import { createDumper } from './gateway/request-dump.ts';
import { drain } from './listener/drain.ts';
import { listen } from './listener/listen.ts';
import { sharePort } from './listener/shared-port.ts';
import { urlHost } from './network/addresses.ts';
import type { Outbound } from './network/outbound.ts';
import { createUpstream } from './network/upstream.ts';
import type { ConditionSink } from './observe/conditions.ts';
import { watchOwnKeys } from './observe/own-key.ts';
import { type Front, openFront, openFrontClients } from './open-front.ts';

/** The application side of the proxy, listening. */
export type GatewayServer = Awaited<ReturnType<typeof startGatewayServer>>;

/** The parts that the program shares with its gateway. This file makes all others from the configuration. */
export type SharedDeps = Pick<
  GatewayDeps,
  'clock' | 'session' | 'key' | 'gate' | 'log' | 'metrics' | 'verification' | 'receipts'
> & {
  /** The salt of requests that bring none; undefined: each of them gets a random one. */
  readonly sharedSalt: string | undefined;
};

export interface GatewayServerDeps extends SharedDeps {
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
export async function startGatewayServer(
  config: Config,
  { outbound, conditions, fd, onPermanent, ...shared }: GatewayServerDeps,
) {
  const { log, clock, key, session } = shared;
  const front = openFront(config, { log, conditions, clock });
  const clients = await openFrontClients(config, {
    ...shared,
    conditions,
    front,
    keysReplaced: () => ownKeys.replaced(),
  });
  const ownKeys = watchOwnKeys({
    conditions,
    keyOf: (client) => (client === undefined ? key.value() : clients?.keyOf(client)),
    origin: key.origin,
  });
  const { upstream, agent } = connectUpstream(config, outbound, clock);
  const terminate = new AbortController();
  const hurry = new AbortController();
  const gateway = createGateway({
    ...gatewayDeps(config, shared),
    ownKeys,
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
  const sharedPort = config.reusePort
    ? sharePort(listener, {
        secretEnds: () => session.current()?.expiresMonotonic,
        failed: onPermanent,
        log,
        clock,
      })
    : undefined;

  let closing = false;
  const sessionChanged = (): void => {
    agent.keep(!closing && session.current() !== undefined);
    sharedPort?.look();
  };
  sessionChanged();
  return {
    /** http(s)://ADDRESS:PORT, or unix:PATH */
    url,
    port: listener.port,
    /** Resolved once the port has been open. */
    opened: sharedPort?.opened ?? Promise.resolve(),
    /** Whether the port is open. */
    isOpen: listener.isOpen,
    /** Called when the state of the session may have changed. */
    sessionChanged,
    /** Called when --api-key has another key. */
    keyReplaced: ownKeys.replaced,
    /** Looks now at the files of the certificate, of the CAs of clients, and of the clients. */
    reload() {
      front.reload();
      void clients?.reload();
    },
    /** How many events of streams the running requests have sent so far. */
    events: gateway.events,
    /** When the TLS certificate, or one of its chain, expires, in ms since 1970; undefined without TLS. */
    certificateEnds: front.certificateEnds,
    /**
     * From now on each response ends its connection, so that clients go elsewhere; with --reuse-port the port
     * is closed too. This does not change /readyz, which reports the state of the session: `announceEnd` of
     * the session makes it 503.
     */
    announceStop() {
      sharedPort?.end();
      listener.announceEnd();
    },
    /** Ends the grace of `close` now. */
    endGrace: () => hurry.abort(),
    /** SHA-256 of the clients file in force; undefined without --clients. */
    clientsFile: () => clients?.sha256(),
    /**
     * Stops accepting, lets streams finish for at most the shutdown grace, ends the rest with an error event.
     */
    async close() {
      front.close();
      clients?.close();
      closing = true;
      sharedPort?.end();
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
  config: Pick<Config, 'apiEndpoint' | 'connectTimeout' | 'firstByteTimeout' | 'warmConnections'>,
  outbound: Outbound,
  clock: Clock,
) {
  const { apiEndpoint, connectTimeout, firstByteTimeout, warmConnections: count } = config;
  const agent = outbound.agent({ keepAlive: true, maxFreeSockets: 256 }, { ...apiEndpoint, count });
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

/** Adds to `shared` the parts that follow from `config` alone. */
export function gatewayDeps(
  config: GatewayOptions & Pick<Config, 'maxBufferedBytes' | 'dumpRequests' | 'workspace'>,
  { sharedSalt, ...shared }: SharedDeps,
) {
  const { workspace, maxBufferedBytes: bytes } = config;
  const { clock, log } = shared;
  return {
    settings: config,
    memory: {
      uploads: createUploadBudget(bytes, { counters: shared.metrics.counters, clock }),
      responses: createResponseBudget(bytes, { counters: { bufferedBytes: 0 }, clock }),
    },
    dumper: config.dumpRequests ? createDumper({ workspace, log }) : undefined,
    ...shared,
    salt: { shared: sharedSalt },
  };
}

/** Makes the listener that `config` names. Returns it with its URL. Throws listen_failed. */
async function open(
  { listenAddress, port, listenMode, reusePort }: Config,
  {
    front: { tls, clientCertificates },
    handle,
    fd,
    log,
    clock,
  }: Pick<GatewayServerDeps, 'fd' | 'log' | 'clock'> & {
    readonly front: Front;
    readonly handle: Parameters<typeof listen>[1];
  },
) {
  const path = socketPath(listenAddress);
  const socketFile = path === undefined ? undefined : { path, mode: listenMode };
  const onWrongScheme = (advice: string): void => log.warn(advice);
  const listener = await listen(
    {
      clock,
      listenAddress,
      port,
      reusePort,
      socketFile,
      fd,
      tls,
      clientCertificates,
      onWrongScheme,
      response: AppResponse,
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
