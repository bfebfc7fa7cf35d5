/** The verdict for a program. docs/verification.md documents its shape, which only ever grows. */
import type { Judgement } from './judge.ts';

/** JSON text, escaped so that no terminal obeys anything in it; `failure` is null exactly if accepted. */
export function renderJson({ failure, ...judgement }: Judgement): string {
  const { outcome, tee = null, manifestSha256 = null, at, roots, checks } = judgement;
  const verdict = {
    outcome,
    tee,
    manifestSha256,
    at: at.toISOString(),
    roots,
    checks: checks.map(({ id, outcome, expected, found, source, age, code }) => ({
      id,
      outcome,
      expected,
      found,
      source,
      age,
      code,
    })),
    failure:
      failure === undefined
        ? null
        : {
            id: failure.check?.id ?? null,
            code: failure.error.code,
            expected: failure.check?.expected ?? null,
            found: failure.check?.found ?? failure.error.message,
            source: failure.check?.source ?? null,
          },
  };
  const escaped = JSON.stringify(verdict, undefined, 2).replace(
    /[\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g,
    (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`,
  );
  return `${escaped}\n`;
}
