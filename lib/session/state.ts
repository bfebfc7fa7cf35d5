/**
 * The state of a session as data, and what can be read from it. It holds no keys, no secrets, and nothing
 * that waits. lib/session/decide.ts changes it.
 */

import type { Present } from '../clock.ts';
import type { PrivatemodeError } from '../errors.ts';
import type { Epoch } from './epoch.ts';
import { secretAt } from './lifetimes.ts';
import type { ManifestSource } from './manifest-source.ts';
import { isRejected, NO_VERDICTS, type Verdicts } from './refusal.ts';
import type { LastOutcome, SessionFacts } from './standing.ts';

/** What is known of the newest secret. */
export interface SecretTerm
  extends Pick<
    Epoch,
    'secretId' | 'manifestSha256' | 'attestedAt' | 'renewAt' | 'expiresAt' | 'expiresMonotonic'
  > {
  /** When it was made, on the monotonic clock. */
  readonly madeAt: number;
  readonly suspended: boolean;
}

/** The failures since the last success. */
interface Outage {
  /** How many renewals failed with the key that is held. */
  readonly failures: number;
  /** When the last one failed: wall clock, ms since 1970. */
  readonly failedAt: number;
  readonly error: PrivatemodeError;
  /** The error of the last failure, if waiting does not help after it; else undefined. */
  readonly permanent: PrivatemodeError | undefined;
  /** Whether a permanent failure was reported, which happens once. */
  readonly isReported: boolean;
}

export interface SessionState {
  readonly kind: ManifestSource['kind'];
  readonly key: SessionFacts['key'];
  readonly secret: SecretTerm | undefined;
  readonly verdicts: Verdicts;
  readonly outage: Outage | undefined;
  /** What the session heard instead of a verdict, since the last secret. */
  readonly unjudged:
    | {
        readonly as: 'silent' | 'key-refused' | 'too-old';
        readonly error: PrivatemodeError;
        readonly until?: number | undefined;
      }
    | undefined;
  /** The number of the renewal that runs. */
  readonly running: number | undefined;
  /**
   * How many renewals have begun. Each has a number, so that one which was given up changes nothing any more.
   */
  readonly begun: number;
  /** When the next renewal begins, on the wall clock. */
  readonly due: number | undefined;
  /** The id of the secret that the service denied, until there is another secret. */
  readonly denied: string | undefined;
  /** When a denial last forced a renewal, on the monotonic clock, and whether a secret was made since. */
  readonly forcedAt: number;
  readonly madeSince: boolean;
  /** Whether the proxy was told to stop. Requests go on until it is closed. */
  readonly ending: boolean;
  readonly closed: PrivatemodeError | undefined;
}

export const newSession = (kind: ManifestSource['kind']): SessionState => ({
  kind,
  key: 'awaited',
  verdicts: NO_VERDICTS,
  begun: 0,
  forcedAt: Number.NEGATIVE_INFINITY,
  madeSince: false,
  ending: false,
  secret: undefined,
  outage: undefined,
  unjudged: undefined,
  running: undefined,
  due: undefined,
  denied: undefined,
  closed: undefined,
});

/** Whether the session has a key, configured or kept. */
export const hasKey = ({ key }: SessionState): boolean => key !== 'awaited';

/** The secret that requests may use: it has not expired, and the service has not denied it. */
export const secretInForce = ({ secret }: SessionState, at: Present): SecretTerm | undefined =>
  secretAt(secret, at) === 'good' ? secret : undefined;

/**
 * Whether a secret is in force that was made after `began` (on the monotonic clock). What an attestation that
 * began then hears against the service is older than that secret, and says nothing about its renewal.
 */
export function isOvertaken(state: SessionState, began: number, at: Present): boolean {
  const secret = secretInForce(state, at);
  return secret !== undefined && began < secret.madeAt;
}

/** The secret that is suspended, while it has not expired. */
export const suspendedSecret = ({ secret }: SessionState, at: Present): SecretTerm | undefined =>
  secretAt(secret, at) === 'suspended' ? secret : undefined;

/**
 * What to do about a denial. `renewal`: wait for the running renewal, or start one. If the last forced
 * renewal began less than `deniedPause` (lib/times.ts) ago, start none: `made` if a secret was made since,
 * else `failed`.
 */
export function forcedBy(
  { running, forcedAt, madeSince }: SessionState,
  { monotonic, times }: Pick<Present, 'monotonic' | 'times'>,
): 'renewal' | 'failed' | 'made' {
  if (running !== undefined || monotonic - forcedAt >= times.deniedPause) return 'renewal';
  return madeSince ? 'made' : 'failed';
}

/** The facts that lib/session/standing.ts computes the state from. */
export function factsOf({ ending, closed, key, secret, verdicts, unjudged }: SessionState): SessionFacts {
  const isBad = isRejected(verdicts);
  const last: LastOutcome = isBad ? verdicts.last : (unjudged?.as ?? verdicts.last);
  return {
    closed: ending || closed !== undefined,
    key,
    secret,
    last,
    until: isBad ? undefined : unjudged?.until,
    confirmed: verdicts.refusal !== undefined,
    error: verdicts.refusal ?? (isBad ? verdicts.error : unjudged?.error),
  };
}
