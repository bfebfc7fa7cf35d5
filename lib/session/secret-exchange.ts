/** Exchanges a secret by HPKE. A secret is accepted only if the attested deployment signed the exchange. */
import { KDF_HKDF_SHA256, KEM_MLKEM768_X25519 } from '@panva/hpke-noble';
import { AEAD_EXPORT_ONLY, CipherSuite, type Key, type KeyPair } from 'hpke';
import { SecretKey, sha256 } from '#crypto';
import type { Check } from '../attestation/verify-evidence.ts';
import { PrivatemodeError } from '../errors.ts';

/**
 * The HPKE suite of the service (docs/protocol/attestation.md 12). KEM and KDF are noble's, because those of
 * Web Crypto cause a warning on Node 24 and 26. Opening fails for an X25519 share of low order.
 */
export const SUITE = new CipherSuite(KEM_MLKEM768_X25519, KDF_HKDF_SHA256, AEAD_EXPORT_ONLY);

const SECRET_BYTES = 32;
const NO_CONTEXT = new Uint8Array(0);

/** Starts a secret exchange. `keys` is a known key pair for tests. By default, a new key pair is made. */
export async function startSecretExchange(keys?: KeyPair<Key>) {
  const pair = keys ?? (await SUITE.GenerateKeyPair(false));
  const publicKey = await SUITE.SerializePublicKey(pair.publicKey); // 1216 bytes
  let privateKey: Key | undefined = pair.privateKey;

  /**
   * Derives the secret from the encapsulated key. All checks of the response must have passed. Without
   * checks, `complete` fails, because every response has checks (docs/protocol/attestation.md 12, 13).
   * `complete` works only once, because it drops the private key. Throws secret_exchange_failed.
   */
  async function complete(encapsulatedKey: Uint8Array, checks: readonly Check[]) {
    const recipient = privateKey;
    privateKey = undefined;
    if (recipient === undefined) throw failed('the exchange has been completed before');
    if (checks.length === 0 || checks.some(({ outcome }) => outcome !== 'pass'))
      throw failed('the secret does not come from the attested deployment');
    const opened = SUITE.ReceiveExport(recipient, encapsulatedKey, NO_CONTEXT, SECRET_BYTES);
    // `SecretKey` wipes the bytes from HPKE, so that no other copy of the secret remains.
    const bytes = await opened.catch((cause: unknown) => {
      throw failed('the encapsulated key cannot be opened', cause);
    });
    return { secretId: Buffer.from(sha256(publicKey)).toString('base64'), key: new SecretKey(bytes) };
  }
  return { publicKey, complete };
}

const failed = (why: string, cause?: unknown): PrivatemodeError =>
  new PrivatemodeError('secret_exchange_failed', why, { cause });
