/** The events of a session, for logs and counters, and the log message of a failure. */
import { ERRORS, type PrivatemodeError } from '../errors.ts';
import { plural } from '../text.ts';
import type { ExchangeRecord } from '../verdict/record.ts';
import type { Verdict } from '../verdict/verdict.ts';
import type { Term } from './state.ts';

type Epoch = Pick<Term, 'secretId' | 'expiresAt'>;

/** What happens in a session. No event carries a key, a secret or anything of a request. */
export type SessionEvent = { readonly message: string } & (
  | /** The next step of an attempt, which may have to wait for it. */ { readonly type: 'step' }
  /**
   * `attested`: the evidence was accepted; operators look for this message after they have repaired their
   * network. `judged`: it was not (`unavailable`: its collateral could not be fetched), or the secret was
   * judged under accepted evidence. If the attempt fails by that, a later event says so as an error.
   */
  | { readonly type: 'attested' | 'judged'; readonly verdict: Verdict }
  /** A verdict rejected the service. The attempt goes on under the newest manifest. */
  | { readonly type: 'manifest-refetched'; readonly error: PrivatemodeError; readonly changed: boolean }
  | { readonly type: 'manifest-enforced'; readonly path: string; readonly manifestSha256: string }
  /** `record`: of the exchange that led to it, if one is made. */
  | ({ readonly type: 'epoch'; readonly record?: ExchangeRecord | undefined } & Epoch)
  /** `permanent`: the program ends, since nothing was accepted yet and waiting does not help. */
  | { readonly type: 'update-failed'; readonly error: PrivatemodeError; readonly permanent: boolean }
  /** An attempt failed that says nothing of the service: its key was refused, or another has succeeded. */
  | { readonly type: 'offer-failed'; readonly error: PrivatemodeError }
  | { readonly type: 'secret-denied' | 'secret-known'; readonly secretId: string }
);

export type Observer = (event: SessionEvent) => void;

/**
 * One line for the log: the cause, and when the next attempt begins, or before, if a request waits. `retryIn`
 * in ms; undefined: a request begins it. `confirms`: whether it is the first that can confirm a rejection.
 */
export function failureMessage({ code }: PrivatemodeError, retryIn: number | undefined, confirms: boolean) {
  const what = ERRORS[code].title ?? 'The remote could not be verified';
  if (retryIn === undefined) return `${what}; the next request tries again`;
  const seconds = Math.max(1, Math.round(retryIn / 1000));
  return `${what}; trying again within ${plural(seconds, 'second')}${confirms ? ', to confirm it' : ''}`;
}
