import type { Verdict } from '../attestation/verify.ts';
import type { ErrorCode, PrivatemodeError } from '../errors.ts';
import { plural } from '../text.ts';
import type { EpochFacts } from '../transparency/epoch-facts.ts';

/** How a verdict came about that is not accepted. */
export interface Rejection {
  readonly error: PrivatemodeError;
  /** When the service was asked for what was judged, on the monotonic clock. */
  readonly askedAt: number;
  /** Whether no newer manifest could have led to another verdict. */
  readonly newest: boolean;
  /** Whether the hardware itself said what was judged. */
  readonly authentic: Verdict['authentic'];
}

/** What happens in a session, for logs and counters. No event carries a key, a secret or anything of a request. */
export type SessionEvent = { readonly message: string } & (
  | { readonly type: 'key-kept' | 'key-dropped' }
  /** What a renewal does next, and so what it may wait for. */
  | { readonly type: 'step' }
  /** Operators look for the message after a repair of their network. */
  | { readonly type: 'attested'; readonly verdict: Verdict }
  /** It follows again as an error. */
  | { readonly type: 'rejected'; readonly verdict: Verdict; readonly rejection: Rejection }
  /** The verdict of before, with the checks of the secret exchange after those of the evidence. */
  | { readonly type: 'secret-judged'; readonly verdict: Verdict; readonly rejection: Rejection | undefined }
  /** An epoch is about to begin under this verdict: its text, and lower-case hex SHA-256 of that. */
  | { readonly type: 'verdict'; readonly report: string; readonly sha256: string }
  /** Validation failed: the newest manifest is tried before the renewal fails. */
  | { readonly type: 'manifest-refetched'; readonly error: PrivatemodeError; readonly changed: boolean }
  | { readonly type: 'manifest-enforced'; readonly path: string; readonly manifestSha256: string }
  | ({ readonly type: 'epoch' } & Pick<EpochFacts, 'secretId' | 'manifestSha256' | 'expiresAt'>)
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
  | { readonly type: 'forced-renewal' | 'secret-suspended' | 'secret-resumed'; readonly secretId: string }
  | { readonly type: 'offer-failed'; readonly error: PrivatemodeError }
);

export type Observer = (event: SessionEvent) => void;

type Cure = 'time' | 'newer manifest';

/**
 * What went wrong, by the code of the error; only evidence that fails is a failed attestation. And what may cure it: time,
 * where it may be over a second later, or a newer manifest. A rejected key has no cure: nobody waits for a second refusal.
 */
const FAILURES: Readonly<Partial<Record<ErrorCode, readonly [what: string, cure?: Cure]>>> = {
  upstream_unreachable: ['The service cannot be reached', 'time'],
  upstream_connect_timeout: ['The service does not answer in time', 'time'],
  upstream_reset: ['The service closed the connection', 'time'],
  upstream_http2_only: ['The service offers HTTP/2 only'],
  upstream_redirect: ['The service answered with a redirect'],
  upstream_tls_untrusted: ['A TLS certificate is not trusted'],
  control_api_failed: ['The service answered with an error', 'time'],
  client_too_old: ['The service wants a newer version of this program'],
  api_key_rejected: ['The service does not accept the API key'],
  manifest_unavailable: ['The manifest cannot be fetched', 'time'],
  manifest_mismatch: ['The service does not run under the expected manifest', 'newer manifest'],
  manifest_unsupported: ['The manifest needs a newer version of this program', 'newer manifest'],
  manifest_invalid: ['The manifest cannot be used', 'newer manifest'],
  manifest_log_failed: ['The workspace cannot be written'],
  collateral_unavailable: ['The certificates or revocation lists of AMD or Intel cannot be fetched', 'time'],
  secret_exchange_failed: ['The secret exchange failed', 'time'],
  attestation_failed: ['Attestation of the remote failed', 'newer manifest'],
  evidence_malformed: ['The evidence of the remote cannot be read', 'time'],
  resources_exhausted: ['This machine has no resources left for a connection'],
};

/** Undefined: neither the next round nor a newer manifest is tried. */
export const cureOf = ({ code }: PrivatemodeError): Cure | undefined => FAILURES[code]?.[1];

/**
 * One line for the log: the cause, and when the next renewal begins at the latest, since a waiting request starts one sooner.
 * `retryIn` in ms; undefined: when a client sends a key.
 */
export function failureMessage({ code }: PrivatemodeError, retryIn: number | undefined): string {
  const [what] = FAILURES[code] ?? ['The remote could not be verified'];
  if (retryIn === undefined) return `${what}; the next request with an API key tries again`;
  const seconds = Math.max(1, Math.round(retryIn / 1000));
  return `${what}; trying again within ${plural(seconds, 'second')}`;
}
