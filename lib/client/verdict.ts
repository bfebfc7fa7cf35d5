/** What a client says of the service, in the shape of `privatemode-proxy verify --json`. */
import type { Verdict } from '../attestation/verify.ts';
import { PrivatemodeError } from '../errors.ts';
import { outcomeOfError } from '../verify/outcome.ts';
import { jsonReport } from '../verify/verdict-json.ts';
import type { ClientConfig, ClientVerdict } from './options.ts';

/** The last verdict of a session; where nothing was judged, or what came after it failed, the error that kept it from being good. */
export function verdictOf(
  verdict: Verdict | undefined,
  error: PrivatemodeError | undefined,
  { unsafeTrustRoots }: Pick<ClientConfig, 'unsafeTrustRoots'>,
): ClientVerdict {
  const { tee, manifestSha256, checks = [], failure: check } = verdict ?? {};
  const accepted = verdict?.outcome === 'accepted';
  const cause =
    error ?? new PrivatemodeError(check?.code ?? 'attestation_failed', check?.found ?? 'not accepted');
  const judged = {
    ...{ tee, manifestSha256, checks, at: new Date() },
    roots: unsafeTrustRoots === undefined ? ('vendor' as const) : ('custom' as const),
  };
  const report = jsonReport(
    accepted && error === undefined
      ? { ...judged, outcome: 'accepted', failure: undefined }
      : {
          ...judged,
          outcome: accepted || verdict === undefined ? outcomeOfError(cause.code) : verdict.outcome,
          failure: { check: accepted ? undefined : check, error: cause },
        },
  );
  return { ...report, at: report.at.toISOString() } as unknown as ClientVerdict;
}
