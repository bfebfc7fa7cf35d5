/** What all exchanges of the gateway share. lib/gateway-server.ts makes it. */

import type { Clients } from '../access/clients.ts';
import type { AliasTable } from '../api/model-aliases.ts';
import type { Clock } from '../clock.ts';
import type { RequestGate } from '../limits/request-gate.ts';
import type { Upstream } from '../network/upstream.ts';
import type { Counters } from '../observe/counters.ts';
import type { Logger } from '../observe/log.ts';
import type { RequestObservation } from '../observe/metrics.ts';
import type { OwnKeys } from '../observe/own-key.ts';
import type { FallbackMode } from '../pipeline/rewrite-auth.ts';
import type { ReceiptLog } from '../receipts/receipt-log.ts';
import type { Translator } from '../responses-api/translator.ts';
import type { Session } from '../session/session.ts';
import type { CorsPolicy } from './cors.ts';
import type { MemoryBudget } from './memory.ts';
import type { Dumper } from './request-dump.ts';

/** The settings (lib/config/flags.ts) that an exchange needs; the names are those of `Config`. */
export interface GatewayOptions {
  readonly apiKeyFallback: FallbackMode;
  readonly maxBodyBytes: number;
  /** Bytes per second that an upload must reach. */
  readonly minUploadRate: number;
  /** ms that may pass between two chunks of a response. */
  readonly streamIdleTimeout: number;
  /** ms of silence in a stream after which the application gets a comment; 0: it gets none. */
  readonly streamKeepalive: number;
  /** The value of Privatemode-Version: the version that the proxy announces, however requests are sealed. */
  readonly protocolVersion: string;
  readonly gpuOcspAllowUnknown: boolean;
  readonly gpuOcspRevokedGracePeriodHours: number;
}

export interface GatewayDeps {
  readonly session: Session;
  readonly upstream: Upstream;
  readonly settings: GatewayOptions;
  readonly clock: Clock;
  /**
   * The configured key and, for the log, where it comes from. Both are asked for anew each time, because a
   * key file may change.
   */
  readonly key: {
    readonly value: () => string | undefined;
    readonly origin?: (() => string | undefined) | undefined;
  };
  /** Told how the service answers the keys of the operator: the configured one, and those of clients. */
  readonly ownKeys?: Pick<OwnKeys, 'refused' | 'answered'> | undefined;
  /** `shared`: the salt of requests that bring none; undefined: each of them gets a random one. */
  readonly salt: { readonly shared: string | undefined };
  /** Other names for models; undefined without --model-alias. */
  readonly aliases?: AliasTable | undefined;
  /** Makes the translator of one exchange of the Responses API; undefined without --responses-api. */
  readonly createTranslator?: ((requestId: string) => Translator) | undefined;
  readonly cors: () => CorsPolicy;
  /** Undefined without --clients: everybody who reaches the gateway may use it. */
  readonly clients?: Pick<Clients, 'authenticate'> | undefined;
  /** Gives requests their permits; undefined without --clients and --max-in-flight. */
  readonly gate?: RequestGate | undefined;
  /** Bounds all request bodies, and all responses that are kept whole until they are authentic. */
  readonly memory: { readonly uploads: MemoryBudget; readonly responses: MemoryBudget };
  readonly log: Logger;
  /** `observe` is called once per exchange, when it is over. */
  readonly metrics: {
    readonly counters: Counters;
    readonly observe: (observation: RequestObservation) => void;
  };
  /** The text of GET /verification as it is now; undefined: there is no such path (--expose-verification). */
  readonly verification?: (() => Promise<string>) | undefined;
  /** Undefined without --receipts. */
  readonly receipts?: Pick<ReceiptLog, 'instance' | 'add'> | undefined;
  /** Undefined without --dump-requests. */
  readonly dumper?: Dumper | undefined;
  /** Aborted when the grace period of a shutdown is over. Its reason is the error that applications get. */
  readonly terminate: AbortSignal;
}
