/** Whether the service is refused: what the verdicts of a session add up to, and when the next one can settle that. */
import type { Verdict } from '../attestation/verify.ts';
import { CLOCK_REMEDY, type ErrorCode, PrivatemodeError } from '../errors.ts';
import { reasonOf } from '../verdict/verdict.ts';
import type { Rejection } from './events.ts';
import type { ManifestSource } from './manifest-source.ts';
import type { LastOutcome } from './standing.ts';

/**
 * ms from the first rejection after which another one refuses the service. Rejections that are closer together may show one moment of
 * a deployment that is being replaced; ten seconds, with the time that an attestation takes, are as long as a client should wait.
 */
const CONFIRM_AFTER = 6_000;

/**
 * What the verdicts of a session add up to. The service is refused when it was rejected twice in a row, CONFIRM_AFTER apart and the second
 * time under the newest manifest, and stays so until the next verdict: only a verdict changes anything, silence does not. A mismatch
 * with a fetched manifest refuses nothing, because service and CDN differ for a moment while a deployment is rolled out; nor does
 * collateral that cannot be fetched, since nothing was judged then.
 */
export interface Verdicts {
  readonly last: Exclude<LastOutcome, 'silent' | 'key-refused' | 'too-old'>;
  /** The error of the check that failed, with what to do about it; undefined while the service is not refused. */
  readonly refusal: PrivatemodeError | undefined;
  /** Of the last verdict, where it was a rejection. */
  readonly error: PrivatemodeError | undefined;
  /** When each was rejected for the first time since it was last accepted, on the monotonic clock. */
  readonly evidence: number | undefined;
  readonly secret: number | undefined;
  /** When evidence that is authentic did not fit the given manifest, for the first time since evidence was last accepted. */
  readonly mismatch: number | undefined;
  /** Whether that happened a second time, CONFIRM_AFTER later: the hardware itself says so, and nobody on the way can. */
  readonly mismatches: boolean;
}

export const NO_VERDICTS: Verdicts = {
  last: 'none',
  refusal: undefined,
  error: undefined,
  evidence: undefined,
  secret: undefined,
  mismatch: undefined,
  mismatches: false,
};

/** Whether the last verdict rejected the service, for the first time or under a manifest that is replaced; silence changes nothing. */
export const isRejected = ({ last }: Verdicts): boolean => last !== 'none' && last !== 'ok';

/** When another rejection would refuse the service, on the monotonic clock; undefined where none is pending. */
export function confirmAt({ refusal, evidence, secret }: Verdicts): number | undefined {
  if (refusal !== undefined || (evidence === undefined && secret === undefined)) return undefined;
  return Math.min(evidence ?? Number.POSITIVE_INFINITY, secret ?? Number.POSITIVE_INFINITY) + CONFIRM_AFTER;
}

/** `what` was accepted. */
export function accepted(before: Verdicts, what: 'evidence' | 'secret'): Verdicts {
  const forgotten = { ...before, [what]: undefined, refusal: undefined };
  return what === 'evidence'
    ? { ...forgotten, last: 'ok', error: undefined, mismatch: undefined, mismatches: false }
    : forgotten;
}

/** `what` was rejected, as judged at `now` on the monotonic clock. */
export function rejected(
  before: Verdicts,
  what: 'evidence' | 'secret',
  { error, askedAt, newest, authentic }: Rejection,
  { now, kind }: { readonly now: number; readonly kind: ManifestSource['kind'] },
): Verdicts {
  const { code } = error;
  if (code === 'collateral_unavailable') return before;
  const isMismatch = code === 'manifest_mismatch';
  const last = lastOf(code, authentic, kind);
  if (isMismatch && kind === 'managed') {
    // The manifest may be replaced. What is not authentic takes nothing back.
    return { ...(newest && authentic === 'yes' ? accepted(before, what) : before), last, error };
  }
  const first = before[what] ?? now;
  const isConfirmed = newest && (isOwnFault(code, kind) || askedAt - first >= CONFIRM_AFTER);
  const mismatch = isMismatch && authentic === 'yes' ? (before.mismatch ?? now) : before.mismatch;
  const mismatches =
    before.mismatches || (isMismatch && authentic === 'yes' && askedAt - (mismatch ?? now) >= CONFIRM_AFTER);
  const told = mismatches && isMismatch ? withPinRemedy(error) : error;
  return {
    ...{ last, error, mismatch, mismatches },
    refusal: isConfirmed ? told : before.refusal,
    evidence: before.evidence,
    secret: before.secret,
    [what]: first,
  };
}

/** Whether the fault lies in the manifest itself, so that nothing that the service says can change the verdict. */
export const isOwnFault = (code: ErrorCode, kind: ManifestSource['kind']): boolean =>
  code === 'manifest_unsupported' || (kind === 'static' && code === 'manifest_invalid');

function lastOf(
  code: ErrorCode,
  authentic: Rejection['authentic'],
  kind: ManifestSource['kind'],
): Verdicts['last'] {
  if (isOwnFault(code, kind)) return 'manifest-fault';
  if (authentic === 'no') return 'not-authentic';
  return code === 'manifest_mismatch' ? 'mismatch' : 'rejected';
}

/** Only what the hardware said twice is a reason to look at the pin. */
const withPinRemedy = ({ code, message, detail, cause }: PrivatemodeError): PrivatemodeError =>
  new PrivatemodeError(code, message, {
    ...{ cause, detail },
    remedy:
      'The service runs under another manifest than --manifest-path gives: compare it with what its publisher shows, and read what changed (docs/verification.md).',
  });

/** The check that decided a verdict, as an error with its code. */
export function verdictError({ failure, authentic }: Verdict): PrivatemodeError {
  if (failure === undefined) {
    return new PrivatemodeError('attestation_failed', 'the evidence was not accepted');
  }
  const { code = 'attestation_failed', detail } = failure;
  const reason = reasonOf(failure);
  if (authentic !== 'no' || isOwnFault(code, 'static'))
    return new PrivatemodeError(code, reason, { remedy: detail?.clock && CLOCK_REMEDY, detail });
  const message = `what answers is not the hardware's: ${reason}`;
  return new PrivatemodeError(code, message, { remedy: NOT_AUTHENTIC_REMEDY, detail });
}

const NOT_AUTHENTIC_REMEDY =
  'Do not trust the remote: check its address and the network, and report it if both are right.';
