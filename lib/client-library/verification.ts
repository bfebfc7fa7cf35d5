/**
 * What `verify()` of the library gives: the verdict on the service, in the shape of `privatemode-proxy verify
 * --json`, or the error that holds it.
 */
import { PRODUCTION_ROOTS } from '../attestation/roots/production.ts';
import { type ErrorCode, PrivatemodeError } from '../errors.ts';
import { notJudged, rootsKind } from '../verdict/judge.ts';
import { failureOf, outcomeOfError, reasonOf, type Verdict } from '../verdict/verdict.ts';
import type { ClientConfig, ClientVerdict, Verification } from './options.ts';
import { ERRORS } from './remedies.ts';

/** Why `verify()` rejects: the code and the message of what was wrong, and the whole verdict. */
export class VerificationError extends PrivatemodeError {
  /** The verification that failed: what was checked, and what failed. */
  readonly verdict: ClientVerdict;

  constructor(verdict: ClientVerdict, cause: PrivatemodeError | undefined) {
    const { code = 'attestation_failed' } = verdict.failure ?? {};
    const message = verdict.failure === null ? '' : reasonOf(verdict.failure);
    const { remedy } = cause?.code === code ? cause : ERRORS[code as ErrorCode];
    super(code as ErrorCode, message, { cause, remedy });
    this.verdict = verdict;
  }
}

/**
 * The newest verdict, with its manifest. Throws VerificationError unless it accepts the service and `error`
 * is undefined.
 */
export function verificationOf(
  found: Verdict | undefined,
  manifest: Uint8Array | undefined,
  error: PrivatemodeError | undefined,
  config: Pick<ClientConfig, 'unsafeTrustRoots'>,
): Verification {
  const verdict = verdictOf(found, error, config);
  if (manifest === undefined || verdict.outcome !== 'accepted') throw new VerificationError(verdict, error);
  const manifestText = new TextDecoder('utf-8', { ignoreBOM: true }).decode(manifest);
  return { ...(verdict as Verification), manifest: JSON.parse(manifestText), manifestText };
}

/**
 * The verdict. If nothing was judged, or if a step after the verdict failed, it has the error that kept the
 * verdict from being good.
 */
export function verdictOf(
  verdict: Verdict | undefined,
  error: PrivatemodeError | undefined,
  { unsafeTrustRoots = PRODUCTION_ROOTS }: Pick<ClientConfig, 'unsafeTrustRoots'>,
): ClientVerdict {
  if (verdict === undefined) {
    const cause = error ?? new PrivatemodeError('attestation_failed', 'not accepted');
    const known = { at: new Date().toISOString(), manifestSha256: null };
    return notJudged(cause, { ...known, roots: rootsKind(unsafeTrustRoots) });
  }
  const isRejected = verdict.outcome !== 'accepted';
  // A rejected service that falls silent stays rejected: only an error about what the service presented
  // replaces that of the check.
  const isSilence = error?.blame !== 'attestation' || error.code === 'not_ready';
  if (error === undefined || (isRejected && isSilence)) return verdict;
  const outcome = isRejected ? verdict.outcome : outcomeOfError(error.code);
  return { ...verdict, outcome, failure: { ...(verdict.failure ?? failureOf(error)), code: error.code } };
}
