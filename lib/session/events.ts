/**
 * The events of a session, for logs and counters, and the log message of a failure.
 */
import { ERRORS, type PrivatemodeError } from '../errors.ts';
import { plural } from '../text.ts';
import type { ExchangeRecord } from '../verdict/record.ts';
import type { Verdict } from '../verdict/verdict.ts';
import type { EpochFacts } from './epoch-facts.ts';

/** The circumstances of a verdict that does not accept the service. */
export interface Rejection {
  readonly error: PrivatemodeError;
  /** When the attempt to make an epoch began, on the monotonic clock. It may have asked several times. */
  readonly began: number;
  /** When this process asked the service for what was judged, on the monotonic clock. */
  readonly askedAt: number;
  /** Whether the manifest was the newest, so that no newer one could have led to another verdict. */
  readonly newest: boolean;
}

/**
 * What happens in a session, for logs and counters. No event carries a key, a secret or anything of a
 * request.
 */
export type SessionEvent = { readonly message: string } & (
  | { readonly type: 'key-kept' | 'key-dropped' }
  /** The next step of a renewal. The renewal may have to wait for it. */
  | { readonly type: 'step' }
  /** Operators look for this message after they have repaired their network. */
  | { readonly type: 'attested'; readonly verdict: Verdict }
  /**
   * The evidence was not accepted. The outcome of the verdict is `unavailable` if collateral could not be
   * fetched and no check failed for another reason. A later event reports the same again, as an error.
   */
  | { readonly type: 'rejected'; readonly verdict: Verdict; readonly rejection: Rejection }
  /**
   * No check failed, but the attestation gave no secret: the verdict with the error that ended it, as
   * `verify` has it. `began`: as in `Rejection`. A later event reports the same again, as an error.
   */
  | { readonly type: 'secret-missing'; readonly verdict: Verdict; readonly began: number }
  /** The verdict on the evidence, with the checks of the secret exchange added at its end. */
  | { readonly type: 'secret-judged'; readonly verdict: Verdict; readonly rejection: Rejection | undefined }
  /**
   * An epoch is about to begin under this verdict. `sha256`: lower-case hex SHA-256 of its text. `record`: the
   * record of the exchange that led to it, if one is made.
   */
  | {
      readonly type: 'verdict';
      readonly verdict: Verdict;
      readonly sha256: string;
      readonly record: ExchangeRecord | undefined;
    }
  /** Validation failed. The renewal tries the newest manifest before it fails. */
  | { readonly type: 'manifest-refetched'; readonly error: PrivatemodeError; readonly changed: boolean }
  | { readonly type: 'manifest-enforced'; readonly path: string; readonly manifestSha256: string }
  | ({ readonly type: 'epoch' } & Pick<EpochFacts, 'secretId' | 'manifestSha256' | 'expiresAt'>)
  /** A round failed; another one of the same renewal follows. */
  | { readonly type: 'round-failed'; readonly error: PrivatemodeError; readonly round: number }
  | {
      readonly type: 'update-failed';
      readonly error: PrivatemodeError;
      /** ms until the next renewal; undefined: the next one begins when a client sends a key. */
      readonly retryIn: number | undefined;
      /** `onPermanent` has just been called with the same error. */
      readonly permanent: boolean;
    }
  | { readonly type: 'forced-renewal' | 'secret-suspended' | 'secret-resumed'; readonly secretId: string }
  | { readonly type: 'offer-failed'; readonly error: PrivatemodeError }
);

export type Observer = (event: SessionEvent) => void;

/**
 * One line for the log: the cause, and when the next renewal begins at the latest. A request that waits makes
 * it begin sooner. `retryIn` in ms; undefined: the next renewal begins when a client sends a key. `confirms`:
 * whether the next renewal is the first that can confirm a rejection.
 */
export function failureMessage(
  { code }: PrivatemodeError,
  retryIn: number | undefined,
  confirms = false,
): string {
  const what = ERRORS[code].title ?? 'The remote could not be verified';
  if (retryIn === undefined) return `${what}; the next request with an API key tries again`;
  const seconds = Math.max(1, Math.round(retryIn / 1000));
  return `${what}; trying again within ${plural(seconds, 'second')}${confirms ? ', to confirm it' : ''}`;
}
