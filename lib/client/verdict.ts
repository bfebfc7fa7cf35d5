/** What a client says of the service, in the shape of `privatemode-proxy verify --json`. */
import type { Verdict } from '../attestation/verify.ts';
import { PrivatemodeError } from '../errors.ts';
import { verdictReport } from '../verdict/json.ts';
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
  { unsafeTrustRoots }: Pick<ClientConfig, 'unsafeTrustRoots'>,
): ClientVerdict {
  const { outcome, tee, manifestSha256, checks = [], failure: check } = verdict ?? {};
  const accepted = outcome === 'accepted';
  const isRejected = outcome !== undefined && !accepted;
  // A service that falls silent stays rejected: only an error about what it said replaces the check's.
  const isSilence = error === undefined || error.blame !== 'attestation' || error.code === 'not_ready';
  const cause =
    error === undefined || (isRejected && isSilence)
      ? new PrivatemodeError(check?.code ?? 'attestation_failed', check?.found ?? 'not accepted')
      : error;
  const judged = {
    ...{ tee, manifestSha256, checks, at: new Date() },
    roots: unsafeTrustRoots === undefined ? ('vendor' as const) : ('custom' as const),
  };
  if (accepted && error === undefined) return verdictReport({ ...judged, outcome, failure: undefined });
  return verdictReport({
    ...judged,
    outcome: isRejected ? outcome : outcomeOfError(cause.code),
    failure: { check, error: cause },
  });
}
