/** Opens what operators read: the receipts, and the listeners with status page and metrics. */
import { resolve } from 'node:path';
import type { Config } from './config/config.ts';
import { PrivatemodeError } from './errors.ts';
import { diskFailure } from './files/disk-failure.ts';
import { refuseForeignPage } from './gateway/admission.ts';
import type { GatewayServer } from './gateway-server.ts';
import { urlHost } from './network/addresses.ts';
import { type Shown, startAdmin } from './observe/admin.ts';
import type { ConditionId } from './observe/conditions.ts';
import { statusReport } from './observe/status-report.ts';
import { watchRequests } from './observe/watch-requests.ts';
import type { Shared } from './open-access.ts';
import { openReceiptLog, type ReceiptLog } from './receipts/receipt-log.ts';
import type { Session } from './session/session.ts';
import { VERSION } from './version.ts';

const DAY_MS = 86_400_000;
const UNPRUNED = 'Old exchanges beside the receipts could not be removed; the next verification tries again';

/** Opens the receipts of this instance, with their first line on disk. Throws receipts_unavailable. */
export async function openReceipts(
  { workspace }: Config,
  { clock, log, counters, conditions, opened }: Shared,
): Promise<ReceiptLog> {
  const forADay = (id: ConditionId, message: string, fields?: { readonly lost: number }): void =>
    conditions.set(id, message, { lasts: DAY_MS, fields });
  const receipts = await openReceiptLog({
    workspace,
    version: VERSION,
    clock,
    counters: counters.receipts,
    onFailure(error) {
      const remedy = error instanceof PrivatemodeError ? error.remedy : undefined;
      conditions.set('receipts_waiting', diskFailure(resolve(workspace), error), { remedy });
    },
    onRecovery: (lost) => conditions.clear('receipts_waiting', { fields: { lost } }),
    onLoss: (lost) => forADay('receipts_lost', `${counters.receipts.lost} since the start`, { lost }),
    onUnpruned: ({ message: reason }) => log.warn({ reason }, UNPRUNED),
    onReplaced: () => forADay('receipts_moved', `${workspace}/receipts lacked the key`),
  });
  opened.defer(() => receipts.close());
  const { instance, publicKey, isKeyChanged } = receipts;
  const changed = `${workspace}/receipts named another public key, or has receipts whose public key is not in its keys`;
  if (isKeyChanged) forADay('receipts_key_changed', changed);
  log.info({ instance, publicKey }, 'Each request gets a receipt, signed with this key');
  return receipts;
}

/**
 * Opens the listeners of --admin-address and --metrics-address. Returns what wants to know of each request
 * that is over. Throws listen_failed.
 */
export async function openAdmin(
  { adminAddress, metricsAddress, allowedHosts, apiEndpoint, maxBufferedBytes, protocolVersion }: Config,
  { clock, log, counters, conditions, opened }: Shared,
  seen: {
    readonly session: Pick<Session, 'current' | 'standing'>; // its error is what the operator should read
    readonly verification: { readonly document: Shown['verification'] };
    readonly clients: { sha256(): string } | undefined;
    readonly receipts: Pick<ReceiptLog, 'instance'> | undefined;
    readonly server: () => GatewayServer | undefined; // undefined before it listens
  },
) {
  const { verification, clients, receipts, server } = seen;
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
    conditions: conditions.list,
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
      conditions: conditions.list(),
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
      readiness: () => ({ ...standing(), isServed: server()?.isOpen() ?? false }),
      status,
      verification: verification.document,
    });
    opened.defer(() => listener.close());
    log.info({ admin: `http://${urlHost(address.host)}:${listener.port}` }, what);
  }
  return watch.observe;
}
