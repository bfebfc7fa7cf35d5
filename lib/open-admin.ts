/** Opens the listeners for operators, and connects what they show. */
import type { IncomingMessage } from 'node:http';
import type { Clock } from './clock.ts';
import type { Config } from './config/config.ts';
import { refuseForeignPage } from './gateway/admission.ts';
import type { GatewayServer } from './gateway-server.ts';
import { urlHost } from './network/addresses.ts';
import { startAdmin } from './observe/admin.ts';
import type { Conditions } from './observe/conditions.ts';
import type { Counters } from './observe/counters.ts';
import type { Logger } from './observe/log.ts';
import { type StatusReport, statusReport } from './observe/status-report.ts';
import type { VerificationDocument } from './observe/verification-document.ts';
import { watchRequests } from './observe/watch-requests.ts';
import type { AttestedSession } from './session/session.ts';
import type { Standing } from './session/standing.ts';
import { VERSION } from './version.ts';

export interface AdminDeps {
  readonly session: AttestedSession;
  /** The state of the session now, its error as the operator should read it. */
  readonly standing: () => Standing;
  readonly verification: { readonly document: () => Promise<VerificationDocument> };
  readonly counters: Counters;
  readonly conditions: Pick<Conditions, 'list'>;
  readonly log: Logger;
  /** The parts to close at the end, in the reverse order. */
  readonly opened: AsyncDisposableStack;
  /** Serves the applications; undefined before it listens. */
  readonly server: () => GatewayServer | undefined;
  /** The instance whose chain has the receipts; undefined without --receipts. */
  readonly instance: string | undefined;
  readonly clock: Clock;
}

/**
 * Opens the listeners of --admin-address and --metrics-address. Returns what wants to know of each request
 * that is over; undefined: neither listener is set.
 */
export async function openAdmin(
  config: Config,
  { session, standing, verification, counters, conditions, log, opened, server, instance, clock }: AdminDeps,
) {
  const { adminAddress, metricsAddress, allowedHosts, apiEndpoint, clients, maxBufferedBytes } = config;
  if (adminAddress === undefined && metricsAddress === undefined) return undefined;
  const startedAt = clock.now();
  const watch = await watchRequests({
    clock,
    counters,
    events: () => server()?.events() ?? 0,
    conditions: conditions.list,
    certificateEnds: () => server()?.certificateEnds(),
    protection: session.current,
    standing: session.standing,
    serverAddress: apiEndpoint.host,
    maxBufferedBytes,
    clients: clients !== undefined,
  });
  opened.defer(() => watch.traffic.close());
  const status = (): StatusReport =>
    statusReport({
      version: VERSION,
      protocol: config.protocolVersion,
      now: clock.now(),
      startedAt,
      conditions: conditions.list(),
      traffic: watch.traffic.snapshot(),
      clientsFile: server()?.clientsFile(),
      session,
      standing: standing(),
      counters,
      instance,
    });
  const shown = {
    metrics: watch.metrics,
    readiness: () => ({ ...standing(), isServed: server()?.isOpen() ?? false }),
    status,
    verification: verification.document,
  };
  for (const [flag, address] of [
    ['admin-address', adminAddress],
    ['metrics-address', metricsAddress],
  ] as const) {
    if (address === undefined) continue;
    const policy = { allowedOrigins: [], ownNames: [address.host, ...allowedHosts] };
    const admit = (req: IncomingMessage): void => refuseForeignPage(req, policy);
    const listener = await startAdmin({ flag, ...address, ...shown, admit, clock });
    opened.defer(() => listener.close());
    const what = flag === 'admin-address' ? 'Serving status page and metrics' : 'Serving metrics';
    log.info({ admin: `http://${urlHost(address.host)}:${listener.port}` }, what);
  }
  return watch;
}
