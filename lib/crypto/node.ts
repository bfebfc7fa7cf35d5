/**
 * Cryptography by OpenSSL, by way of node:crypto. ./portable.ts is its twin where that is absent; `#crypto`
 * is one of them.
 *
 * AES-256-GCM (NIST SP 800-38D) has 12-byte ivs and 16-byte tags only. An event of a stream is four messages
 * of a few blocks each, and OpenSSL spends nearly all its time on making a context for each. So to open short
 * messages, one ECB context per key encrypts the counter blocks of several in one call, and the RustCrypto
 * project's GHASH, in constant time and compiled to WebAssembly, works in the memory into which they are
 * decoded. The bench row stream_cpu_per_token needs it: an event takes 20 of 150 us less than with
 * GHASH in JavaScript, whose table of 28 KB has left the processor's cache whenever an event comes.
 */
import * as openssl from 'node:crypto';
import { PrivatemodeError } from '../errors.ts';
// lib.rs as WebAssembly, in base64. scripts/build-ghash.ts compiles it, and CI compares.
import ghashModule from './ghash/module.json' with { type: 'json' };

export const IV_BYTES = 12;
export const TAG_BYTES = 16;
const BLOCK = 16; // and the AAD of a short message
const IV_AT = BLOCK - IV_BYTES; // in the block that the AAD takes next
/** Up to that many bytes of ciphertext, a context of its own costs a message more than this GHASH. */
const SHORT_BYTES = 512;
const TOGETHER = 14; // short messages that are opened at a time: the module has memory for so many
// Without authTagLength, OpenSSL would accept tags of 4 bytes and more.
const GCM_OPTIONS = { authTagLength: TAG_BYTES };

const internal = (message: string) => new PrivatemodeError('internal', message);

/** SHA-256 (FIPS 180-4) over the concatenation of the parts: 32 bytes. */
export const sha256 = (...parts: Uint8Array[]): Uint8Array =>
  new Uint8Array(openssl.hash('sha256', Buffer.concat(parts), 'buffer'));

/** SHA-384 (FIPS 180-4) over the concatenation of the parts: 48 bytes. */
export const sha384 = (...parts: Uint8Array[]): Uint8Array =>
  new Uint8Array(openssl.hash('sha384', Buffer.concat(parts), 'buffer'));

/** SHA-256 as 32 characters, one per byte: the shard key needs it once every few tokens of a prompt. */
export const sha256Latin1 = (bytes: Uint8Array): string => openssl.hash('sha256', bytes, 'latin1');

/** Whether both hold the same bytes, in time that depends on their lengths only. */
export const constantTimeEqual = (a: Uint8Array, b: Uint8Array): boolean =>
  a.length === b.length && openssl.timingSafeEqual(a, b);

/**
 * `scalar` times the base point of P-384 as 0x04 || x || y (SEC 1 2.3.3), 97 bytes; for public data only
 * (FIPS 186-5, SP 800-186 3.2.1.4). Throws unless 0 < scalar < order. Takes 1 ms, JavaScript 4.
 */
export function multiplyBaseP384(scalar: bigint): Uint8Array {
  const ecdh = openssl.createECDH('secp384r1');
  ecdh.setPrivateKey(scalar.toString(16).padStart(96, '0'), 'hex');
  return ecdh.getPublicKey();
}

/** A message to open: `iv` and `body`, ciphertext and tag, in hex as they came. */
export interface SealedParts {
  readonly iv: string;
  readonly aad: Uint8Array;
  readonly body: string;
}

/** Why nothing was opened: what came is no hex of these lengths, or a tag is wrong. */
export type OpenFailure = 'malformed' | 'not authentic';

/** The part of WebAssembly that we use; the types of Node leave it out. */
declare const WebAssembly: {
  readonly Module: new (bytes: Uint8Array) => object;
  readonly Instance: new (module: object) => { readonly exports: GhashModule };
};
interface GhashModule {
  readonly memory: { readonly buffer: ArrayBuffer };
  memory_at(): number; // where the memory that callers may use begins
  /** Writes the GHASH (6.4) of `count` blocks to `out`; the others are positions in memory, too. */
  ghash(key: number, blocks: number, count: number, out: number): void;
}
const compiled = new WebAssembly.Module(Buffer.from(ghashModule, 'base64'));
const { memory, memory_at, ghash } = new WebAssembly.Instance(compiled).exports;

const SUBKEY_AT = memory_at();
const HASH_AT = SUBKEY_AT + BLOCK;
const TEXTS_AT = HASH_AT + BLOCK;
const subkeyInUse = Buffer.from(memory.buffer, SUBKEY_AT, BLOCK);
const hashed = Buffer.from(memory.buffer, HASH_AT, BLOCK);

/** Of each short message the AAD, the ciphertext, and the tag or, padded, the block of lengths. */
const texts = Buffer.from(memory.buffer, TEXTS_AT, TOGETHER * (BLOCK + SHORT_BYTES + TAG_BYTES));
/** At the same place of each J0 and the counter blocks. */
const counters = Buffer.alloc(texts.length);

/** `size` bytes rounded up to whole blocks. */
const padded = (size: number): number => (size + BLOCK - 1) & -BLOCK;
/** Bytes of a ciphertext that came in hex, with its tag. */
const sizeOf = (body: string): number => body.length / 2 - TAG_BYTES;
/** Bytes that such a message takes in `texts`. */
const spanOf = (body: string): number => BLOCK + padded(body.length / 2);
const isShort = ({ aad, body }: SealedParts): boolean => aad.length === BLOCK && sizeOf(body) <= SHORT_BYTES;

/**
 * Whether T ^ CIPH(J0) is the GHASH of AAD and ciphertext, each padded with zeros to whole blocks, and of the
 * lengths of both in bits (7.2, steps 5 to 8), in constant time. Overwrites the tag.
 */
function isAuthentic(at: number, size: number, stream: Buffer): boolean {
  const tagAt = at + BLOCK + size;
  for (let i = 0; i < TAG_BYTES; i++) stream[at + i] = stream[at + i]! ^ texts[tagAt + i]!;
  const end = at + BLOCK + padded(size);
  for (let i = tagAt; i < end + BLOCK; i++) texts[i] = 0;
  texts[end + 7] = 8 * BLOCK;
  texts[end + 14] = size >>> 5;
  texts[end + 15] = (8 * size) & 0xff;
  ghash(SUBKEY_AT, TEXTS_AT + at, (end - at) / BLOCK + 1, HASH_AT);
  let difference = 0;
  for (let i = 0; i < TAG_BYTES; i++) difference |= hashed[i]! ^ stream[at + i]!;
  return difference === 0;
}

/** A key for AES-256-GCM and HMAC-SHA256, which no log and no inspection shows. */
export class SecretKey {
  readonly #key: openssl.KeyObject;
  readonly #blocks: openssl.Cipheriv;
  readonly #subkey: Buffer;

  /** Wipes the bytes, so that only the key holds them. Throws `internal` unless there are 32. */
  constructor(bytes: Uint8Array) {
    this.#key = openssl.createSecretKey(bytes);
    bytes.fill(0);
    // OpenSSL would silently take other lengths, weaker ones too.
    if (this.#key.symmetricKeySize !== 32) throw internal('the secret is not 32 bytes');
    this.#blocks = openssl.createCipheriv('aes-256-ecb', this.#key, null).setAutoPadding(false);
    this.#subkey = this.#blocks.update(Buffer.alloc(BLOCK)); // H = CIPH(0^128): 7.1, step 1; 7.2, step 2
  }

  /** HMAC-SHA256 (RFC 2104) of the text's UTF-8, in lower-case hex. */
  hmacSha256(text: string): string {
    return openssl.createHmac('sha256', this.#key).update(text).digest('hex');
  }

  /**
   * Begins to seal one message, in pieces of whole blocks and a last one: `update` returns as many bytes as
   * it is given; after `final`, `getAuthTag` returns the tag. Throws `internal` unless the iv is 12 bytes.
   */
  seal(iv: Uint8Array, aad: Uint8Array) {
    if (iv.length !== IV_BYTES) throw internal('the iv is not 12 bytes');
    return openssl.createCipheriv('aes-256-gcm', this.#key, iv, GCM_OPTIONS).setAAD(aad);
  }

  /**
   * Opens these messages, all or none: each byte of a plaintext as one character (latin1). Of a few short
   * ones, such as those of an event, no plaintext is computed before all are authentic.
   */
  open(messages: readonly SealedParts[]): string[] | OpenFailure {
    if (messages.length <= TOGETHER && messages.every(isShort)) return this.#openShort(messages);
    const opened: string[] = [];
    for (const message of messages) {
      const size = sizeOf(message.body);
      const [iv, body] = [Buffer.from(message.iv, 'hex'), Buffer.from(message.body, 'hex')];
      const isHex = 2 * iv.length === message.iv.length && 2 * body.length === message.body.length;
      if (!isHex || iv.length !== IV_BYTES || size < 0) return 'malformed';
      const decipher = openssl
        .createDecipheriv('aes-256-gcm', this.#key, iv, GCM_OPTIONS)
        .setAAD(message.aad)
        .setAuthTag(body.subarray(size));
      const plaintext = decipher.update(body.subarray(0, size));
      try {
        decipher.final();
      } catch {
        plaintext.fill(0); // unauthenticated bytes must not outlive this call
        return 'not authentic';
      }
      opened.push(plaintext.toString('latin1'));
    }
    return opened;
  }

  #openShort(messages: readonly SealedParts[]): string[] | OpenFailure {
    let end = 0;
    for (const { iv, aad, body } of messages) {
      const isHex =
        iv.length === 2 * IV_BYTES &&
        texts.write(iv + body, end + IV_AT, 'hex') === IV_BYTES + body.length / 2;
      if (!isHex || sizeOf(body) < 0) return 'malformed';
      // J0 is the iv and a counter of 1 (7.2, step 3); the counter blocks follow by inc32 (6.2).
      for (let at = end, counter = 1; at < end + BLOCK + sizeOf(body); at += BLOCK, counter++) {
        texts.copy(counters, at, end + IV_AT, end + BLOCK);
        counters.writeUInt32BE(counter, at + IV_BYTES);
      }
      for (let i = 0; i < BLOCK; i++) texts[end + i] = aad[i]!;
      end += spanOf(body);
    }
    for (let i = 0; i < BLOCK; i++) subkeyInUse[i] = this.#subkey[i]!;
    const stream = this.#blocks.update(counters.subarray(0, end)); // CIPH(J0) and the key stream of each
    let at = 0;
    for (const { body } of messages) {
      if (!isAuthentic(at, sizeOf(body), stream)) return 'not authentic';
      at += spanOf(body);
    }
    // 7.2, step 4, and 6.5 (GCTR): P = C ^ CIPH(counter blocks).
    for (let i = 0; i < end; i++) stream[i] = stream[i]! ^ texts[i]!;
    const text = stream.toString('latin1');
    at = 0;
    return messages.map(({ body }) => {
      const from = at + BLOCK;
      at += spanOf(body);
      return text.slice(from, from + sizeOf(body));
    });
  }
}
