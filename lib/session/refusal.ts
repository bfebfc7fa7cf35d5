/**
 * Decides from the verdicts of a session whether the service is refused, and when the next verdict can
 * confirm a rejection.
 */
import type { Present } from '../clock.ts';
import { type ErrorCode, PrivatemodeError } from '../errors.ts';
import type { Times } from '../times.ts';
import type { Rejection } from './events.ts';
import type { ManifestSource } from './manifest-source.ts';
import type { LastOutcome } from './standing.ts';

/**
 * What the verdicts of a session add up to. The service is refused if two verdicts in a row reject it,
 * `confirmAfter` (lib/times.ts) apart, the second one under the newest manifest: rejections that are closer
 * together may show one moment of a deployment that is being replaced. A fault of the manifest itself
 * (`isOwnFault`) refuses it at once. Only a verdict ends that, silence does not; after a rejected secret,
 * only an accepted secret does. A mismatch with a fetched manifest refuses nothing, because service and CDN
 * differ for a moment while a deployment is rolled out. Nor does a verdict that lacks only collateral: it
 * proves nothing.
 */
export interface Verdicts {
  readonly last: Exclude<LastOutcome, 'silent' | 'key-refused' | 'too-old'>;
  /**
   * The error of the check that failed, with what to do about it; undefined while the service is not refused.
   */
  readonly refusal: PrivatemodeError | undefined;
  /** The error of the last verdict, if that was a rejection. */
  readonly error: PrivatemodeError | undefined;
  /**
   * When evidence, or a secret, was rejected for the first time since it was last accepted, on the monotonic
   * clock.
   */
  readonly evidence: number | undefined;
  readonly secret: number | undefined;
  /**
   * When evidence did not fit the given manifest, for the first time since evidence was last
   * accepted, on the monotonic clock.
   */
  readonly mismatch: number | undefined;
  /**
   * Whether that happened again, `confirmAfter` later. Only the hardware itself can say so, and nobody on the
   * way can.
   */
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

/**
 * Whether the last verdict rejected the service. A first rejection counts, and so does one under a manifest
 * that is being replaced. Silence changes nothing.
 */
export const isRejected = ({ last }: Verdicts): boolean => last !== 'none' && last !== 'ok';

/**
 * From when on another rejection refuses the service, on the monotonic clock. Undefined if the service is
 * refused already, or if no rejection waits to be confirmed.
 */
export function confirmAt({ refusal, evidence, secret }: Verdicts, times: Times): number | undefined {
  if (refusal !== undefined || (evidence === undefined && secret === undefined)) return undefined;
  return (
    Math.min(evidence ?? Number.POSITIVE_INFINITY, secret ?? Number.POSITIVE_INFINITY) + times.confirmAfter
  );
}

/**
 * The verdicts after `what` was accepted. An accepted secret completes an attestation, so nothing is left of
 * earlier rejections. While the secret was the part that was rejected, accepted evidence takes nothing back:
 * anybody on the way can pass on genuine evidence.
 */
export function accepted(before: Verdicts, what: 'evidence' | 'secret'): Verdicts {
  if (what === 'secret') return { ...NO_VERDICTS, last: 'ok' };
  const forgotten = { ...before, evidence: undefined, mismatch: undefined, mismatches: false };
  return before.secret === undefined
    ? { ...forgotten, last: 'ok', error: undefined, refusal: undefined }
    : { ...forgotten, last: 'rejected' };
}

/** The verdicts after `what` was rejected, which was judged `at` that moment. */
export function rejected(
  before: Verdicts,
  what: 'evidence' | 'secret',
  { error, askedAt, newest }: Rejection,
  kind: ManifestSource['kind'],
  { monotonic: now, times: { confirmAfter } }: Present,
): Verdicts {
  const { code } = error;
  if (code === 'collateral_unavailable') return before;
  const isMismatch = code === 'manifest_mismatch';
  const last = lastOf(code, kind);
  if (isMismatch && kind === 'managed') {
    // The service may be replacing its manifest, so this refuses nothing. Under the newest manifest, it takes
    // an earlier refusal back: the evidence is genuine.
    return { ...(newest ? accepted(before, what) : before), last, error };
  }
  const first = before[what] ?? now;
  const isConfirmed = newest && (isOwnFault(code, kind) || askedAt - first >= confirmAfter);
  const mismatch = isMismatch ? (before.mismatch ?? now) : before.mismatch;
  const mismatches = before.mismatches || (isMismatch && askedAt - (mismatch ?? now) >= confirmAfter);
  const told = mismatches && isMismatch ? withPinRemedy(error) : error;
  return {
    last,
    error,
    mismatch,
    mismatches,
    refusal: isConfirmed ? told : before.refusal,
    evidence: before.evidence,
    secret: before.secret,
    [what]: first,
  };
}

/**
 * The verdicts after an attestation ended with `error`. If that is the error of the last verdict, and says
 * that no newer manifest could be fetched, it replaces the error of the verdict.
 */
export const endedWith = (verdicts: Verdicts, error: PrivatemodeError): Verdicts =>
  error.detail?.newestMissing && verdicts.error?.code === error.code ? { ...verdicts, error } : verdicts;

/**
 * Whether the fault lies in the manifest itself, so that nothing that the service says can change the
 * verdict.
 */
export const isOwnFault = (code: ErrorCode, kind: ManifestSource['kind']): boolean =>
  code === 'manifest_unsupported' || (kind === 'static' && code === 'manifest_invalid');

function lastOf(code: ErrorCode, kind: ManifestSource['kind']): Verdicts['last'] {
  if (isOwnFault(code, kind)) return 'manifest-fault';
  return code === 'manifest_mismatch' ? 'mismatch' : 'rejected';
}

/**
 * Adds the advice to compare the pinned manifest. Only a mismatch that the hardware showed twice is a reason
 * for that.
 */
const withPinRemedy = ({ code, message, detail, cause }: PrivatemodeError): PrivatemodeError =>
  new PrivatemodeError(code, message, {
    cause,
    detail,
    remedy:
      'The service runs under another manifest than --manifest-path gives: compare it with what its publisher shows, read what changed (docs/manifests.md), then replace the file and restart the proxy.',
  });
