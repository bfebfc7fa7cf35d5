/** Opens what operators read: the receipts, and the listeners with status page and metrics. */
import { resolve } from 'node:path';
import type { Config } from './config/config.ts';
import { PrivatemodeError } from './errors.ts';
import { reasonOf } from './files/path-refusal.ts';
import { refuseForeignPage } from './gateway/admission.ts';
import type { GatewayServer } from './gateway-server.ts';
import { urlHost } from './network/addresses.ts';
import { type Shown, startAdmin } from './observe/admin.ts';
import type { ServiceWatch } from './observe/service-watch.ts';
import { statusReport } from './observe/status-report.ts';
import { watchRequests } from './observe/watch-requests.ts';
import type { Shared } from './open-access.ts';
import { openReceiptLog, type ReceiptLog } from './receipts/receipt-log.ts';
import type { Session } from './session/session.ts';
import { VERSION } from './version.ts';

const DAY_MS = 86_400_000;

/** Opens the receipts of this instance, with their first line on disk. Throws receipts_unavailable. */
export async function openReceipts(
  { workspace, unsafeTrustRoots }: Config,
  { clock, log, counters, notices, opened }: Shared,
): Promise<ReceiptLog> {
  let forget = (): void => {}; // nobody sees the end of a loss
  opened.defer(() => forget());
  const receipts = await openReceiptLog({
    workspace,
    version: VERSION,
    roots: unsafeTrustRoots === undefined ? 'vendor' : 'custom',
    clock,
    counters: counters.receipts,
    onFailure: (error) => {
      const more = error instanceof PrivatemodeError ? `. ${error.remedy}` : ''; // it knows better
      notices.set('receipts_unwritten', `${resolve(workspace)}: ${reasonOf(error)}${more}`);
    },
    onRecovery: () => notices.clear('receipts_unwritten'),
    onLost() {
      forget();
      forget = clock.after(DAY_MS, () => notices.clear('receipts_lost'));
      notices.set('receipts_lost', `${counters.receipts.lost} lost since the start`);
    },
  });
  opened.defer(() => receipts.close());
  const { instance, publicKey } = receipts;
  log.info({ instance, publicKey }, 'Each request gets a receipt, signed with this key');
  return receipts;
}

/**
 * Opens the listeners of --admin-address and --metrics-address. Returns what wants to know of each request
 * that is over. Throws listen_failed.
 */
export async function openAdmin(
  { adminAddress, metricsAddress, allowedHosts, apiEndpoint, maxBufferedBytes, protocolVersion }: Config,
  { clock, log, counters, notices, opened }: Shared,
  seen: {
    readonly session: Pick<Session, 'current' | 'standing'>; // its error is what the operator should read
    readonly verification: { readonly document: Shown['verification'] };
    readonly clients: { sha256(): string } | undefined;
    readonly receipts: Pick<ReceiptLog, 'instance'> | undefined;
    readonly service: ServiceWatch;
    readonly server: () => GatewayServer | undefined; // undefined before it listens
  },
) {
  const { verification, clients, receipts, server, service } = seen;
  const { current, standing } = seen.session;
  const listeners = [
    ['admin-address', adminAddress, 'Serving status page and metrics'],
    ['metrics-address', metricsAddress, 'Serving metrics'],
  ] as const;
  if (adminAddress === undefined && metricsAddress === undefined) return () => {};
  const startedAt = clock.now();
  const watch = await watchRequests({
    clock,
    counters,
    standing,
    events: () => server()?.events() ?? 0,
    notices: notices.list,
    certificateEnds: () => server()?.certificateEnds(),
    protection: current,
    serverAddress: apiEndpoint.host,
    maxBufferedBytes,
    clients: clients !== undefined,
  });
  opened.defer(() => watch.traffic.close());
  const status = () => {
    const about = {
      protocol: protocolVersion,
      now: clock.now(),
      startedAt,
      conditions: notices.list(),
      traffic: watch.traffic.snapshot(),
      clientsFile: clients?.sha256(),
      receipts: receipts && { instance: receipts.instance, ...counters.receipts },
    };
    return statusReport(about, standing(), current());
  };
  for (const [flag, address, what] of listeners) {
    if (address === undefined) continue;
    const policy = { allowedOrigins: [], ownNames: [address.host, ...allowedHosts] };
    const listener = await startAdmin({
      ...address,
      flag,
      clock,
      admit: (req) => refuseForeignPage(req, policy),
      metrics: watch.metrics,
      readiness: () => ({
        ...standing(),
        isServed: server()?.isOpen() ?? false,
        notServing: service.notServing(),
      }),
      status,
      verification: verification.document,
    });
    opened.defer(() => listener.close());
    log.info({ admin: `http://${urlHost(address.host)}:${listener.port}` }, what);
  }
  return watch.observe;
}
