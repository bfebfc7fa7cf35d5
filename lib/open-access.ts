/** Opens the parts that decide who may use the gateway, and how much: the clients, and their counts. */
import { resolve } from 'node:path';
import { openClients } from './access/clients.ts';
import type { Clock } from './clock.ts';
import type { ConfiguredKey } from './config/api-key.ts';
import type { Config } from './config/config.ts';
import { reasonOf } from './files/path-refusal.ts';
import { createRequestCounts } from './limits/count-requests.ts';
import { openCountsFile } from './limits/counts-file.ts';
import { createFairQueue } from './limits/fair-queue.ts';
import { openRedisCounts } from './limits/redis-counts.ts';
import { createRequestGate } from './limits/request-gate.ts';
import type { Counters } from './observe/counters.ts';
import type { Logger } from './observe/log.ts';
import type { Notices } from './observe/notices.ts';
import { watchOwnKeys } from './observe/own-key.ts';

/** The parts that every other part of the proxy gets. */
export interface Shared {
  readonly clock: Clock;
  readonly log: Logger;
  readonly counters: Counters;
  readonly notices: Notices;
  readonly opened: AsyncDisposableStack; // each part adds how it ends; the parts end in the reverse order
}

/**
 * Opens the clients (undefined without --clients), the watch over the operator's API keys, and the gate that
 * gives requests their permits (undefined without --clients and --max-in-flight). `salt`: the salt of the
 * shared prompt cache. `authorities`: the CAs (PEM) that outbound connections trust. Throws config_invalid.
 */
export async function openAccess(
  config: Config,
  shared: Shared,
  key: Pick<ConfiguredKey, 'value' | 'origin'>,
  salt: string | undefined,
  authorities: readonly string[],
) {
  const { clock, log, notices, opened } = shared;
  const { clients: path, maxInFlight } = config;
  const keyOf = (client?: string) => (client === undefined ? key.value() : clients?.keyOf(client));
  const ownKeys = watchOwnKeys(notices, keyOf, key.origin);
  const changed = (count: number): void => {
    log.info({ clients: count }, 'The clients file, or a key in it, was read again');
    ownKeys.replaced();
  };
  const needsKeys = key.value() === undefined; // a configured key never goes away
  const options = { needsKeys, sharedSalt: salt, changed, notices, clock };
  const clients = path === undefined ? undefined : await openClients({ path, ...options });
  opened.defer(() => clients?.close());
  const counts = clients && (await openCounts(config, shared, authorities));
  opened.defer(() => counts?.close());
  const queue = maxInFlight === undefined ? undefined : createFairQueue(maxInFlight, clock);
  const gate = (counts ?? queue) && createRequestGate({ counts, queue });
  return { clients, ownKeys, gate };
}

/** Opens the counts of requests and tokens: in Redis, or in memory with the counts stored in a file. */
async function openCounts(
  { workspace, limitsStore, limitsStoreFailure }: Config,
  { clock, counters, notices }: Shared,
  authorities: readonly string[],
) {
  if (limitsStore !== undefined) {
    const store = new URL(limitsStore).host;
    return openRedisCounts({
      url: limitsStore,
      onFailure: limitsStoreFailure,
      ca: authorities,
      clock,
      failed: (reason) => notices.set('limits_store_away', `${store}: ${reason}`),
      usable: () => notices.clear('limits_store_away'),
      uncounted: () => counters.uncounted++,
    });
  }
  const { before, store, close } = await openCountsFile(workspace, clock, (reason) => {
    if (reason === undefined) notices.clear('counts_waiting');
    else notices.set('counts_waiting', `${resolve(workspace)}: ${reasonOf(reason)}`);
  });
  return { ...createRequestCounts({ clock, before, changed: store }), close };
}
