/** The verdict for a program. docs/verification.md documents its shape, which only ever grows. */
import { printableJson } from '../text.ts';
import type { Judgement } from './judge.ts';
import { checkReports } from './verdict.ts';

/** The verdict as data; `failure` is null exactly if accepted. */
export function jsonReport({ failure, ...judgement }: Judgement) {
  const { outcome, tee = null, manifestSha256 = null, at, roots, checks } = judgement;
  return {
    ...{ outcome, tee, manifestSha256, at, roots, checks: checkReports(checks) },
    failure: failure === undefined ? null : reasonOf(failure),
  };
}

export const renderJson = (judgement: Judgement): string => `${safeJson(jsonReport(judgement), 2)}\n`;

/** JSON text, escaped so that no terminal obeys anything in it. */
export const safeJson = (value: unknown, indentation?: number): string =>
  printableJson(JSON.stringify(value, undefined, indentation));

function reasonOf({ check, error }: NonNullable<Judgement['failure']>) {
  const { id = null, expected = null, found = error.message, source = null } = check ?? {};
  return { id, code: error.code, expected, found, source };
}
