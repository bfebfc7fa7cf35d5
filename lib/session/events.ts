import type { Verdict } from '../attestation/verify.ts';
import type { PrivatemodeError } from '../errors.ts';

/** What happens in a session, for logs and counters. No event carries a key, a secret or anything of a request. */
export type SessionEvent =
  | {
      /** The remote was verified. The words are those that operators look for after a repair of their network. */
      readonly type: 'attested';
      readonly message: 'Coordinator manifest fetched successfully';
      readonly verdict: Verdict;
    }
  | {
      /** The error with the same words follows, in `update-failed`, `manifest-refetched` or `offer-failed`. */
      readonly type: 'rejected';
      readonly message: string;
      readonly verdict: Verdict;
    }
  | {
      /** Validation failed: the newest manifest is tried before giving up. */
      readonly type: 'manifest-refetched';
      readonly message: string;
      readonly error: PrivatemodeError;
      readonly changed: boolean;
    }
  | {
      readonly type: 'manifest-enforced';
      readonly message: string;
      readonly path: string;
      readonly manifestSha256: string;
    }
  | {
      readonly type: 'epoch';
      readonly message: 'Secret updated successfully';
      readonly secretId: string;
      readonly manifestSha256: string;
      /** ms since 1970. */
      readonly expiresAt: number;
    }
  | {
      /** A round failed; another one of the same update follows. */
      readonly type: 'round-failed';
      readonly message: string;
      readonly error: PrivatemodeError;
      readonly round: number;
    }
  | {
      readonly type: 'update-failed';
      readonly message: string;
      readonly error: PrivatemodeError;
      /** ms until it is tried again; undefined: when somebody offers a key. */
      readonly retryIn: number | undefined;
      /** `onPermanent` has just been told of the same error. */
      readonly permanent: boolean;
    }
  | {
      /** What an update does next, and so what it may wait for. */
      readonly type: 'step';
      readonly message: string;
    }
  | { readonly type: 'forced-renewal'; readonly message: string; readonly secretId: string }
  | { readonly type: 'offer-failed'; readonly message: string; readonly error: PrivatemodeError }
  | { readonly type: 'key-kept' | 'key-dropped'; readonly message: string };

export type Observer = (event: SessionEvent) => void;
