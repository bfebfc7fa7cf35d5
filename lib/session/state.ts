/** What is known of a session at any moment, and what that means: no keys, no secrets, nothing that waits. lib/session/decide.ts changes it. */
import type { PrivatemodeError } from '../errors.ts';
import type { Epoch } from './epoch.ts';
import { isUsable } from './lifetimes.ts';
import type { ManifestSource } from './manifest-source.ts';
import { isRejected, NO_VERDICTS, type Verdicts } from './refusal.ts';
import type { LastOutcome, SessionFacts } from './standing.ts';

/** What is known of the newest secret. */
export interface SecretTerm
  extends Pick<
    Epoch,
    'secretId' | 'manifestSha256' | 'attestedAt' | 'renewAt' | 'expiresAt' | 'expiresMonotonic'
  > {
  readonly suspended: boolean;
}

/** What has failed since the last success. */
interface Outage {
  /** With the key that is held. */
  readonly failures: number;
  /** Of the last one, on the wall clock. */
  readonly failedAt: number;
  readonly error: PrivatemodeError;
  /** The last failure, where waiting is no use while it is the last one. */
  readonly permanent: PrivatemodeError | undefined;
  /** Whether that was reported, which happens once. */
  readonly isReported: boolean;
}

export interface SessionState {
  readonly kind: ManifestSource['kind'];
  readonly key: SessionFacts['key'];
  readonly secret: SecretTerm | undefined;
  readonly verdicts: Verdicts;
  readonly outage: Outage | undefined;
  /** What was heard instead of a verdict, since the last secret. */
  readonly unjudged:
    | { readonly as: 'silent' | 'key-refused' | 'too-old'; readonly error: PrivatemodeError }
    | undefined;
  /** The number of the renewal that runs. */
  readonly running: number | undefined;
  /** How many renewals have begun; each has a number, so that one which was given up changes nothing any more. */
  readonly begun: number;
  /** When the next renewal begins, on the wall clock. */
  readonly due: number | undefined;
  /** The secret that the service denied, until there is another one. */
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
  ...{ secret: undefined, outage: undefined, unjudged: undefined, running: undefined },
  ...{ due: undefined, denied: undefined, closed: undefined },
});

export interface Moment {
  /** Wall clock, ms since 1970. */
  readonly now: number;
  /** Monotonic clock, ms. */
  readonly monotonic: number;
  /** 0 ≤ x < 1. */
  readonly random: number;
}

/** ms between two renewals that a denial may force: anybody on the way can write its text, which is not authenticated. */
const FORCED_INTERVAL = 10_000;

/** The secret that requests may use: it has not expired, and the service has not denied it. */
export const secretInForce = (
  { secret }: SessionState,
  at: Omit<Moment, 'random'>,
): SecretTerm | undefined =>
  secret !== undefined && !secret.suspended && isUsableAt(secret, at) ? secret : undefined;

/** The secret that is suspended, while it has not expired. */
export const suspendedSecret = (
  { secret }: SessionState,
  at: Omit<Moment, 'random'>,
): SecretTerm | undefined => (secret?.suspended && isUsableAt(secret, at) ? secret : undefined);

const isUsableAt = (term: SecretTerm, { now, monotonic }: Omit<Moment, 'random'>): boolean =>
  isUsable(term, { now: () => now, monotonic: () => monotonic });

/** Whether the secret has not expired by either clock. Unlike isUsableAt, it also holds after the wall clock was set back. */
export const livesAt = (
  { expiresAt, expiresMonotonic }: SecretTerm,
  { now, monotonic }: Omit<Moment, 'random'>,
): boolean => now < expiresAt && monotonic < expiresMonotonic;

/** What a denial leads to now: a renewal, that which runs, or none, since the last forced one was a moment ago and failed or made a secret. */
export function forcedBy(
  { running, forcedAt, madeSince }: SessionState,
  { monotonic }: Pick<Moment, 'monotonic'>,
): 'renewal' | 'failed' | 'made' {
  if (running !== undefined || monotonic - forcedAt >= FORCED_INTERVAL) return 'renewal';
  return madeSince ? 'made' : 'failed';
}

/** The facts that lib/session/standing.ts computes the state from. */
export function factsOf({ ending, closed, key, secret, verdicts, unjudged }: SessionState): SessionFacts {
  const isBad = isRejected(verdicts);
  const last: LastOutcome = isBad ? verdicts.last : (unjudged?.as ?? verdicts.last);
  return {
    closed: ending || closed !== undefined,
    ...{ key, secret, last },
    confirmed: verdicts.refusal !== undefined,
    error: verdicts.refusal ?? (isBad ? verdicts.error : unjudged?.error),
  };
}
