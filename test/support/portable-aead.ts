/** AES-256-GCM of @noble/ciphers, without OpenSSL: the oracle for `lib/crypto/node/aead.ts`, with its functions. */
import type { KeyObject } from 'node:crypto';
import { ghash } from '@noble/ciphers/_polyval.js';
import { ctr, ecb, gcm } from '@noble/ciphers/aes.js';

const BLOCK = 16;

/** noble seals whole messages only; NIST SP 800-38D, section 7.1, from its CTR and GHASH seals them in pieces. */
export function portableEncryption(key: KeyObject, iv: Uint8Array, aad: Uint8Array) {
  const secret = key.export();
  const counterBlock = (counter: number): Uint8Array => {
    const block = Buffer.alloc(BLOCK);
    block.set(iv);
    block.writeUInt32BE(counter, iv.length);
    return block;
  };
  const encryptBlock = (block: Uint8Array) => ecb(secret, { disablePadding: true }).encrypt(block);
  const hash = ghash.create(encryptBlock(new Uint8Array(BLOCK)));
  hash.update(aad); // GHASH pads every update to a block, as the AAD and the last piece need it
  let done = 0;
  let partial = Buffer.alloc(0);
  return {
    update(plaintext: Uint8Array): Buffer {
      const skip = done % BLOCK;
      const padded = Buffer.alloc(skip + plaintext.length);
      padded.set(plaintext, skip);
      const stream = ctr(secret, counterBlock(2 + Math.floor(done / BLOCK)));
      const ciphertext = Buffer.from(stream.encrypt(padded)).subarray(skip);
      done += plaintext.length;
      const pending = Buffer.concat([partial, ciphertext]);
      const whole = pending.length - (pending.length % BLOCK);
      if (whole > 0) hash.update(pending.subarray(0, whole));
      partial = pending.subarray(whole);
      return ciphertext;
    },
    tag(): Buffer {
      if (partial.length > 0) hash.update(partial);
      const lengths = Buffer.alloc(BLOCK);
      lengths.writeBigUInt64BE(BigInt(aad.length) * 8n, 0);
      lengths.writeBigUInt64BE(BigInt(done) * 8n, 8);
      hash.update(lengths);
      const tag = Buffer.from(hash.digest());
      const mask = encryptBlock(counterBlock(1));
      for (let i = 0; i < BLOCK; i++) tag[i] = tag[i]! ^ mask[i]!;
      return tag;
    },
  };
}

/** The plaintext, or undefined. A tag of another length shifts the split that is made here, and fails. */
export function portableDecrypt(
  key: KeyObject,
  iv: Uint8Array,
  aad: Uint8Array,
  ciphertext: Uint8Array,
  tag: Uint8Array,
): Buffer | undefined {
  try {
    return Buffer.from(gcm(key.export(), iv, aad).decrypt(Buffer.concat([ciphertext, tag])));
  } catch {
    return undefined;
  }
}
