/** The verdict for a program. docs/verification.md documents its shape, which only ever grows. */
import type { Check } from '../attestation/check.ts';
import { safeJson } from '../text.ts';
import type { CheckReport, Judgement, VerdictReport } from './verdict.ts';

/** The verdict as data, with its members in the order of the documentation. */
export function verdictReport(judgement: Judgement): VerdictReport {
  const { outcome, tee = null, manifestSha256 = null, at, roots, checks, failure } = judgement;
  return {
    ...{ outcome, tee, manifestSha256, at: at.toISOString(), roots, checks: checks.map(checkReport) },
    failure: failure === undefined ? null : failureReport(failure),
  };
}

const checkReport = ({ id, outcome, expected, found, source, age, code }: Check): CheckReport => ({
  ...{ id, outcome, expected, found, source, age, code },
});

function failureReport({ check, error }: NonNullable<Judgement['failure']>): VerdictReport['failure'] {
  const { id = null, expected = null, found = error.message, source = null } = check ?? {};
  return { id, code: error.code, expected, found, source };
}

/** The text whose SHA-256 stands in receipts, and under which it is stored. */
export const verdictText = (judgement: Judgement): string =>
  `${JSON.stringify(verdictReport(judgement), undefined, 2)}\n`;

/** The text that `verify --json` prints. */
export const renderJson = (judgement: Judgement): string => `${safeJson(verdictReport(judgement), 2)}\n`;
