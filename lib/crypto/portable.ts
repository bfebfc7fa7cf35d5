/**
 * Cryptography by the noble libraries, for runtimes without node:crypto. The exported names and errors are
 * those of ./node.ts, which documents them.
 */
import { ghash } from '@noble/ciphers/_polyval.js';
import { ctr, ecb, gcm } from '@noble/ciphers/aes.js';
import { p384 } from '@noble/curves/nist.js';
import { hmac } from '@noble/hashes/hmac.js';
import { sha256 as nobleSha256, sha384 as nobleSha384 } from '@noble/hashes/sha2.js';
import { concatBytes } from '@noble/hashes/utils.js';
import { PrivatemodeError } from '../errors.ts';
import type { OpenFailure, SealedParts } from './node.ts';

export { equalBytes as constantTimeEqual } from '@noble/ciphers/utils.js';
export type { OpenFailure, SealedParts };

export const IV_BYTES = 12;
export const TAG_BYTES = 16;
const BLOCK = 16;
export const SHORT_BYTES = 512;

const internal = (message: string) => new PrivatemodeError('internal', message);

export const sha256 = (...parts: Uint8Array[]): Uint8Array => nobleSha256(concatBytes(...parts));
export const sha384 = (...parts: Uint8Array[]): Uint8Array => nobleSha384(concatBytes(...parts));
export const sha256Latin1 = (bytes: Uint8Array): string => Buffer.from(nobleSha256(bytes)).toString('latin1');

/** The base point without noble's precomputed table. A table takes 40 ms and pays off only for many uses. */
const P384_BASE = p384.Point.fromAffine(p384.Point.BASE.toAffine());
export const multiplyBaseP384 = (scalar: bigint): Uint8Array =>
  P384_BASE.multiplyUnsafe(scalar).toBytes(false);

/** Makes one counter block of CTR: the iv, then a 32-bit big-endian counter (7.1, step 2, and 6.2). */
function counterBlock(iv: Uint8Array, counter: number): Uint8Array {
  const block = new Uint8Array(BLOCK);
  block.set(iv);
  new DataView(block.buffer).setUint32(IV_BYTES, counter);
  return block;
}

export class SecretKey {
  readonly #bytes: Uint8Array;

  constructor(bytes: Uint8Array) {
    this.#bytes = Uint8Array.from(bytes);
    bytes.fill(0);
    if (this.#bytes.length !== 32) throw internal('the secret is not 32 bytes');
  }

  hmacSha256(text: string): string {
    return Buffer.from(hmac(nobleSha256, this.#bytes, Buffer.from(text))).toString('hex');
  }

  /**
   * Combines noble's CTR and GHASH (NIST SP 800-38D 7.1), because noble encrypts only whole messages. Throws
   * `internal` also if a piece follows a piece that ended within a block, because key stream would repeat.
   */
  seal(iv: Uint8Array, aad: Uint8Array) {
    if (iv.length !== IV_BYTES) throw internal('the iv is not 12 bytes');
    const secret = this.#bytes;
    const encryptBlock = (block: Uint8Array) => ecb(secret, { disablePadding: true }).encrypt(block);
    const mask = encryptBlock(counterBlock(iv, 1)); // step 2: CIPH(J0)
    const hash = ghash.create(encryptBlock(new Uint8Array(BLOCK))); // step 1: H = CIPH(0^128)
    hash.update(aad); // step 5: each update is zero-padded to whole blocks, as AAD and last piece need
    let done = 0;
    return {
      update(plaintext: Uint8Array): Buffer {
        if (done % BLOCK !== 0) throw internal('a piece comes after the last one');
        const stream = ctr(secret, counterBlock(iv, 2 + done / BLOCK)); // step 3
        const ciphertext = Buffer.from(stream.encrypt(plaintext));
        done += plaintext.length;
        hash.update(ciphertext);
        return ciphertext;
      },
      /** Step 5: hashes the bit lengths of AAD and ciphertext. */
      final(): void {
        const lengths = new DataView(new ArrayBuffer(BLOCK));
        lengths.setBigUint64(0, BigInt(aad.length) * 8n);
        lengths.setBigUint64(8, BigInt(done) * 8n);
        hash.update(new Uint8Array(lengths.buffer));
      },
      /** Step 6: the tag is T = GHASH ^ CIPH(J0). */
      getAuthTag: (): Buffer => Buffer.from(hash.digest().map((byte, i) => byte ^ mask[i]!)),
    };
  }

  sealShort(iv: Uint8Array, aad: Uint8Array, plaintext: Uint8Array): string {
    if (iv.length !== IV_BYTES) throw internal('the iv is not 12 bytes');
    return Buffer.from(gcm(this.#bytes, iv, aad).encrypt(plaintext)).toString('hex');
  }

  open(messages: readonly SealedParts[]): string[] | OpenFailure {
    const opened: string[] = [];
    for (const message of messages) {
      const [iv, body] = [Buffer.from(message.iv, 'hex'), Buffer.from(message.body, 'hex')];
      const isHex = 2 * iv.length === message.iv.length && 2 * body.length === message.body.length;
      if (!isHex || iv.length !== IV_BYTES || body.length < TAG_BYTES) return 'malformed';
      try {
        opened.push(Buffer.from(gcm(this.#bytes, iv, message.aad).decrypt(body)).toString('latin1'));
      } catch {
        return 'not authentic';
      }
    }
    return opened;
  }
}
