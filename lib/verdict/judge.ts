/** Judges the evidence first, then the secret exchange: one list of checks with one outcome. */
import {
  allAccepted,
  type Check,
  type CheckDescription,
  checkOf,
  type Finding,
  finding,
  firstFailure,
  notApplicable,
} from '../attestation/check.ts';
import { MESH_ROWS, SECRET_ROWS, verifySecretResponse } from '../attestation/mesh.ts';
import { type Verdict, type VerifyInput, verify } from '../attestation/verify.ts';
import { PrivatemodeError } from '../errors.ts';
import type { SecretResponse } from '../session/control-api.ts';
import { SUITE } from '../session/secret-exchange.ts';
import { outcomeOfError, type VerificationOutcome } from './outcome.ts';

/** Both messages of a secret exchange; `publicKey` is the HPKE public key of 1216 bytes. */
export interface SecretMessages extends SecretResponse {
  readonly publicKey: Uint8Array;
}

export interface Judgement extends Pick<Verdict, 'tee' | 'checks'> {
  readonly outcome: VerificationOutcome;
  /** Lower-case hex; undefined where there was no manifest to judge by. */
  readonly manifestSha256: string | undefined;
  /** The moment that all dates were compared with. */
  readonly at: Date;
  /** Whether the built-in roots of AMD and Intel were trusted, or others. */
  readonly roots: 'vendor' | 'custom';
  /** The check or the other error that decided against acceptance. */
  readonly failure: { readonly check: Check | undefined; readonly error: PrivatemodeError } | undefined;
}

export interface Subject extends Omit<VerifyInput, 'now'> {
  readonly rootsKind: Judgement['roots'];
  readonly at: Date;
  /** Undefined: evidence only. Called only once the evidence is accepted. */
  readonly secret: (() => Promise<SecretMessages>) | undefined;
  /** Live, collateral that could not be fetched leaves the question open; offline, it is missing from the files. */
  readonly live: boolean;
}

type End = Pick<Judgement, 'outcome' | 'failure'>;

/** Bad input is a judgement, never an error; rejects only with what is not a PrivatemodeError. */
export async function judge(subject: Subject): Promise<Judgement> {
  const { rootsKind, at, secret, live, ...input } = subject;
  const { outcome, meshCaPem, failure, tee, manifestSha256, checks } = await verify({ ...input, now: at });
  const conclude = (end: End, secretChecks: readonly Check[]): Judgement => ({
    ...{ tee, manifestSha256, at, roots: rootsKind, checks: [...checks, ...secretChecks] },
    ...end,
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
    const secretChecks = [...judged, await judgeOpening(messages.encapsulatedKey)];
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

const endOf = (error: PrivatemodeError): End => ({
  outcome: outcomeOfError(error.code),
  failure: { check: undefined, error },
});

function failureOf(check: Check | undefined): Judgement['failure'] {
  const { code = 'attestation_failed', expected = 'every check to pass', found = 'not so' } = check ?? {};
  return { check, error: new PrivatemodeError(code, `expected ${expected}; found ${found}`) };
}

const OPENS: CheckDescription = {
  id: 'secret.opens',
  title: 'Encapsulated key',
  source: 'attestation.md 12',
  expected: 'opens: its X25519 share is not of low order',
};

/** The checks of a secret exchange, in order; it is good if every one passes. */
export const SECRET_EXCHANGE_ROWS: readonly CheckDescription[] = [...MESH_ROWS, ...SECRET_ROWS, OPENS];

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

const SECRET_BYTES = 32;
const NO_CONTEXT = new Uint8Array(0);

/**
 * Tries to open the encapsulated key with a fresh key, which tells as much as the right one: ML-KEM-768 decapsulates
 * every ciphertext of the right length to something, and X25519 with a point of low order is zero for all keys. So
 * a saved exchange, without its private key, is judged like a live one.
 */
async function judgeOpening(encapsulatedKey: Uint8Array): Promise<Check> {
  const { privateKey } = await SUITE.GenerateKeyPair(false);
  try {
    const secret = await SUITE.ReceiveExport(privateKey, encapsulatedKey, NO_CONTEXT, SECRET_BYTES);
    secret.fill(0);
    return checkOf(OPENS, finding(true, 'opens'));
  } catch {
    return checkOf(OPENS, finding(false, 'cannot be opened'));
  }
}
