/**
 * The secret service's half of the exchange (docs/protocol/attestation.md 12, docs/protocol/inference.md 10).
 */
import { sign } from 'node:crypto';
import { KEM_MLKEM768_X25519 } from '@panva/hpke-noble';
import { AEAD_EXPORT_ONLY, CipherSuite, KDF_HKDF_SHA256 } from 'hpke';
import { sha256 } from '#crypto';
import type { WorkloadCertificate } from './pki/mesh.ts';

/** Uses the KEM of noble: Node's built-in one would raise an ExperimentalWarning for ML-KEM in WebCrypto. */
const SUITE = new CipherSuite(KEM_MLKEM768_X25519, KDF_HKDF_SHA256, AEAD_EXPORT_ONLY);

export const HPKE_PUBLIC_KEY_BYTES = 1216;
const SECRET_BYTES = 32;

export interface SecretExchange {
  /** base64(SHA-256(public key)). */
  readonly id: string;
  readonly secret: Uint8Array;
  readonly encapsulatedKey: Uint8Array;
  /** ASN.1 DER ECDSA over SHA-256(public key || encapsulated key). */
  readonly signature: Uint8Array;
  /** DER. */
  readonly meshCert: Uint8Array;
}

/**
 * Encapsulates a secret to the client's public key, exports it, and signs the public key and the encapsulated
 * key together. `signOther` signs another message instead. Rejects for bytes that are no public key of this
 * KEM.
 */
export async function exchangeSecret(
  publicKey: Uint8Array,
  service: WorkloadCertificate,
  signOther = false,
): Promise<SecretExchange> {
  const recipient = await SUITE.DeserializePublicKey(publicKey);
  const { encapsulatedSecret, exportedSecret } = await SUITE.SendExport(
    recipient,
    new Uint8Array(0),
    SECRET_BYTES,
  );
  const message = Buffer.concat(
    signOther ? [encapsulatedSecret, publicKey] : [publicKey, encapsulatedSecret],
  );
  return {
    id: Buffer.from(sha256(publicKey)).toString('base64'),
    secret: exportedSecret,
    encapsulatedKey: encapsulatedSecret,
    signature: sign('sha256', message, service.key),
    meshCert: service.certificate,
  };
}
