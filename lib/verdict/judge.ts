/**
 * Makes one verdict: first on the evidence, then on the secret exchange under the mesh CA that the evidence
 * vouches for.
 */
import {
  type Check,
  checkOf,
  type Finding,
  finding,
  firstFailure,
  notApplicable,
} from '../attestation/check.ts';
import { type SecretResponseInput, verifySecretResponse } from '../attestation/mesh.ts';
import { PRODUCTION_ROOTS } from '../attestation/roots/production.ts';
import {
  type EvidenceVerdict,
  type TrustRoots,
  type VerifyInput,
  verify,
} from '../attestation/verify-evidence.ts';
import { CLOCK_REMEDY, PrivatemodeError } from '../errors.ts';
import { OPENS, SECRET_EXCHANGE_ROWS } from './checks.ts';
import { outcomeOfError } from './outcome.ts';
import { reasonOf, type Verdict } from './verdict.ts';

/** Both messages of a secret exchange. */
export type SecretMessages = Pick<
  SecretResponseInput,
  'publicKey' | 'encapsulatedKey' | 'signature' | 'meshCert'
>;

/** Whether an encapsulated key can be opened: lib/session/secret-exchange.ts. */
export type CanBeOpened = (encapsulatedKey: Uint8Array) => Promise<boolean>;

/** A saved exchange that `judge` judges. */
export interface Subject extends Omit<VerifyInput, 'now' | 'secretFollows'> {
  readonly at: Date;
  /** Undefined: evidence only. */
  readonly secret: SecretMessages | undefined;
  readonly canBeOpened: CanBeOpened;
}

/**
 * The verdict on a saved exchange. Bad input leads to a verdict, never to an error: it rejects only for
 * defects of this program.
 */
export async function judge({ at, secret, canBeOpened, ...input }: Subject): Promise<Verdict> {
  const evidence = await verify({ ...input, now: at, secretFollows: secret !== undefined });
  const verdict = evidenceVerdict(evidence, input);
  const { meshCaPem } = evidence;
  if (meshCaPem === undefined) return withOpenRows(verdict);
  if (secret === undefined) return withOpenRows(verdict, notApplicable('no secret exchange was given'));
  const { manifest } = input;
  const checks = await verifySecretResponse({ ...secret, meshCaPem, manifest, now: at });
  return withSecretChecks(verdict, [...checks, await openingCheck(secret.encapsulatedKey, canBeOpened)]);
}

/** The verdict on evidence that was checked against this manifest and these roots. */
export function evidenceVerdict(
  { outcome, tee, manifestSha256, at, checks, failure }: EvidenceVerdict,
  { manifest, roots }: Pick<VerifyInput, 'manifest' | 'roots'>,
): Verdict {
  return {
    outcome,
    tee,
    manifestSha256,
    at,
    checks,
    manifest,
    roots: rootsKind(roots),
    failure: outcome === 'accepted' ? undefined : failureOf(failure),
  };
}

/**
 * Adds the checks of the secret exchange to an accepted verdict on the evidence. All of them have to pass,
 * and there must be some.
 */
export function withSecretChecks(before: Verdict, checks: readonly Check[]): Verdict {
  const whole = { ...before, checks: [...before.checks, ...checks] };
  const failed = firstFailure(checks) ?? checks.find(({ outcome }) => outcome !== 'pass');
  if (failed === undefined && checks.length > 0) return whole;
  const outcome = failed?.code === 'evidence_malformed' ? 'malformed' : 'rejected';
  return { ...whole, outcome, failure: failureOf(failed) };
}

/** The check that `verify` makes in place of opening the secret. */
export async function openingCheck(encapsulatedKey: Uint8Array, canBeOpened: CanBeOpened): Promise<Check> {
  const opens = await canBeOpened(encapsulatedKey);
  return checkOf(OPENS, finding(opens, opens ? 'opens' : 'cannot be opened'));
}

/**
 * Adds a row to a verdict for each check of the secret exchange that it lacks. `found`: what these rows say;
 * undefined: the checks could not be made.
 */
export function withOpenRows(verdict: Verdict, found?: Finding): Verdict {
  const made = new Set(verdict.checks.map(({ id }) => id));
  const open = SECRET_EXCHANGE_ROWS.filter(({ id }) => !made.has(id)).map((row) => checkOf(row, found));
  return { ...verdict, checks: [...verdict.checks, ...open] };
}

/** The verdict if an error came before any check. */
export function notJudged(
  error: PrivatemodeError,
  known: Pick<Verdict, 'at' | 'roots' | 'manifestSha256'>,
): Verdict {
  const empty = { tee: undefined, checks: [], manifest: undefined } as const;
  return { ...known, ...empty, ...endOf(error) };
}

/**
 * The verdict on a live service if `error` ended the attestation. If the evidence was accepted, the error
 * decides. Otherwise the check that failed decides. If that check failed because collateral could not be
 * fetched, no check failed for another reason, and the outcome is `unavailable`.
 */
export function endedBy(error: PrivatemodeError | undefined, verdict: Verdict): Verdict {
  if (error !== undefined && verdict.failure === undefined) return { ...verdict, ...endOf(error) };
  const isOpen = verdict.failure?.error.code === 'collateral_unavailable';
  return isOpen ? { ...verdict, outcome: 'unavailable' } : verdict;
}

/** As `endedBy`, with a row for each check of the secret exchange that was not made. */
export const completed = (error: PrivatemodeError | undefined, verdict: Verdict): Verdict =>
  withOpenRows(endedBy(error, verdict));

/** How an error outside the checks ends a verdict. */
const endOf = (error: PrivatemodeError): Pick<Verdict, 'outcome' | 'failure'> => ({
  outcome: outcomeOfError(error.code),
  failure: { check: undefined, error },
});

/** Whether these are the built-in roots. */
export const rootsKind = (roots: TrustRoots): Verdict['roots'] =>
  roots === PRODUCTION_ROOTS ? 'vendor' : 'custom';

const NEWER_REMEDY =
  'Update this program to its latest version, which may understand this evidence; do not trust the remote before it does.';

/** The check that decided against acceptance, as an error with its code. */
function failureOf(check: Check | undefined): Verdict['failure'] {
  if (check === undefined) {
    return { check, error: new PrivatemodeError('attestation_failed', 'the evidence was not accepted') };
  }
  const { code = 'attestation_failed', detail } = check;
  const remedy = (detail?.clock && CLOCK_REMEDY) ?? (detail?.newer && NEWER_REMEDY);
  return { check, error: new PrivatemodeError(code, reasonOf(check), { remedy, detail }) };
}
