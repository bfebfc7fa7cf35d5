/** Judges the evidence first, then the secret exchange: one list of checks with one outcome. */
import {
  allAccepted,
  type Check,
  checkOf,
  type Finding,
  finding,
  firstFailure,
  notApplicable,
} from '../attestation/check.ts';
import { type SecretResponseInput, verifySecretResponse } from '../attestation/mesh.ts';
import { PRODUCTION_ROOTS } from '../attestation/roots/production.ts';
import { type TrustRoots, type Verdict, type VerifyInput, verify } from '../attestation/verify.ts';
import { PrivatemodeError } from '../errors.ts';
import { OPENS, SECRET_EXCHANGE_ROWS } from './checks.ts';
import { outcomeOfError } from './outcome.ts';
import type { Judgement } from './verdict.ts';

/** Both messages of a secret exchange. */
export type SecretMessages = Pick<
  SecretResponseInput,
  'publicKey' | 'encapsulatedKey' | 'signature' | 'meshCert'
>;

export interface Subject extends Omit<VerifyInput, 'now'> {
  readonly at: Date;
  /** Undefined: evidence only. Called only once the evidence is accepted. */
  readonly secret: (() => Promise<SecretMessages>) | undefined;
  /** Whether an encapsulated key can be opened: lib/session/secret-exchange.ts. */
  readonly canBeOpened: (encapsulatedKey: Uint8Array) => Promise<boolean>;
  /** Live, collateral that could not be fetched leaves the question open; offline, it is missing from the files. */
  readonly live: boolean;
}

type End = Pick<Judgement, 'outcome' | 'failure'>;

/** Bad input is a judgement, never an error; rejects only with what is not a PrivatemodeError. */
export async function judge(subject: Subject): Promise<Judgement> {
  const { at, secret, canBeOpened, live, ...input } = subject;
  const verdict = await verify({ ...input, now: at });
  const { outcome, meshCaPem, failure } = verdict;
  const conclude = (end: End, secretChecks: readonly Check[]): Judgement => ({
    ...judgementOf(verdict, input.roots),
    ...{ ...end, checks: [...verdict.checks, ...secretChecks] },
  });
  if (outcome !== 'accepted' || meshCaPem === undefined) {
    const open = live && failure?.code === 'collateral_unavailable';
    const end = { outcome: open ? 'unavailable' : outcome, failure: failureOf(failure) } as const;
    return conclude(end, secretChecksAll(undefined));
  }
  const notGiven = notApplicable('no secret exchange was given');
  if (secret === undefined) return conclude({ outcome, failure: undefined }, secretChecksAll(notGiven));
  try {
    const messages = await secret();
    const judged = await verifySecretResponse({ ...messages, meshCaPem, manifest: input.manifest, now: at });
    const opens = await canBeOpened(messages.encapsulatedKey);
    const opening = checkOf(OPENS, finding(opens, opens ? 'opens' : 'cannot be opened'));
    const secretChecks = [...judged, opening];
    return conclude(secretEnd(secretChecks), secretChecks);
  } catch (error) {
    if (!(error instanceof PrivatemodeError)) throw error;
    return conclude(endOf(error), secretChecksAll(undefined));
  }
}

/** The judgement where an error came before any check. */
export function notJudged(
  error: PrivatemodeError,
  known: Pick<Judgement, 'at' | 'roots' | 'manifestSha256'>,
): Judgement {
  return { ...known, ...endOf(error), tee: undefined, checks: [] };
}

/** Whether these are the built-in roots. */
export const rootsKind = (roots: TrustRoots): Judgement['roots'] =>
  roots === PRODUCTION_ROOTS ? 'vendor' : 'custom';

/** A verdict on the evidence, found with these roots, as a judgement. */
export const judgementOf = (
  { outcome, tee, manifestSha256, at, checks, failure }: Verdict,
  roots: TrustRoots,
): Judgement => ({
  ...{ outcome, tee, manifestSha256, at, checks },
  roots: rootsKind(roots),
  failure: failure && failureOf(failure),
});

/** The verdict on the evidence, completed by the checks of the secret exchange. */
export function withSecretChecks(verdict: Verdict, checks: readonly Check[]): Verdict {
  const failure = firstFailure(checks);
  const whole = { ...verdict, checks: [...verdict.checks, ...checks] };
  return failure === undefined ? whole : { ...whole, outcome: 'rejected', failure, meshCaPem: undefined };
}

const endOf = (error: PrivatemodeError): End => ({
  outcome: outcomeOfError(error.code),
  failure: { check: undefined, error },
});

function failureOf(check: Check | undefined): Judgement['failure'] {
  const { code = 'attestation_failed', expected = 'every check to pass', found = 'not so' } = check ?? {};
  return { check, error: new PrivatemodeError(code, `expected ${expected}; found ${found}`) };
}

const secretChecksAll = (finding: Finding | undefined): readonly Check[] =>
  SECRET_EXCHANGE_ROWS.map((row) => checkOf(row, finding));

function secretEnd(checks: readonly Check[]): End {
  if (allAccepted(SECRET_EXCHANGE_ROWS, checks)) return { outcome: 'accepted', failure: undefined };
  const failed = firstFailure(checks);
  return {
    outcome: failed?.code === 'evidence_malformed' ? 'malformed' : 'rejected',
    failure: failureOf(failed ?? checks.find(({ outcome }) => outcome !== 'pass')),
  };
}
