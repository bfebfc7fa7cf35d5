/** The dependencies that all exchanges share. lib/gateway-server.ts makes them. */
import type { Clients } from '../access/clients.ts';
import type { AliasTable } from '../api/model-names.ts';
import type { Clock } from '../clock.ts';
import type { Config } from '../config/config.ts';
import type { RequestGate } from '../limits/request-gate.ts';
import type { Upstream } from '../network/upstream.ts';
import type { Counters } from '../observe/counters.ts';
import type { Logger } from '../observe/log.ts';
import type { OwnKeys } from '../observe/own-key.ts';
import type { ServiceWatch } from '../observe/service-watch.ts';
import type { Finished } from '../observe/status-report.ts';
import type { ReceiptLog } from '../receipts/receipt-log.ts';
import type { Translator } from '../responses-api/translator.ts';
import type { Session } from '../session/session.ts';
import type { CorsPolicy } from './cors.ts';
import type { MemoryBudget } from './memory.ts';
import type { Dump } from './request-dump.ts';

type Text = () => string | undefined;

/** An optional member is undefined if no flag asks for it. */
export interface GatewayDeps {
  readonly session: Session;
  readonly upstream: Upstream;
  readonly settings: Readonly<Config>;
  readonly clock: Clock;
  /** The configured key. Each use reads it anew: a key file may change. `origin`: where the key is from. */
  readonly key: { readonly value: Text; readonly origin?: Text | undefined };
  readonly ownKeys?: Pick<OwnKeys, 'refused' | 'answered'> | undefined;
  readonly service?: ServiceWatch | undefined;
  /** `shared`: the salt for requests without a salt. If undefined, each such request gets a random salt. */
  readonly salt: { readonly shared: string | undefined };
  readonly aliases?: AliasTable | undefined;
  readonly createTranslator?: ((requestId: string) => Translator) | undefined;
  readonly cors: () => CorsPolicy;
  /** The known clients. If undefined, everybody who reaches the gateway may use it. */
  readonly clients?: Pick<Clients, 'authenticate'> | undefined;
  readonly gate?: RequestGate | undefined;
  readonly memory: Readonly<Record<MemoryBudget['of'], MemoryBudget>>;
  readonly log: Logger;
  /** `observe` is called once per exchange, when it is over. */
  readonly metrics: { readonly counters: Counters; readonly observe: (request: Finished) => void };
  readonly receipts?: Pick<ReceiptLog, 'instance' | 'add'> | undefined;
  readonly dump?: Dump | undefined;
  /** Aborted, with the error for applications as its reason, when the grace period of a shutdown is over. */
  readonly terminate: AbortSignal;
}
