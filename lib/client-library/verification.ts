/** The result of `verify()` in the library: a verdict that accepts the service, or an error. */
import { PRODUCTION_ROOTS } from '../attestation/roots/production.ts';
import { type ErrorCode, PrivatemodeError } from '../errors.ts';
import { completed, notJudged, rootsKind } from '../verdict/judge.ts';
import { reasonOf } from '../verdict/verdict.ts';
import { ERRORS } from './errors.ts';
import type { ClientVerdict, Verification } from './options.ts';
import type { ClientConfig } from './read-options.ts';

/** The error with which `verify()` rejects: code and message of what was wrong, and the whole verdict. */
export class VerificationError extends PrivatemodeError {
  /** The verdict of the failed verification: what was checked, and what failed. */
  readonly verdict: ClientVerdict;

  constructor(verdict: ClientVerdict, cause: PrivatemodeError) {
    const message = verdict.failure === null ? cause.message : reasonOf(verdict.failure);
    const code = (verdict.failure?.code ?? cause.code) as ErrorCode;
    super(code, message, { cause, remedy: (cause.code === code ? cause : ERRORS[code]).remedy });
    this.verdict = verdict;
  }
}

/**
 * Returns the newest verdict, `found`, with its manifest. Throws VerificationError unless `found` accepts the
 * service and nothing has failed since (`error`). A rejected service stays rejected, whatever failed later.
 */
export function verificationOf(
  found: ClientVerdict | undefined,
  manifest: Uint8Array | undefined,
  error: PrivatemodeError | undefined,
  { unsafeTrustRoots = PRODUCTION_ROOTS }: Pick<ClientConfig, 'unsafeTrustRoots'>,
): Verification {
  if (found?.outcome === 'accepted' && error === undefined && manifest !== undefined) {
    const manifestText = new TextDecoder('utf-8', { ignoreBOM: true }).decode(manifest);
    return { ...(found as Verification), manifest: JSON.parse(manifestText), manifestText };
  }
  const cause = error ?? new PrivatemodeError('attestation_failed', 'not accepted');
  const known = { at: new Date().toISOString(), manifestSha256: null, roots: rootsKind(unsafeTrustRoots) };
  throw new VerificationError(found ? completed(cause, found) : notJudged(cause, known), cause);
}
