/**
 * AES-256-GCM (NIST SP 800-38D) by @noble/ciphers, with 12-byte ivs and 16-byte tags only: the twin of
 * ../node/aead.ts where node:crypto is absent.
 */
import { ghash } from '@noble/ciphers/_polyval.js';
import { ctr, ecb, gcm } from '@noble/ciphers/aes.js';
import { hmac } from '@noble/hashes/hmac.js';
import { sha256 } from '@noble/hashes/sha2.js';
import { PrivatemodeError } from '../../errors.ts';

export const KEY_BYTES = 32;
export const IV_BYTES = 12;
export const TAG_BYTES = 16;
const BLOCK = 16;

/** Holds the bytes of a key so that no log and no inspection shows them. */
class HiddenBytes {
  readonly #bytes: Uint8Array;

  constructor(bytes: Uint8Array) {
    this.#bytes = Uint8Array.from(bytes);
  }

  static of(key: HiddenBytes): Uint8Array {
    return key.#bytes;
  }
}

export type SecretKey = HiddenBytes;

/** Makes a key of these bytes and wipes them. Throws `internal` unless there are 32. */
export function secretKey(bytes: Uint8Array): SecretKey {
  const key = new HiddenBytes(bytes);
  bytes.fill(0);
  checkKey(key);
  return key;
}

export function checkKey(key: SecretKey): void {
  if (HiddenBytes.of(key).length !== KEY_BYTES)
    throw new PrivatemodeError('internal', 'the secret is not 32 bytes');
}

/** HMAC-SHA256 (RFC 2104) of the text's UTF-8 under the key, in lower-case hex. */
export function hmacSha256(key: SecretKey, text: string): string {
  const mac = hmac(sha256, HiddenBytes.of(key), new TextEncoder().encode(text));
  return Buffer.from(mac).toString('hex');
}

/** One block of CTR: the iv and a 32-bit counter, big-endian (section 7.1, step 2, and 6.2). */
function counterBlock(iv: Uint8Array, counter: number): Uint8Array {
  if (iv.length !== IV_BYTES) throw new PrivatemodeError('internal', 'the iv is not 12 bytes');
  const block = new Uint8Array(BLOCK);
  block.set(iv);
  new DataView(block.buffer).setUint32(IV_BYTES, counter);
  return block;
}

/**
 * Begins the encryption of one message: `update` returns as many bytes as it is given; after `final`,
 * `getAuthTag` returns the tag. Throws `internal` unless the key is 32 bytes and the iv 12. noble encrypts
 * whole messages only, so this function composes noble's CTR and GHASH piece by piece (section 7.1).
 */
export function gcmEncryption(key: SecretKey, iv: Uint8Array, aad: Uint8Array) {
  checkKey(key);
  const secret = HiddenBytes.of(key);
  const encryptBlock = (block: Uint8Array): Uint8Array =>
    ecb(secret, { disablePadding: true }).encrypt(block);
  const mask = encryptBlock(counterBlock(iv, 1)); // step 2: CIPH(J0)
  const hash = ghash.create(encryptBlock(new Uint8Array(BLOCK))); // step 1: H = CIPH(0^128)
  hash.update(aad); // step 5: each update is padded to whole blocks, as the AAD and the last piece need it
  let done = 0;
  let partial: Uint8Array = new Uint8Array(0);
  return {
    update(plaintext: Uint8Array): Buffer {
      const skip = done % BLOCK;
      const padded = new Uint8Array(skip + plaintext.length);
      padded.set(plaintext, skip);
      const stream = ctr(secret, counterBlock(iv, 2 + Math.floor(done / BLOCK))); // step 3
      const ciphertext = Buffer.from(stream.encrypt(padded)).subarray(skip);
      done += plaintext.length;
      const pending = Buffer.concat([partial, ciphertext]);
      const whole = pending.length - (pending.length % BLOCK);
      if (whole > 0) hash.update(pending.subarray(0, whole));
      partial = pending.subarray(whole);
      return ciphertext;
    },
    final(): void {
      if (partial.length > 0) hash.update(partial);
    },
    /** Steps 5 and 6: the lengths in bits, then T = GHASH ^ CIPH(J0). */
    getAuthTag(): Buffer {
      const lengths = new DataView(new ArrayBuffer(BLOCK));
      lengths.setBigUint64(0, BigInt(aad.length) * 8n);
      lengths.setBigUint64(8, BigInt(done) * 8n);
      hash.update(new Uint8Array(lengths.buffer));
      const tag = Buffer.from(hash.digest());
      for (let i = 0; i < BLOCK; i++) tag[i] = tag[i]! ^ mask[i]!;
      return tag;
    },
  };
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
  checkKey(key);
  if (iv.length !== IV_BYTES) throw new PrivatemodeError('internal', 'the iv is not 12 bytes');
  if (tag.length !== TAG_BYTES) return undefined;
  try {
    return Buffer.from(gcm(HiddenBytes.of(key), iv, aad).decrypt(Buffer.concat([ciphertext, tag])));
  } catch {
    return undefined;
  }
}
