/**
 * Opens what the proxy keeps of requests, the counts of the limits and the receipts, and sets the conditions
 * of their disk or store.
 */
import { resolve } from 'node:path';
import { checkClients } from './access/clients.ts';
import type { Clock } from './clock.ts';
import type { Config } from './config/config.ts';
import { parseStoreUrl } from './config/limits-store.ts';
import { PrivatemodeError } from './errors.ts';
import { diskFailure } from './files/disk-failure.ts';
import { openCountLog } from './limits/count-log.ts';
import { createRequestCounts } from './limits/count-requests.ts';
import { createFairQueue } from './limits/fair-queue.ts';
import type { RequestCounts } from './limits/limits.ts';
import { openRedisCounts } from './limits/redis-counts.ts';
import { createRequestGate, type RequestGate } from './limits/request-gate.ts';
import { urlHost } from './network/addresses.ts';
import type { ConditionSink } from './observe/conditions.ts';
import type { Counters } from './observe/counters.ts';
import type { Logger } from './observe/log.ts';
import { openReceiptLog, type ReceiptLog } from './receipts/receipt-log.ts';
import { VERSION } from './version.ts';

interface RecordsDeps {
  readonly log: Logger;
  readonly counters: Counters;
  readonly conditions: ConditionSink;
  readonly clock: Clock;
}

interface CountsDeps extends RecordsDeps {
  /** The certificates that outbound connections trust. */
  readonly authorities: readonly string[];
}

const DAY_MS = 86_400_000;

/**
 * Opens the counts of the clients' requests and tokens. They are kept in a Redis, or in the
 * memory of this process, which begins with the counts that were stored in the workspace.
 */
async function openCounts(
  config: Config,
  { authorities, log, counters, conditions, clock }: CountsDeps,
): Promise<RequestCounts> {
  const { workspace, limitsStore, limitsStoreFailure } = config;
  if (limitsStore !== undefined) {
    const { host, port } = parseStoreUrl(limitsStore, '--limits-store');
    const store = `${urlHost(host)}:${port}`;
    return openRedisCounts({
      url: limitsStore,
      onFailure: limitsStoreFailure,
      ca: authorities,
      clock,
      connected: () => log.info({ store }, 'Connected to the store of the limits'),
      failed: (_error, reason) => conditions.set('limits_store_away', `${store}: ${reason}`),
      recovered: () => conditions.clear('limits_store_away'),
      unusable: (client, reason) =>
        conditions.set('client_counts_unusable', `${client}: ${reason}`, { of: client, fields: { client } }),
      usable: (client) => conditions.clear('client_counts_unusable', { of: client }),
      uncounted() {
        counters.uncounted += 1;
      },
    });
  }
  const stored = await openCountLog({
    workspace,
    clock,
    onFailure: (error) => conditions.set('counts_waiting', diskFailure(resolve(workspace), error)),
    onRecovery: (lost) => conditions.clear('counts_waiting', { fields: { lost } }),
  });
  const { before, unreadable: lines } = stored;
  if (lines > 0)
    log.warn({ lines }, 'Some lines of the counts of the limits cannot be read, and are left out');
  return { ...createRequestCounts({ clock, before, record: stored.add }), close: stored.close };
}

/**
 * Opens the gate that gives requests their permits; undefined: they need none. Throws config_invalid, also if
 * the clients file cannot be used.
 */
export async function openGate(
  config: Config,
  {
    key,
    opened,
    ...deps
  }: CountsDeps & {
    readonly key: { readonly value: () => string | undefined };
    /** The parts to close at the end, in the reverse order. */
    readonly opened: AsyncDisposableStack;
  },
): Promise<RequestGate | undefined> {
  const { clients: path, maxInFlight, tlsClientCa } = config;
  const { clock } = deps;
  const needsKeys = key.value() === undefined;
  if (path !== undefined)
    await checkClients({ path, needsKeys, tokensOptional: tlsClientCa !== undefined, clock });
  const counts = path === undefined ? undefined : await openCounts(config, deps);
  opened.defer(() => counts?.close());
  const queue = maxInFlight === undefined ? undefined : createFairQueue(maxInFlight, clock);
  return counts === undefined && queue === undefined ? undefined : createRequestGate({ counts, queue });
}

/** Opens the receipts of this instance, with their first line on disk. Throws receipts_unavailable. */
export async function openReceipts(
  config: Config,
  { log, counters, conditions, clock }: RecordsDeps,
): Promise<ReceiptLog> {
  const opened = await openReceiptLog({
    workspace: config.workspace,
    version: VERSION,
    clock,
    counters: counters.receipts,
    onFailure(error) {
      const remedy = error instanceof PrivatemodeError ? error.remedy : undefined;
      conditions.set('receipts_waiting', diskFailure(resolve(config.workspace), error), { remedy });
    },
    onRecovery: (lost) => conditions.clear('receipts_waiting', { fields: { lost } }),
    onLoss(lost) {
      const message = `${counters.receipts.lost} since the start`;
      conditions.set('receipts_lost', message, { lasts: DAY_MS, fields: { lost } });
    },
    onUnpruned: ({ message: reason }) =>
      log.warn(
        { reason },
        'Old exchanges beside the receipts could not be removed; the next verification tries again',
      ),
    onReplaced: () =>
      conditions.set('receipts_moved', `${config.workspace}/receipts lacked the key`, { lasts: DAY_MS }),
  });
  const { instance, publicKey } = opened;
  if (opened.isKeyChanged)
    conditions.set(
      'receipts_key_changed',
      `${config.workspace}/receipts named another public key, or has receipts whose public key is not in its keys`,
      {
        lasts: DAY_MS,
      },
    );
  log.info({ instance, publicKey }, 'Each request gets a receipt, signed with this key');
  return opened;
}
