/** AES-256-GCM (NIST SP 800-38D) by OpenSSL, with 12-byte ivs and 16-byte tags only. */
import { createCipheriv, createDecipheriv, createHmac, createSecretKey, type KeyObject } from 'node:crypto';
import { PrivatemodeError } from '../../errors.ts';

export const KEY_BYTES = 32;
export const IV_BYTES = 12;
export const TAG_BYTES = 16;

export type SecretKey = KeyObject;

/**
 * Makes a key of these bytes and wipes them, so that only the key holds them. Throws `internal` unless there
 * are 32.
 */
export function secretKey(bytes: Uint8Array): SecretKey {
  const key = createSecretKey(bytes);
  bytes.fill(0);
  checkKey(key);
  return key;
}

/** HMAC-SHA256 (RFC 2104) of the text's UTF-8 under the key, in lower-case hex. */
export const hmacSha256 = (key: SecretKey, text: string): string =>
  createHmac('sha256', key).update(text).digest('hex');

// OpenSSL would silently accept other lengths, weaker ones too: HMAC other keys, which this check refuses,
// and GCM other ivs, which the next one refuses.
export function checkKey(key: SecretKey): void {
  if (key.symmetricKeySize !== KEY_BYTES)
    throw new PrivatemodeError('internal', 'the secret is not 32 bytes');
}

function checkKeyAndIv(key: SecretKey, iv: Uint8Array): void {
  checkKey(key);
  if (iv.length !== IV_BYTES) throw new PrivatemodeError('internal', 'the iv is not 12 bytes');
}

// Without authTagLength, setAuthTag would accept tags of 4 bytes and more.
const GCM_OPTIONS = { authTagLength: TAG_BYTES };

/**
 * Begins the encryption of one message: `update` returns as many bytes as it is given; after `final`,
 * `getAuthTag` returns the tag. Throws `internal` unless the key is 32 bytes and the iv 12.
 */
export function gcmEncryption(key: SecretKey, iv: Uint8Array, aad: Uint8Array) {
  checkKeyAndIv(key, iv);
  return createCipheriv('aes-256-gcm', key, iv, GCM_OPTIONS).setAAD(aad);
}

/**
 * Returns the plaintext, or undefined if the tag does not match or is not 16 bytes.
 * Throws `internal` unless the key is 32 bytes and the iv 12.
 */
export function gcmDecrypt(
  key: SecretKey,
  iv: Uint8Array,
  aad: Uint8Array,
  ciphertext: Uint8Array,
  tag: Uint8Array,
): Buffer | undefined {
  checkKeyAndIv(key, iv);
  if (tag.length !== TAG_BYTES) return undefined;
  const decipher = createDecipheriv('aes-256-gcm', key, iv, GCM_OPTIONS).setAAD(aad).setAuthTag(tag);
  const plaintext = decipher.update(ciphertext);
  try {
    decipher.final();
  } catch {
    plaintext.fill(0); // unauthenticated bytes must not outlive this call
    return undefined;
  }
  return plaintext;
}
