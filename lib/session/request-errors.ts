/** The errors that requests get while no secret is in force. */
import { asPrivatemodeError, PrivatemodeError } from '../errors.ts';
import { HURRY_INTERVAL } from './decide.ts';
import { isOwnFault } from './refusal.ts';
import type { SessionState } from './state.ts';

const ROLLOUT_REMEDY =
  'Try again in a moment; the service and the published manifest differ, as they do while a deployment is replaced.';

/** The error with which requests are refused at once, until the session hears something else. */
export const refusalOf = ({ verdicts, unjudged }: SessionState): PrivatemodeError | undefined =>
  verdicts.refusal ?? (unjudged?.as === 'too-old' ? unjudged.error : undefined);

/**
 * The error that requests get at once because waiting does not help. With `onDemand` perhaps no renewal has
 * begun since, so it counts for a moment only, unless the given manifest is at fault, which does not change.
 * `now`: wall clock, ms since 1970.
 */
export function permanentAt(
  { kind, outage }: SessionState,
  now: number,
  onDemand: boolean,
): PrivatemodeError | undefined {
  const { permanent, failedAt = 0 } = outage ?? {};
  if (permanent === undefined || !onDemand) return permanent;
  const isFresh = Math.abs(now - failedAt) < HURRY_INTERVAL;
  const stays = kind === 'static' && isOwnFault(permanent.code, kind);
  return isFresh || stays ? permanent : undefined;
}

/** An error of code not_ready. `what` follows the name of the host. `cause`: why, if that is known. */
export function notReady(host: string, what: string, cause: PrivatemodeError | undefined): PrivatemodeError {
  const why = cause === undefined ? '' : `: ${cause.message}`;
  const { unvouched, newestMissing } = cause?.detail ?? {};
  const isRollout = cause?.code === 'manifest_mismatch' && !unvouched && !newestMissing;
  const remedy = isRollout ? ROLLOUT_REMEDY : undefined;
  return new PrivatemodeError('not_ready', `${host} ${what}${why}`, { cause, remedy });
}

/** Hides a failed check behind not_ready: clients get its code only once the service is refused. */
export const hideVerdict = (host: string, error: PrivatemodeError): PrivatemodeError =>
  error.blame === 'attestation' && error.status === 400 ? notReady(host, 'was not verified', error) : error;

export const notReplaced = (host: string, cause: PrivatemodeError | undefined): PrivatemodeError =>
  notReady(host, 'does not know the secret any more, and could not be verified again', cause);

/**
 * The error of a request whose denied secret could not be replaced: why the service is refused, or not_ready.
 */
export function errorAfterDenial(host: string, thrown: unknown): PrivatemodeError {
  const error = asPrivatemodeError(thrown);
  const isTold =
    error.code === 'not_ready' || error.code === 'client_too_old' || error.blame === 'attestation';
  return isTold ? error : notReplaced(host, error);
}
