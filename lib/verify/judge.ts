/** Evidence first, then the secret exchange, as one list of checks with one outcome. */
import { allAccepted, type Check, firstFailure } from '../attestation/check.ts';
import { type CollateralSource, type TrustRoots, type Verdict, verify } from '../attestation/verify.ts';
import { PrivatemodeError } from '../errors.ts';
import { outcomeOfError, type VerificationOutcome } from './outcome.ts';
import {
  judgeSecretExchange,
  SECRET_EXCHANGE_ROWS,
  type SecretMessages,
  secretNotEvaluated,
  secretNotGiven,
} from './secret-checks.ts';

/** What decided against acceptance: a check, or an error outside of the checks. */
export interface Failure {
  readonly check: Check | undefined;
  readonly error: PrivatemodeError;
}

export interface Judgement {
  readonly outcome: VerificationOutcome;
  readonly tee: Verdict['tee'];
  /** Lower-case hex; undefined where there was no manifest to judge by. */
  readonly manifestSha256: string | undefined;
  /** The moment that all dates were compared with. */
  readonly at: Date;
  /** Whether the built-in roots of AMD and Intel were trusted, or others. */
  readonly roots: 'vendor' | 'custom';
  /** Every check, in order; empty where it did not come to that. */
  readonly checks: readonly Check[];
  readonly failure: Failure | undefined;
}

export interface Subject {
  readonly document: Uint8Array;
  /** 32 bytes. */
  readonly nonce: Uint8Array;
  readonly manifest: Uint8Array;
  readonly roots: TrustRoots;
  readonly rootsKind: Judgement['roots'];
  readonly collateral: CollateralSource;
  readonly at: Date;
  /** Undefined: the secret exchange is not part of it. Called only once the evidence is accepted. */
  readonly secret: (() => Promise<SecretMessages>) | undefined;
  /** Live, what could not be fetched leaves the question open; offline, what is not in the files counts as missing. */
  readonly live: boolean;
}

/** Bad input is a judgement, never an error; rejects only with what is not a PrivatemodeError. */
export async function judge(subject: Subject): Promise<Judgement> {
  const { document, nonce, manifest, roots, collateral, at } = subject;
  const verdict = await verify({ document, nonce, manifest, roots, collateral, now: at });
  const { outcome, meshCaPem, failure, tee, manifestSha256 } = verdict;
  const conclude = (
    end: Pick<Judgement, 'outcome' | 'failure'>,
    secretChecks: readonly Check[],
  ): Judgement => ({
    tee,
    manifestSha256,
    at,
    roots: subject.rootsKind,
    checks: [...verdict.checks, ...secretChecks],
    ...end,
  });

  if (outcome !== 'accepted' || meshCaPem === undefined) {
    const open = subject.live && failure?.code === 'collateral_unavailable';
    return conclude(
      { outcome: open ? 'unavailable' : outcome, failure: failureOf(failure) },
      secretNotEvaluated(),
    );
  }
  if (subject.secret === undefined) return conclude({ outcome, failure: undefined }, secretNotGiven());
  try {
    const messages = await subject.secret();
    const checks = await judgeSecretExchange(messages, { meshCaPem, manifest, now: at });
    return conclude(secretOutcome(checks), checks);
  } catch (error) {
    if (!(error instanceof PrivatemodeError)) throw error;
    return conclude(
      { outcome: outcomeOfError(error.code), failure: { check: undefined, error } },
      secretNotEvaluated(),
    );
  }
}

function secretOutcome(checks: readonly Check[]): Pick<Judgement, 'outcome' | 'failure'> {
  if (allAccepted(SECRET_EXCHANGE_ROWS, checks)) return { outcome: 'accepted', failure: undefined };
  const failed = firstFailure(checks);
  return {
    outcome: failed?.code === 'evidence_malformed' ? 'malformed' : 'rejected',
    failure: failureOf(failed ?? checks.find(({ outcome }) => outcome !== 'pass')),
  };
}

function failureOf(check: Check | undefined): Failure {
  const { code = 'attestation_failed', expected = 'every check to pass', found = 'not so' } = check ?? {};
  return { check, error: new PrivatemodeError(code, `expected ${expected}; found ${found}`) };
}

/** Where it came to no check at all. */
export function notJudged(
  error: PrivatemodeError,
  { at, roots, manifestSha256 }: Pick<Judgement, 'at' | 'roots' | 'manifestSha256'>,
): Judgement {
  return {
    outcome: outcomeOfError(error.code),
    tee: undefined,
    manifestSha256,
    at,
    roots,
    checks: [],
    failure: { check: undefined, error },
  };
}
