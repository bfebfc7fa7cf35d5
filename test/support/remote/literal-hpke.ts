/**
 * The client's half of the secret exchange, spelled out from docs/protocol/attestation.md 12 (RFC 9180,
 * X-Wing combiner) with node:crypto alone: slow, literal, and independent of the HPKE library that the
 * program uses.
 */
import {
  createHash,
  createHmac,
  createPublicKey,
  decapsulate,
  diffieHellman,
  generateKeyPairSync,
  type KeyObject,
} from 'node:crypto';

export interface LiteralRecipient {
  /** 1216 bytes. */
  readonly publicKey: Buffer;
  /** The 32 secret bytes for an encapsulated key of 1120 bytes. */
  secretFor(encapsulatedKey: Uint8Array): Buffer;
}

const rawPublic = (key: KeyObject, length: number): Buffer =>
  key.export({ type: 'spki', format: 'der' }).subarray(-length);

/** SubjectPublicKeyInfo of an X25519 key, up to the key itself (RFC 8410). */
const X25519_SPKI = Buffer.from('302a300506032b656e032100', 'hex');

export function createLiteralRecipient(): LiteralRecipient {
  const mlkem = generateKeyPairSync('ml-kem-768');
  const x25519 = generateKeyPairSync('x25519');
  const x25519Public = rawPublic(x25519.publicKey, 32);
  return {
    publicKey: Buffer.concat([rawPublic(mlkem.publicKey, 1184), x25519Public]),
    secretFor(encapsulatedKey) {
      const ciphertext = encapsulatedKey.subarray(0, 1088);
      const ephemeral = encapsulatedKey.subarray(1088);
      const mlkemSecret = decapsulate(mlkem.privateKey, ciphertext);
      const x25519Secret = diffieHellman({
        privateKey: x25519.privateKey,
        publicKey: createPublicKey({
          key: Buffer.concat([X25519_SPKI, ephemeral]),
          format: 'der',
          type: 'spki',
        }),
      });
      const shared = createHash('sha3-256')
        .update(mlkemSecret)
        .update(x25519Secret)
        .update(ephemeral)
        .update(x25519Public)
        .update(Buffer.from('5c2e2f2f5e5c', 'hex'))
        .digest();
      return exportSecret(shared);
    },
  };
}

const SUITE = Buffer.concat([Buffer.from('HPKE'), Buffer.from('647a0001ffff', 'hex')]);
const NONE = Buffer.alloc(0);

const hmac = (key: Uint8Array, ...parts: Uint8Array[]): Buffer =>
  createHmac('sha256', key).update(Buffer.concat(parts)).digest();

const extract = (salt: Uint8Array, label: string, material: Uint8Array): Buffer =>
  hmac(salt, Buffer.from('HPKE-v1'), SUITE, Buffer.from(label), material);

/** 32 bytes: one block of HKDF-Expand. */
const expand = (key: Uint8Array, label: string, info: Uint8Array): Buffer =>
  hmac(key, Buffer.from([0, 32]), Buffer.from('HPKE-v1'), SUITE, Buffer.from(label), info, Buffer.from([1]));

function exportSecret(shared: Uint8Array): Buffer {
  const context = Buffer.concat([
    Buffer.from([0]),
    extract(NONE, 'psk_id_hash', NONE),
    extract(NONE, 'info_hash', NONE),
  ]);
  const secret = extract(shared, 'secret', NONE);
  return expand(expand(secret, 'exp', context), 'sec', NONE);
}
