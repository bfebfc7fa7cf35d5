import type { Verdict } from '../attestation/verify.ts';
import type { PrivatemodeError } from '../errors.ts';

/** What happens in a session, for logs and counters. No event carries a key, a secret or anything of a request. */
export type SessionEvent = { readonly message: string } & (
  | {
      /** Operators look for this text after a repair of their network. */
      readonly type: 'attested';
      readonly message: 'Coordinator manifest fetched successfully';
      readonly verdict: Verdict;
    }
  /** The same failure follows as an error, in `update-failed`, `manifest-refetched` or `offer-failed`. */
  | { readonly type: 'rejected'; readonly verdict: Verdict }
  /** Validation failed: the newest manifest is tried before the renewal fails. */
  | { readonly type: 'manifest-refetched'; readonly error: PrivatemodeError; readonly changed: boolean }
  | { readonly type: 'manifest-enforced'; readonly path: string; readonly manifestSha256: string }
  | {
      readonly type: 'epoch';
      readonly message: 'Secret updated successfully';
      readonly secretId: string;
      readonly manifestSha256: string;
      /** ms since 1970. */
      readonly expiresAt: number;
    }
  /** A round failed; another one of the same renewal follows. */
  | { readonly type: 'round-failed'; readonly error: PrivatemodeError; readonly round: number }
  | {
      readonly type: 'update-failed';
      readonly error: PrivatemodeError;
      /** ms until the next renewal; undefined: when a client sends a key. */
      readonly retryIn: number | undefined;
      /** `onPermanent` has just been called with the same error. */
      readonly permanent: boolean;
    }
  /** What a renewal does next, and so what it may wait for. */
  | { readonly type: 'step' }
  | { readonly type: 'forced-renewal'; readonly secretId: string }
  | { readonly type: 'offer-failed'; readonly error: PrivatemodeError }
  | { readonly type: 'key-kept' | 'key-dropped' }
);

export type Observer = (event: SessionEvent) => void;
