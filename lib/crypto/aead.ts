/**
 * AES-256-GCM behind one small interface, with 12-byte ivs and 16-byte tags only (inference.md section 4).
 * Two engines: OpenSSL by way of node:crypto, which the product uses, and the portable one on
 * @noble/ciphers (`portable-aead.ts`), for runtimes without node:crypto and as the oracle the first is
 * tested against.
 */
import { createCipheriv, createDecipheriv, type KeyObject } from 'node:crypto';
import { PrivatemodeError } from '../errors.ts';

export const KEY_BYTES = 32;
export const IV_BYTES = 12;
export const TAG_BYTES = 16;

/** One message being encrypted: `update` gives as many bytes as it takes, which are the caller's alone, `final` the tag. */
export interface AeadEncryption {
  update(plaintext: Uint8Array): Buffer;
  final(): Buffer;
}

/** AES-256-GCM under one key. */
export interface Aead {
  /** Throws `internal` where the iv is not 12 bytes. */
  encrypt(iv: Uint8Array, aad: Uint8Array): AeadEncryption;
  /**
   * Plaintext of ciphertext and tag, or undefined where the tag does not match (or is not 16 bytes).
   * Throws `internal` where the iv is not 12 bytes.
   */
  decrypt(iv: Uint8Array, aad: Uint8Array, ciphertext: Uint8Array, tag: Uint8Array): Buffer | undefined;
}

export interface AeadEngine {
  readonly name: 'native' | 'portable';
  /** Throws `internal` where the key is not 32 bytes. */
  withKey(key: KeyObject): Aead;
}

// OpenSSL would take other lengths silently, and weaker ones among them.
export function checkKey(key: KeyObject): void {
  if (key.symmetricKeySize !== KEY_BYTES)
    throw new PrivatemodeError('internal', 'the secret is not 32 bytes');
}

export function checkIv(iv: Uint8Array): void {
  if (iv.length !== IV_BYTES) throw new PrivatemodeError('internal', 'the iv is not 12 bytes');
}

// Without authTagLength OpenSSL accepts tags of 4 bytes and up in setAuthTag.
const GCM_OPTIONS = { authTagLength: TAG_BYTES };

export const nativeAead: AeadEngine = {
  name: 'native',
  withKey(key) {
    checkKey(key);
    return {
      encrypt(iv, aad) {
        checkIv(iv);
        const cipher = createCipheriv('aes-256-gcm', key, iv, GCM_OPTIONS);
        cipher.setAAD(aad);
        return {
          update: (plaintext) => cipher.update(plaintext),
          final: () => {
            cipher.final();
            return cipher.getAuthTag();
          },
        };
      },
      decrypt(iv, aad, ciphertext, tag) {
        checkIv(iv);
        if (tag.length !== TAG_BYTES) return undefined;
        const decipher = createDecipheriv('aes-256-gcm', key, iv, GCM_OPTIONS);
        decipher.setAAD(aad);
        decipher.setAuthTag(tag);
        const plaintext = decipher.update(ciphertext);
        try {
          decipher.final();
        } catch {
          plaintext.fill(0); // unauthenticated bytes must not outlive this call
          return undefined;
        }
        return plaintext;
      },
    };
  },
};
