/**
 * The portable AES-256-GCM engine: @noble/ciphers, no OpenSSL. About six times slower per token and fifty
 * times per megabyte; for runtimes without node:crypto, and as the oracle for the native engine.
 */
import { ghash } from '@noble/ciphers/_polyval.js';
import { ctr, ecb, gcm } from '@noble/ciphers/aes.js';
import { type AeadEngine, checkIv, checkKey, TAG_BYTES } from './aead.ts';

const BLOCK = 16;

/** noble seals whole messages only; NIST SP 800-38D section 7.1 from its CTR and GHASH seals them in pieces. */
function encryption(key: Uint8Array, iv: Uint8Array, aad: Uint8Array) {
  const counterBlock = (counter: number): Uint8Array => {
    const block = Buffer.alloc(BLOCK);
    block.set(iv);
    block.writeUInt32BE(counter, iv.length);
    return block;
  };
  const encryptBlock = (block: Uint8Array) => ecb(key, { disablePadding: true }).encrypt(block);
  const hash = ghash.create(encryptBlock(new Uint8Array(BLOCK)));
  hash.update(aad); // GHASH pads every update to a block, as the AAD and the last piece need it
  let done = 0;
  let partial = Buffer.alloc(0);
  return {
    update(plaintext: Uint8Array): Buffer {
      const skip = done % BLOCK;
      const padded = Buffer.alloc(skip + plaintext.length);
      padded.set(plaintext, skip);
      const stream = ctr(key, counterBlock(2 + Math.floor(done / BLOCK)));
      const ciphertext = Buffer.from(stream.encrypt(padded)).subarray(skip);
      done += plaintext.length;
      const pending = Buffer.concat([partial, ciphertext]);
      const whole = pending.length - (pending.length % BLOCK);
      if (whole > 0) hash.update(pending.subarray(0, whole));
      partial = pending.subarray(whole);
      return ciphertext;
    },
    final(): Buffer {
      if (partial.length > 0) hash.update(partial);
      const lengths = Buffer.alloc(BLOCK);
      lengths.writeBigUInt64BE(BigInt(aad.length) * 8n, 0);
      lengths.writeBigUInt64BE(BigInt(done) * 8n, 8);
      hash.update(lengths);
      const tag = Buffer.from(hash.digest());
      const mask = encryptBlock(counterBlock(1));
      for (let i = 0; i < TAG_BYTES; i++) tag[i] = tag[i]! ^ mask[i]!;
      return tag;
    },
  };
}

export const portableAead: AeadEngine = {
  name: 'portable',
  withKey(keyObject) {
    checkKey(keyObject);
    const key = keyObject.export();
    return {
      encrypt(iv, aad) {
        checkIv(iv);
        return encryption(key, iv, aad);
      },
      decrypt(iv, aad, ciphertext, tag) {
        checkIv(iv);
        try {
          // A tag of another length shifts the split that is made here, and fails.
          return Buffer.from(gcm(key, iv, aad).decrypt(Buffer.concat([ciphertext, tag])));
        } catch {
          return undefined;
        }
      },
    };
  },
};
