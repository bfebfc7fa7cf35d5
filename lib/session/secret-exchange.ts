/**
 * The secret exchange: agrees on a secret with the secret service by HPKE, and accepts it only if the
 * attested deployment signed it.
 */
import { KDF_HKDF_SHA256, KEM_MLKEM768_X25519 } from '@panva/hpke-noble';
import { AEAD_EXPORT_ONLY, CipherSuite, type Key, type KeyPair } from 'hpke';
import { SecretKey, sha256 } from '#crypto';
import type { Check } from '../attestation/verify-evidence.ts';
import { CLOCK_REMEDY, PrivatemodeError } from '../errors.ts';
import type { SecretResponse } from './control-api.ts';

/**
 * The HPKE suite of the service: KEM 0x647a, HKDF-SHA256, export only (docs/protocol/attestation.md 12). KEM
 * and KDF come from the noble suite because those built on Web Crypto raise an ExperimentalWarning on Node 24
 * and 26. An X25519 share of low order makes the decapsulation fail.
 */
export const SUITE = new CipherSuite(KEM_MLKEM768_X25519, KDF_HKDF_SHA256, AEAD_EXPORT_ONLY);

const SECRET_BYTES = 32;
const NO_CONTEXT = new Uint8Array(0);

export interface SharedSecret {
  /** Standard base64 of SHA-256 of the public key. */
  readonly secretId: string;
  /** 32 bytes, AES-256. */
  readonly key: SecretKey;
}

/** Starts a secret exchange. `keys`: a known key pair, for tests; by default a fresh one. */
export async function startSecretExchange(keys?: KeyPair<Key>) {
  const pair = keys ?? (await SUITE.GenerateKeyPair(false));
  const publicKey = await SUITE.SerializePublicKey(pair.publicKey);
  let privateKey: Key | undefined = pair.privateKey;
  return {
    /** 1216 bytes. */
    publicKey,
    /**
     * Derives the secret if `judge` finds that the secret service of the attested deployment signed the
     * response (docs/protocol/attestation.md 12, 13). Works once: afterwards the private key is gone, whether
     * it succeeded or not. Throws secret_exchange_failed.
     */
    async complete(
      response: SecretResponse,
      judge: (
        sent: SecretResponse & { publicKey: Uint8Array },
      ) => readonly Check[] | Promise<readonly Check[]>,
    ): Promise<SharedSecret> {
      const recipient = privateKey;
      privateKey = undefined;
      if (recipient === undefined) throw failed('the exchange has been completed before');
      requireAccepted(await judge({ ...response, publicKey }));
      return {
        secretId: Buffer.from(sha256(publicKey)).toString('base64'),
        key: await deriveSecret(recipient, response.encapsulatedKey),
      };
    },
  };
}

/**
 * Throws unless every check passed: all of them apply to any signature. An empty list throws too, because it
 * proves nothing.
 */
function requireAccepted(checks: readonly Check[]): void {
  const refused = checks.find(({ outcome }) => outcome !== 'pass');
  if (refused === undefined && checks.length > 0) return;
  const { id, expected, found, detail } = refused ?? {};
  const why = refused === undefined ? 'nothing was checked' : `${id}: expected ${expected}, found ${found}`;
  const remedy = detail?.clock && CLOCK_REMEDY;
  throw failed(`the secret does not come from the attested deployment (${why})`, { remedy });
}

/**
 * Whether an encapsulated key can be opened. Tries it with a fresh private key: a key can be opened with that
 * one exactly if it can be opened with the right one, because ML-KEM-768 decapsulates every ciphertext of the
 * right length to something, and X25519 with a point of low order is zero for all keys. So a saved exchange,
 * which lacks the private key, is judged like a live one.
 */
export async function canBeOpened(encapsulatedKey: Uint8Array): Promise<boolean> {
  const { privateKey } = await SUITE.GenerateKeyPair(false);
  try {
    const secret = await SUITE.ReceiveExport(privateKey, encapsulatedKey, NO_CONTEXT, SECRET_BYTES);
    secret.fill(0);
    return true;
  } catch {
    return false;
  }
}

/** The AES key. Its bytes live in the key object alone: which wipes the copy that HPKE hands out. */
async function deriveSecret(privateKey: Key, encapsulatedKey: Uint8Array): Promise<SecretKey> {
  const opened = SUITE.ReceiveExport(privateKey, encapsulatedKey, NO_CONTEXT, SECRET_BYTES);
  const bytes = await opened.catch((cause: unknown) => {
    throw failed('the encapsulated key cannot be opened', { cause });
  });
  return new SecretKey(bytes);
}

const failed = (why: string, options?: { cause?: unknown; remedy?: string | undefined }): PrivatemodeError =>
  new PrivatemodeError('secret_exchange_failed', why, options);
