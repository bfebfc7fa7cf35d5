/** Makes a verdict from the evidence, the secret exchange, and an error that arose outside the checks. */
import { type Check, checkOf, firstFailure } from '../attestation/check.ts';
import { MESH_ROWS, SECRET_ROWS, type SecretMessages, verifySecretResponse } from '../attestation/mesh.ts';
import { PRODUCTION_ROOTS, type TrustRoots } from '../attestation/roots/production.ts';
import { type EvidenceVerdict, type VerifyInput, verify } from '../attestation/verify-evidence.ts';
import { PrivatemodeError } from '../errors.ts';
import { failedCheck, failureOf, outcomeOfError, type Verdict } from './verdict.ts';

/** A recorded exchange with the service that is to be judged. */
export interface Subject extends Omit<VerifyInput, 'secretFollows'> {
  /** The messages of the secret exchange, or undefined if no secret exchange was completed. */
  readonly secret: SecretMessages | undefined;
  /** The error outside the checks that ended the attestation, or undefined if there was none. */
  readonly ended: PrivatemodeError | undefined;
}

/** Judges a recorded exchange with the service. Invalid input leads to a verdict, never to an error. */
export async function judge({ secret, ended, ...input }: Subject): Promise<Verdict> {
  const found = await verify({ ...input, secretFollows: true });
  const evidence = evidenceVerdict(found, input.roots);
  const { meshCaPem } = found;
  if (meshCaPem === undefined || secret === undefined) return completed(ended ?? NO_SECRET, evidence);
  const checks = await verifySecretResponse({ ...input, ...secret, meshCaPem });
  return completed(ended, withSecretChecks(evidence, checks));
}

const NO_SECRET = new PrivatemodeError('verify_input_invalid', 'there is no secret exchange');

/**
 * The verdict on the evidence under the given roots. The verdict is `unavailable` if the only failure is that
 * collateral could not be fetched.
 */
export function evidenceVerdict(found: EvidenceVerdict, roots: TrustRoots): Verdict {
  const { tee = null, manifestSha256, at, checks } = found;
  const failure = found.outcome === 'accepted' ? null : failedCheck(found.failure);
  const outcome = failure?.code === 'collateral_unavailable' ? 'unavailable' : found.outcome;
  const about = { tee, manifestSha256, at: at.toISOString(), roots: rootsKind(roots) };
  return { outcome, ...about, checks: checks.map(asJson), failure };
}

/** Adds the checks of a secret exchange to an accepted verdict. All checks, at least one, must pass. */
export function withSecretChecks(before: Verdict, checks: readonly Check[]): Verdict {
  const whole = { ...before, checks: [...before.checks, ...checks.map(asJson)] };
  const failed = firstFailure(checks) ?? checks.find(({ outcome }) => outcome !== 'pass');
  if (failed === undefined && checks.length > 0) return whole;
  const outcome = failed?.code === 'evidence_malformed' ? 'malformed' : 'rejected';
  return { ...whole, outcome, failure: failedCheck(failed) };
}

/**
 * Completes the verdict of an attestation that `error` may have ended. Adds the missing checks of the secret
 * exchange as `not-evaluated`. The error decides the outcome only if no check has failed.
 */
export function completed(error: PrivatemodeError | undefined, verdict: Verdict): Verdict {
  const made = new Set(verdict.checks.map(({ id }) => id));
  const open = [...MESH_ROWS, ...SECRET_ROWS].filter(({ id }) => !made.has(id));
  const checks = [...verdict.checks, ...open.map((row) => asJson(checkOf(row, undefined)))];
  return { ...verdict, checks, ...(error !== undefined && verdict.failure === null && endedBy(error)) };
}

/** The verdict on an attestation that an error ended before any check was made. */
export const notJudged = (
  error: PrivatemodeError,
  known: Pick<Verdict, 'at' | 'roots' | 'manifestSha256'>,
): Verdict => ({ tee: null, ...known, checks: [], ...endedBy(error) });

const endedBy = (error: PrivatemodeError) => ({
  outcome: outcomeOfError(error.code),
  failure: failureOf(error),
});

/** Whether the trusted roots are the built-in roots of AMD and Intel, or custom roots. */
export const rootsKind = (roots: TrustRoots): Verdict['roots'] =>
  roots === PRODUCTION_ROOTS ? 'vendor' : 'custom';

/** A check as JSON, with its members in the order of the documentation. */
const asJson = ({ id, outcome, expected, found, source, detail, ...rest }: Check) =>
  ({ id, outcome, expected, found, source, ...rest }) satisfies Verdict['checks'][number];
