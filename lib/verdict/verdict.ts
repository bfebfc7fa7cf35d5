/** A verdict as data: what `verify --json` prints, what receipts point to, and what GET /verification shows (docs/verification.md). */
import { type Check, firstFailure } from '../attestation/check.ts';
import { PRODUCTION_ROOTS } from '../attestation/roots/production.ts';
import type { TrustRoots, Verdict } from '../attestation/verify.ts';

/** A verdict with all its checks, as `privatemode-proxy verify --json` prints it. */
export interface VerdictReport {
  readonly outcome: string;
  readonly tee: 'snp' | 'tdx' | null;
  readonly manifestSha256: string | null;
  /** RFC 3339 in UTC: the moment that all dates were compared with. */
  readonly at: string;
  /** `custom`: the roots are not those of AMD and Intel, so nothing is said about real hardware. */
  readonly roots: 'vendor' | 'custom';
  readonly checks: readonly {
    readonly id: string;
    readonly outcome: string;
    readonly expected: string;
    readonly found: string;
    readonly source: string;
    readonly age?: number | undefined;
    readonly code?: string | undefined;
  }[];
  readonly failure: {
    readonly id: string | null;
    readonly code: string;
    readonly expected: string | null;
    readonly found: string;
    readonly source: string | null;
  } | null;
}

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
