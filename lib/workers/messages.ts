/**
 * The messages between the process that keeps the session (the primary) and its workers. They travel over the
 * IPC channel of node:cluster with the structured clone algorithm, inside this machine and this user.
 */
import { secretKey } from '#crypto/aead';
import type { Config } from '../config/config.ts';
import { asPrivatemodeError, ERRORS, PrivatemodeError } from '../errors.ts';
import type { LimitedClient } from '../limits/limits.ts';
import type { ConditionId, ConditionOptions } from '../observe/conditions.ts';
import type { OwnKeyEvent } from '../observe/own-key.ts';
import type { Collected } from '../observe/watch-requests.ts';
import type { RequestReceipt } from '../receipts/receipt.ts';
import type { Epoch } from '../session/session.ts';
import type { SessionFacts } from '../session/standing.ts';

/** An epoch with its key as bytes, because a key object cannot cross processes. */
export type EpochWire = Omit<Epoch, 'key'> & { readonly keyBytes: Uint8Array };

export interface ErrorWire extends Pick<PrivatemodeError, 'code' | 'message'> {
  readonly retryAfter?: number | undefined;
  /** Only if it differs from the remedy of the code. */
  readonly remedy?: string | undefined;
}

/** Everything a worker needs to know of the session at any moment; sent whole whenever it changes. */
export interface News {
  readonly epoch: EpochWire | undefined;
  readonly facts: Omit<SessionFacts, 'error'> & { readonly error: ErrorWire | undefined };
  readonly configuredKey: string | undefined;
  readonly keyOrigin?: string | undefined;
}

/** The first message to a worker. */
export interface Start {
  /** The version of the primary: on disk, where the worker comes from, there may be another one by now. */
  readonly version: string;
  /** What the primary has read at its start; a worker reads none of these files again. */
  readonly config: Config;
  /** The certificates that outbound connections trust. */
  readonly authorities: readonly string[];
  /** As for GatewayDeps. */
  readonly sharedSalt: string | undefined;
  /** As for GatewayServerDeps. */
  readonly fd: number | undefined;
  /** The instance whose chain has the receipts; undefined without --receipts. */
  readonly receiptInstance: string | undefined;
  /** Whether requests need permits from the primary. */
  readonly gated: boolean;
  readonly type: 'start';
  readonly news: News;
}

/** The messages about the session that a worker gets. */
export type SessionNews =
  | { readonly type: 'news'; readonly news: News }
  | { readonly type: 'answer'; readonly id: number; readonly epoch: EpochWire }
  | { readonly type: 'answer'; readonly id: number; readonly error: ErrorWire };

type OwnKeyReport = { readonly type: 'own-key'; readonly event: OwnKeyEvent };

type Order =
  | { readonly type: 'collect'; readonly id: number; readonly withMetrics: boolean }
  /** What a worker reported, for all workers. */
  | OwnKeyReport
  | { readonly type: 'reload' | 'announce-stop' | 'drain' | 'end-grace' };
/**
 * The text of GET /verification. The primary makes it each time a worker asks: a worker that kept one would
 * show it after its time.
 */
export type VerificationMessage = { readonly type: 'verification'; readonly id: number } & (
  | { readonly answer: string }
  | { readonly error: ErrorWire }
);
/** What a request gets at the gate: its permit, or with `error` no permit. */
export interface Entered {
  readonly type: 'entered';
  readonly id: number;
  readonly error?: ErrorWire;
}
export type ToWorker = Start | SessionNews | VerificationMessage | Entered | Order;

/** A response has authenticated under a secret that is not in force any more. */
export interface Authenticated {
  readonly type: 'authenticated';
  readonly secretId: string;
}

/** What a worker asks of the session. `id` comes back in the answer. */
export type Question = { readonly id: number } & (
  | { readonly type: 'acquire'; readonly offeredKey: string | undefined; readonly timeoutMs: number }
  | { readonly type: 'renew'; readonly secretId: string }
);

/**
 * What a worker asks of the gate; `id` is that of the request. After `leave-queue` the request wants no
 * permit any more, and the primary releases one that the gate gave meanwhile. `tokens`: as for
 * Permit.release.
 */
export type AtGate = { readonly id: number } & (
  | { readonly type: 'enter'; readonly client: LimitedClient | undefined }
  | { readonly type: 'leave-queue' }
  | { readonly type: 'release'; readonly tokens: number }
);

/** A condition holds in a worker. Without `message` it is over. */
export interface ConditionNews {
  readonly type: 'condition';
  readonly id: ConditionId;
  readonly message?: string;
  readonly options?: ConditionOptions | undefined;
}

export type ToPrimary =
  | Question
  | AtGate
  | { readonly type: 'listening'; readonly url: string; readonly port: number }
  /** The worker could not start. `version`: its own. */
  | { readonly type: 'failed'; readonly version: string; readonly error: ErrorWire }
  | { readonly type: 'receipt'; readonly receipt: RequestReceipt }
  | { readonly type: 'spoils-cache' }
  | ConditionNews
  | OwnKeyReport
  | Authenticated
  | { readonly type: 'ask-verification'; readonly id: number }
  | { readonly type: 'collected'; readonly id: number; readonly collected: Collected | undefined }
  /** The last message of a worker: it has sent everything it had to send. */
  | { readonly type: 'done' };

export const epochToWire = ({ key, ...rest }: Epoch): EpochWire => ({ ...rest, keyBytes: key.export() });

/** The epoch as the gateway knows it; the bytes are zeroed once the key holds them. */
export function epochFromWire({ keyBytes, ...rest }: EpochWire): Epoch {
  return Object.freeze({ ...rest, key: secretKey(keyBytes) });
}

export const errorToWire = (thrown: unknown): ErrorWire => wireOf(asPrivatemodeError(thrown));
const wireOf = ({ code, message, retryAfter, remedy }: PrivatemodeError): ErrorWire => ({
  code,
  message,
  ...(retryAfter === undefined ? {} : { retryAfter }),
  ...(remedy === ERRORS[code].remedies.operator ? {} : { remedy }),
});

export const errorFromWire = ({ code, message, retryAfter, remedy }: ErrorWire): PrivatemodeError =>
  new PrivatemodeError(code, message, { retryAfter, remedy });
