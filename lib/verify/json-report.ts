/** The verdict for a program. The shape is documented in docs/verification.md, and only ever grows. */
import type { Check } from '../attestation/check.ts';
import type { ErrorCode } from '../errors.ts';
import type { Judgement } from './judge.ts';
import type { VerificationOutcome } from './outcome.ts';

export interface JsonVerdict {
  readonly outcome: VerificationOutcome;
  readonly tee: 'snp' | 'tdx' | null;
  /** Lower-case hex of the expected manifest. */
  readonly manifestSha256: string | null;
  /** RFC 3339, UTC: the moment all dates were judged by. */
  readonly at: string;
  /** `custom`: not the built-in roots of AMD and Intel; such a verdict says nothing about real hardware. */
  readonly roots: 'vendor' | 'custom';
  readonly checks: readonly JsonCheck[];
  /** Null exactly if accepted. The members of the check that decided, or only code and found where none did. */
  readonly failure: JsonFailure | null;
}

export type JsonCheck = Pick<Check, 'id' | 'outcome' | 'expected' | 'found' | 'source' | 'age' | 'code'>;

export interface JsonFailure {
  readonly id: string | null;
  readonly code: ErrorCode;
  readonly expected: string | null;
  readonly found: string;
  readonly source: string | null;
}

export function jsonVerdict({ failure, ...judgement }: Judgement): JsonVerdict {
  const { outcome, tee, manifestSha256, at, roots, checks } = judgement;
  return {
    outcome,
    tee: tee ?? null,
    manifestSha256: manifestSha256 ?? null,
    at: at.toISOString(),
    roots,
    checks: checks.map(({ id, outcome: result, expected, found, source, age, code }) => ({
      id,
      outcome: result,
      expected,
      found,
      source,
      ...(age === undefined ? {} : { age }),
      ...(code === undefined ? {} : { code }),
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
}

/** As text that is safe to show on a terminal: what JSON leaves alone and terminals obey is escaped. */
export function renderJson(judgement: Judgement): string {
  const text = JSON.stringify(jsonVerdict(judgement), undefined, 2);
  const escaped = text.replace(
    /[\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g,
    (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`,
  );
  return `${escaped}\n`;
}
