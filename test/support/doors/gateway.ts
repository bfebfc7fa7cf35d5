/** The gateway alone: a real listener and the real data path, but a session that is always attested. */

import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { type Clock, clockWith } from '../../../lib/clock.ts';
import type { Config } from '../../../lib/config/config.ts';
import type { CorsPolicy } from '../../../lib/gateway/cors.ts';
import type { GatewayDeps } from '../../../lib/gateway/deps.ts';
import { createGateway } from '../../../lib/gateway/gateway.ts';
import { AppResponse } from '../../../lib/gateway/observed-response.ts';
import { createDump } from '../../../lib/gateway/request-dump.ts';
import { connectUpstream } from '../../../lib/gateway-server.ts';
import { listen } from '../../../lib/listener/listen.ts';
import { drain } from '../../../lib/listener/serving.ts';
import { createOutbound } from '../../../lib/network/outbound.ts';
import type { Upstream } from '../../../lib/network/upstream.ts';
import { createCounters } from '../../../lib/observe/counters.ts';
import { createLogger } from '../../../lib/observe/log.ts';
import type { Finished } from '../../../lib/observe/status-report.ts';
import type { Epoch, Session } from '../../../lib/session/session.ts';
import { TIMES, type Times } from '../../../lib/times.ts';
import { keyOf } from '../evidence/engine.ts';
import { temporaryDirectory } from '../processes/temporary-directory.ts';
import { EXCHANGE } from '../remote/exchange-fixture.ts';
import { standing } from '../remote/standing.ts';
import { CANARY_KEY, searchLog } from './canaries.ts';
import { configOf } from './config.ts';

export const EPOCH: Epoch = {
  secretId: EXCHANGE.id,
  key: EXCHANGE.key,
  manifestSha256: 'a'.repeat(64),
  verdictSha256: 'c'.repeat(64),
  attestedAt: Date.UTC(2026, 0, 1),
  renewAt: Number.POSITIVE_INFINITY,
  expiresAt: Number.POSITIVE_INFINITY,
  expiresMonotonic: Number.POSITIVE_INFINITY,
};

export const NEXT_SECRET = Buffer.alloc(32, 7);

/** What a renewal leads to. */
export const NEXT_EPOCH: Epoch = {
  ...EPOCH,
  secretId: 'BnextSecretBnextSecretBnextSecretBnextSecre=',
  key: keyOf(NEXT_SECRET),
  manifestSha256: 'b'.repeat(64),
  attestedAt: Date.UTC(2026, 0, 2),
};

/**
 * A session without attestation; `overrides` replace what a test wants otherwise. `offered`: the keys that
 * requests offered, `rejected`: the secret ids that were rejected.
 */
export function fakeSession(overrides: Partial<Session> = {}) {
  const offered: (string | undefined)[] = [];
  const rejected: string[] = [];
  let epoch = EPOCH;
  const session: Session = {
    current: () => epoch,
    held: () => epoch,
    acquire({ offeredKey }) {
      offered.push(offeredKey);
      return epoch;
    },
    async renewAfterDenial(secretId) {
      rejected.push(secretId);
      epoch = NEXT_EPOCH;
      return epoch;
    },
    authenticated() {},
    standing: () => standing('verified'),
    close() {},
    ...overrides,
  };
  return { ...session, offered, rejected };
}

export type FakeSession = ReturnType<typeof fakeSession>;

/** The defaults of all flags, but for those that take long here. */
const SETTINGS: Config & { readonly warmConnections: number } = {
  ...configOf(),
  maxBodyBytes: 1024 * 1024,
  maxBufferedBytes: 1024 * 1024 * 1024,
  streamIdleTimeout: 60_000,
  firstByteTimeout: 60_000,
  warmConnections: 0,
};

/** Many handshakes run at once here, and uploads pause. */
const UNHURRIED = { epochWait: 5_000, connectTimeout: 60_000, uploadSpan: 600_000 };

export interface TestGatewayOptions {
  readonly upstream: { readonly port: number; readonly ca: string };
  readonly session?: Session;
  /** What flags say, by the names of the configuration; beside the defaults of SETTINGS. */
  readonly settings?: Partial<typeof SETTINGS>;
  /** Rows of lib/times.ts that are other ones here. */
  readonly times?: Partial<Times>;
  /** A clock in place of that of the system. */
  readonly clock?: Clock;
  readonly cors?: CorsPolicy;
  /** All other parts. */
  readonly deps?: Partial<Omit<GatewayDeps, 'session' | 'upstream' | 'settings' | 'clock'>>;
  /** Stands between the exchange and the data path. */
  readonly wrapUpstream?: (upstream: Upstream) => Upstream;
}

/** Opens a gateway on a free port of 127.0.0.1. */
export async function startGateway(options: TestGatewayOptions) {
  const directory = temporaryDirectory('privatemode-gateway-');
  const caFile = join(directory, 'ca.pem');
  writeFileSync(caFile, options.upstream.ca);
  const clock = options.clock ?? clockWith({ ...TIMES, ...UNHURRIED, ...options.times });
  const config = {
    ...{ ...SETTINGS, ...options.settings },
    workspace: directory,
    apiEndpoint: { host: 'localhost', port: options.upstream.port },
  };
  const outbound = createOutbound(
    { SSL_CERT_FILE: caFile },
    { connectTimeout: clock.times.connectTimeout, clock },
  );
  const logLines: string[] = [];
  const log = createLogger({ format: 'json', level: 20, output: { write: (line) => logLines.push(line) } });
  const counters = createCounters();
  const heldResponses = { bufferedBytes: 0 };
  const observations: Finished[] = [];
  const terminate = new AbortController();
  const session = options.session ?? fakeSession();
  const { upstream, agent } = connectUpstream(config, outbound, clock, config.warmConnections);
  agent.keep(true);
  const { wrapUpstream = (unchanged: Upstream) => unchanged } = options;
  const gateway = createGateway({
    settings: config,
    session,
    key: { value: () => CANARY_KEY },
    salt: { shared: undefined },
    clock,
    metrics: { counters, observe: (observation) => observations.push(observation) },
    log,
    dump: config.dumpRequests ? createDump(directory, log) : undefined,
    upstream: wrapUpstream(upstream),
    cors: () => options.cors ?? { allowedOrigins: [], ownNames: [] },
    memory: {
      uploads: { of: 'uploads', limit: config.maxBufferedBytes, used: counters },
      responses: { of: 'responses', limit: config.maxBufferedBytes, used: heldResponses },
    },
    terminate: terminate.signal,
    ...options.deps,
  });
  const listener = await listen(
    { at: { host: '127.0.0.1', port: 0 }, response: AppResponse, clock },
    gateway.handle,
  );
  return {
    port: listener.port,
    url: `http://127.0.0.1:${listener.port}`,
    counters,
    /** Memory that whole responses take. */
    heldResponses,
    observations,
    /** Everything that was logged, at level debug, one JSON object per line. */
    logLines,
    session,
    active: gateway.active,
    events: gateway.events,
    /** Aborts when the grace of a shutdown is over. */
    terminate: options.deps?.terminate ?? terminate.signal,
    directory,
    /** Stops as SIGTERM does, with this grace in ms. */
    drain: (grace: number): Promise<void> => drain(listener, { ...gateway, grace, terminate, log, clock }),
    async close(): Promise<void> {
      listener.destroy();
      await drain(listener, { ...gateway, grace: 0, terminate, log, clock });
      await outbound.close();
      searchLog(logLines.join(''), 'the gateway');
    },
  };
}

export type TestGateway = Awaited<ReturnType<typeof startGateway>>;
