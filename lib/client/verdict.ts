/** What a client says of the service, in the shape of `privatemode-proxy verify --json`. */
import { PRODUCTION_ROOTS } from '../attestation/roots/production.ts';
import type { Verdict } from '../attestation/verify.ts';
import { PrivatemodeError } from '../errors.ts';
import { verdictReport } from '../verdict/json.ts';
import { judgementOf, notJudged, rootsKind } from '../verdict/judge.ts';
import { outcomeOfError } from '../verdict/outcome.ts';
import type { ClientConfig, ClientVerdict, Verification } from './options.ts';
import { VerificationError } from './verification-error.ts';

/** A verdict on the service, and the bytes of the manifest that it was held against. */
export interface Judged {
  readonly verdict: Verdict;
  readonly manifest: Uint8Array;
}

/** The newest judgement, with its manifest. Throws VerificationError unless it accepts the service and `error` is undefined. */
export function verificationOf(
  judged: Judged | undefined,
  error: PrivatemodeError | undefined,
  config: Pick<ClientConfig, 'unsafeTrustRoots'>,
): Verification {
  const verdict = verdictOf(judged?.verdict, error, config);
  if (judged === undefined || verdict.outcome !== 'accepted') throw new VerificationError(verdict, error);
  const manifestText = new TextDecoder('utf-8', { ignoreBOM: true }).decode(judged.manifest);
  return { ...(verdict as Verification), manifest: JSON.parse(manifestText), manifestText };
}

/** The verdict; where nothing was judged, or what came after it failed, the error that kept it from being good. */
export function verdictOf(
  verdict: Verdict | undefined,
  error: PrivatemodeError | undefined,
  { unsafeTrustRoots = PRODUCTION_ROOTS }: Pick<ClientConfig, 'unsafeTrustRoots'>,
): ClientVerdict {
  if (verdict === undefined) {
    const cause = error ?? new PrivatemodeError('attestation_failed', 'not accepted');
    const roots = rootsKind(unsafeTrustRoots);
    return verdictReport(notJudged(cause, { at: new Date(), roots, manifestSha256: undefined }));
  }
  const judgement = judgementOf(verdict, unsafeTrustRoots);
  const isRejected = verdict.outcome !== 'accepted';
  // A service that falls silent stays rejected: only an error about what it said replaces the check's.
  const isSilence = error?.blame !== 'attestation' || error.code === 'not_ready';
  if (error === undefined || (isRejected && isSilence)) return verdictReport(judgement);
  const outcome = isRejected ? verdict.outcome : outcomeOfError(error.code);
  return verdictReport({ ...judgement, outcome, failure: { check: verdict.failure, error } });
}
