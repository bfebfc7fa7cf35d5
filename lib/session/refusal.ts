/** Whether the service is refused: what the verdicts of a session add up to, and when the next one can settle that. */
import type { Verdict } from '../attestation/verify.ts';
import { CLOCK_REMEDY, type ErrorCode, PrivatemodeError } from '../errors.ts';
import { reasonOf } from '../verdict/verdict.ts';
import type { Clock } from './clock.ts';
import type { Rejection, SessionEvent } from './events.ts';
import type { ManifestSource } from './manifest-source.ts';

/**
 * ms from the first rejection after which another one refuses the service. Rejections that are closer together may show one moment of
 * a deployment that is being replaced; ten seconds, with the time that an attestation takes, are as long as a client should wait.
 */
const CONFIRM_AFTER = 6_000;

/** Whether neither time nor a newer manifest changes a verdict that ended with this code. */
export const isSettled = (code: ErrorCode, kind: ManifestSource['kind']): boolean =>
  code === 'manifest_unsupported' ||
  (kind === 'static' && (code === 'manifest_mismatch' || code === 'manifest_invalid'));

export type Refusals = ReturnType<typeof createRefusals>;

/**
 * Follows the verdicts of a session. The service is refused when it was rejected twice in a row, CONFIRM_AFTER apart and the second time
 * under the newest manifest, and stays so until the next verdict: only a verdict changes anything, silence does not. A mismatch
 * with a fetched manifest refuses nothing, because service and CDN differ for a moment while a deployment is rolled out; nor does
 * collateral that cannot be fetched, since nothing was judged then.
 */
export function createRefusals(clock: Pick<Clock, 'monotonic'>, kind: ManifestSource['kind']) {
  let refusal: PrivatemodeError | undefined;
  let isRejected = false;
  /** When each was rejected for the first time since it was last accepted. */
  const rejectedAt = new Map<'evidence' | 'secret', number>();

  function reject(what: 'evidence' | 'secret', { error, askedAt, newest }: Rejection): void {
    const { code } = error;
    if (code === 'collateral_unavailable') return;
    isRejected = true;
    if (code === 'manifest_mismatch' && kind === 'managed') {
      if (newest) accept(what);
      return;
    }
    const first = rejectedAt.get(what) ?? clock.monotonic();
    rejectedAt.set(what, first);
    if (newest && (isSettled(code, kind) || askedAt - first >= CONFIRM_AFTER)) refusal = error;
  }

  function accept(what: 'evidence' | 'secret'): void {
    rejectedAt.delete(what);
    refusal = undefined;
  }

  return {
    observe(event: SessionEvent): void {
      if (event.type === 'attested') {
        isRejected = false;
        accept('evidence');
      } else if (event.type === 'rejected') reject('evidence', event.rejection);
      else if (event.type === 'secret-judged' && event.rejection === undefined) accept('secret');
      else if (event.type === 'secret-judged' && event.rejection) reject('secret', event.rejection);
    },
    /** Whether the last verdict rejected the service, for the first time or under a manifest that is replaced; silence changes nothing. */
    isRejected: () => isRejected,
    /** The error of the check that failed, with what to do about it; undefined while the service is not refused. */
    current: () => refusal,
    /** When another rejection would refuse the service, on the monotonic clock; undefined where none is pending. */
    confirmAt(): number | undefined {
      if (refusal !== undefined || rejectedAt.size === 0) return undefined;
      return Math.min(...rejectedAt.values()) + CONFIRM_AFTER;
    },
  };
}

/** The check that decided a verdict, as an error with its code. */
export function verdictError({ failure }: Verdict): PrivatemodeError {
  if (failure === undefined) {
    return new PrivatemodeError('attestation_failed', 'the evidence was not accepted');
  }
  const { code = 'attestation_failed', detail } = failure;
  const remedy = detail?.clock && CLOCK_REMEDY;
  return new PrivatemodeError(code, reasonOf(failure), { remedy, detail });
}
