/** The checks of the secret exchange: those of the attestation room, and whether the answer would open. */
import { type Check, type CheckDescription, checkOf, finding, notApplicable } from '../attestation/check.ts';
import { MESH_ROWS, SECRET_ROWS, verifySecretResponse } from '../attestation/mesh.ts';
import type { SecretResponse } from '../session/control-api.ts';
import { SUITE } from '../session/secret-exchange.ts';

/** What went to and fro: the HPKE public key of 1216 bytes, and the answer. */
export interface SecretMessages extends SecretResponse {
  readonly publicKey: Uint8Array;
}

const OPENS: CheckDescription = {
  id: 'secret.opens',
  title: 'Encapsulated key',
  source: 'attestation.md 12',
  expected: 'opens: its X25519 share is not of low order',
};

export const SECRET_EXCHANGE_ROWS: readonly CheckDescription[] = [...MESH_ROWS, ...SECRET_ROWS, OPENS];

const SECRET_BYTES = 32;
const NO_CONTEXT = new Uint8Array(0);

/** One check per row of SECRET_EXCHANGE_ROWS; the exchange is good if every one passes. */
export async function judgeSecretExchange(
  messages: SecretMessages,
  against: { readonly meshCaPem: string; readonly manifest: Uint8Array; readonly now: Date },
): Promise<readonly Check[]> {
  const checks = verifySecretResponse({ ...messages, ...against });
  return [...checks, await judgeOpening(messages.encapsulatedKey)];
}

/**
 * Any key can tell: ML-KEM-768 decapsulates every ciphertext of the right length to something, and X25519 with a point
 * of low order is zero for all keys. So it is judged alike by who asked and by who has only the messages.
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

/** The same rows where there was no exchange to judge, because an earlier check failed. */
export const secretNotEvaluated = (): readonly Check[] =>
  SECRET_EXCHANGE_ROWS.map((row) => checkOf(row, undefined));

/** The same rows where none is part of what was given. */
export const secretNotGiven = (): readonly Check[] =>
  SECRET_EXCHANGE_ROWS.map((row) => checkOf(row, notApplicable('no secret exchange was given')));
