/** A verdict as data: what `verify --json` prints, what receipts point to, and what GET /verification shows (docs/verification.md). */
import { type Check, firstFailure } from '../attestation/check.ts';
import { PRODUCTION_ROOTS } from '../attestation/roots/production.ts';
import type { TrustRoots, Verdict } from '../attestation/verify.ts';
import type { VerdictReport } from './verification-document.ts';

const MEMBERS = ['id', 'outcome', 'expected', 'found', 'source', 'age', 'code'] as const;

/** The checks with their members in the order of the documentation. */
export const checkReports = (checks: readonly Check[]): VerdictReport['checks'] =>
  checks.map(
    (check) =>
      Object.fromEntries(MEMBERS.map((name) => [name, check[name]])) as VerdictReport['checks'][number],
  );

/** The verdict that was found with these roots. */
export function verdictReport(verdict: Verdict, roots: TrustRoots): VerdictReport {
  const { outcome, tee = null, manifestSha256, at, checks, failure } = verdict;
  return {
    outcome,
    tee,
    manifestSha256,
    at: at.toISOString(),
    roots: roots === PRODUCTION_ROOTS ? 'vendor' : 'custom',
    checks: checkReports(checks),
    failure: failure === undefined ? null : failureReport(failure),
  };
}

const failureReport = ({ id, code = 'attestation_failed', expected, found, source }: Check) => ({
  ...{ id, code, expected, found, source },
});

/** The text whose SHA-256 stands in receipts, and under which it is stored. */
export const verdictText = (report: VerdictReport): string => `${JSON.stringify(report, undefined, 2)}\n`;

/** The verdict on the evidence, completed by the checks of the secret exchange. */
export function withSecretChecks(verdict: Verdict, checks: readonly Check[]): Verdict {
  const failure = firstFailure(checks);
  const whole = { ...verdict, checks: [...verdict.checks, ...checks] };
  return failure === undefined ? whole : { ...whole, outcome: 'rejected', failure, meshCaPem: undefined };
}
