/**
 * Cryptography by OpenSSL, through node:crypto. The import `#crypto` is this file, or ./portable.ts where
 * node:crypto is absent. AES-256-GCM (NIST SP 800-38D) is used only with 12-byte ivs and 16-byte tags. A
 * request has some eight short messages and an event of a stream four, and OpenSSL would spend nearly all its
 * time on a new context for each message. So one ECB context per key encrypts the counter blocks of messages.
 * GHASH is the constant-time code of the RustCrypto project in WebAssembly, and it works in the memory into
 * which the messages are decoded. The bench row stream_cpu_per_token needs WebAssembly, which saves 20 of the
 * 150 us that an event takes with GHASH in JavaScript. The 28 KB table of GHASH in JavaScript has left the
 * processor's cache before each event.
 */
import * as openssl from 'node:crypto';
import { PrivatemodeError } from '../errors.ts';
// ghash/lib.rs as WebAssembly in base64, compiled by scripts/build-ghash.ts and compared in CI.
import ghashModule from './ghash/module.json' with { type: 'json' };

export const IV_BYTES = 12;
export const TAG_BYTES = 16;
const BLOCK = 16; // the bytes of an AES block, and of the AAD of a short message
const IV_AT = BLOCK - IV_BYTES; // offset of the iv in its block, which the AAD later overwrites
/** The most bytes of a short ciphertext. For a longer ciphertext, an OpenSSL context costs less. */
export const SHORT_BYTES = 512;
const TOGETHER = 14; // the most short messages in one call: the WebAssembly memory has room for no more
// Without authTagLength, OpenSSL would accept authentication tags of only 4 bytes.
const GCM_OPTIONS = { authTagLength: TAG_BYTES };

const internal = (message: string) => new PrivatemodeError('internal', message);

/** The 32-byte SHA-256 (FIPS 180-4) of the concatenated parts. */
export const sha256 = (...parts: Uint8Array[]): Uint8Array =>
  new Uint8Array(openssl.hash('sha256', Buffer.concat(parts), 'buffer'));

/** The 48-byte SHA-384 (FIPS 180-4) of the concatenated parts. */
export const sha384 = (...parts: Uint8Array[]): Uint8Array =>
  new Uint8Array(openssl.hash('sha384', Buffer.concat(parts), 'buffer'));

/** SHA-256 as 32 characters, one per byte. The shard key needs one such hash for every few tokens. */
export const sha256Latin1 = (bytes: Uint8Array): string => openssl.hash('sha256', bytes, 'latin1');

/** Compares two byte strings in a time that depends only on their lengths. */
export const constantTimeEqual = (a: Uint8Array, b: Uint8Array): boolean =>
  a.length === b.length && openssl.timingSafeEqual(a, b);

/**
 * Returns `scalar` times the base point of P-384 as 0x04 || x || y (SEC 1 2.3.3), 97 bytes. `scalar` must be
 * public (FIPS 186-5, SP 800-186 3.2.1.4). Throws unless 0 < scalar < order. Takes 1 ms (JavaScript 4 ms).
 */
export function multiplyBaseP384(scalar: bigint): Uint8Array {
  const ecdh = openssl.createECDH('secp384r1');
  ecdh.setPrivateKey(scalar.toString(16).padStart(96, '0'), 'hex');
  return ecdh.getPublicKey();
}

/** An encrypted message, in hex as received. `body` is the ciphertext followed by the authentication tag. */
export interface SealedParts {
  readonly iv: string;
  readonly aad: Uint8Array;
  readonly body: string;
}

/** Why no message was opened: invalid hex, a wrong length, or a wrong authentication tag. */
export type OpenFailure = 'malformed' | 'not authentic';

/** Declares the part of WebAssembly that this file uses. The types of Node have no WebAssembly. */
declare const WebAssembly: {
  readonly Module: new (bytes: Uint8Array) => object;
  readonly Instance: new (module: object) => { readonly exports: GhashModule };
};
interface GhashModule {
  readonly memory: { readonly buffer: ArrayBuffer };
  memory_at(): number; // where the memory for callers begins
  /** Writes the GHASH (6.4) of `count` blocks to `out`. `key`, `blocks` and `out` are memory offsets. */
  ghash(key: number, blocks: number, count: number, out: number): void;
}
const compiled = new WebAssembly.Module(Buffer.from(ghashModule, 'base64'));
const { memory, memory_at, ghash } = new WebAssembly.Instance(compiled).exports;

const SUBKEY_AT = memory_at();
const HASH_AT = SUBKEY_AT + BLOCK;
const TEXTS_AT = HASH_AT + BLOCK;
const subkeyInUse = Buffer.from(memory.buffer, SUBKEY_AT, BLOCK);
const hashed = Buffer.from(memory.buffer, HASH_AT, BLOCK);

/** Holds AAD, ciphertext and tag of each short message. Zeros and lengths later overwrite the tag. */
const texts = Buffer.from(memory.buffer, TEXTS_AT, TOGETHER * (BLOCK + SHORT_BYTES + TAG_BYTES));
/** Holds the counter blocks of each message at its offsets in `texts`. J0 takes the place of the AAD. */
const counters = Buffer.alloc(texts.length);
const [textsView, countersView] = [texts, counters].map(
  ({ buffer, byteOffset, length }) => new DataView(buffer, byteOffset, length),
) as [DataView, DataView];

/** Rounds `size` up to whole blocks. */
const padded = (size: number): number => (size + BLOCK - 1) & -BLOCK;
/** The number of bytes of a ciphertext without its tag. `body` is hex. */
const sizeOf = (body: string): number => body.length / 2 - TAG_BYTES;
/** The number of bytes that one message takes in `texts`. */
const spanOf = (body: string): number => BLOCK + padded(body.length / 2);
const isShort = ({ aad, body }: SealedParts): boolean => aad.length === BLOCK && sizeOf(body) <= SHORT_BYTES;

/**
 * Writes the counter blocks of the message at `at`, whose iv ends the message's first block. J0 is the iv and
 * the counter 1 (7.2, step 3). One block for each 16 bytes of the plaintext follows by inc32 (6.2).
 */
function writeCounters(at: number, size: number): void {
  const a = textsView.getInt32(at + 4);
  const b = textsView.getInt32(at + 8);
  const c = textsView.getInt32(at + 12);
  for (let block = at, counter = 1; block < at + BLOCK + size; block += BLOCK, counter++) {
    countersView.setInt32(block, a);
    countersView.setInt32(block + 4, b);
    countersView.setInt32(block + 8, c);
    countersView.setInt32(block + 12, counter);
  }
}

/**
 * Writes to `hashed` the GHASH of AAD and ciphertext, each zero-padded to whole blocks, and of both bit
 * lengths (7.1 and 7.2, steps 4 to 6). Overwrites the tag.
 */
function hashText(at: number, size: number): void {
  const end = at + BLOCK + padded(size);
  for (let i = at + BLOCK + size; i < end + BLOCK; i++) texts[i] = 0;
  texts[end + 7] = 8 * BLOCK;
  texts[end + 14] = size >>> 5;
  texts[end + 15] = (8 * size) & 0xff;
  ghash(SUBKEY_AT, TEXTS_AT + at, (end - at) / BLOCK + 1, HASH_AT);
}

/** Whether the tag T is right, in constant time: T ^ CIPH(J0) must be the GHASH (7.2, steps 6 to 8). */
function isAuthentic(at: number, size: number, stream: Buffer): boolean {
  const tagAt = at + BLOCK + size;
  for (let i = 0; i < TAG_BYTES; i++) stream[at + i] = stream[at + i]! ^ texts[tagAt + i]!;
  hashText(at, size);
  let difference = 0;
  for (let i = 0; i < TAG_BYTES; i++) difference |= hashed[i]! ^ stream[at + i]!;
  return difference === 0;
}

/** A key for AES-256-GCM and HMAC-SHA256 that cannot appear in logs or in the inspected object. */
export class SecretKey {
  readonly #key: openssl.KeyObject;
  readonly #blocks: openssl.Cipheriv;
  readonly #subkey: Buffer;

  /** Wipes `bytes`, so that only this object holds the key. Throws `internal` unless `bytes` has 32 bytes. */
  constructor(bytes: Uint8Array) {
    this.#key = openssl.createSecretKey(bytes);
    bytes.fill(0);
    // OpenSSL would silently accept a key of another length, even a weaker key.
    if (this.#key.symmetricKeySize !== 32) throw internal('the secret is not 32 bytes');
    this.#blocks = openssl.createCipheriv('aes-256-ecb', this.#key, null).setAutoPadding(false);
    this.#subkey = this.#blocks.update(Buffer.alloc(BLOCK)); // H = CIPH(0^128): 7.1, step 1; 7.2, step 2
  }

  /** The HMAC-SHA256 (RFC 2104) of the text in UTF-8, as lower-case hex. */
  hmacSha256(text: string): string {
    return openssl.createHmac('sha256', this.#key).update(text).digest('hex');
  }

  /**
   * Begins to encrypt one message in pieces. All pieces but the last must consist of whole blocks. `update`
   * returns as many bytes as it gets; `getAuthTag` returns the tag after `final`. Throws `internal` unless
   * the iv has 12 bytes.
   */
  seal(iv: Uint8Array, aad: Uint8Array) {
    if (iv.length !== IV_BYTES) throw internal('the iv is not 12 bytes');
    return openssl.createCipheriv('aes-256-gcm', this.#key, iv, GCM_OPTIONS).setAAD(aad);
  }

  /**
   * Encrypts one message of at most SHORT_BYTES. Returns ciphertext and tag in hex. Throws `internal` for a
   * longer plaintext, and unless the iv has 12 bytes and the AAD 16 bytes.
   */
  sealShort(iv: Uint8Array, aad: Uint8Array, plaintext: Uint8Array): string {
    const size = plaintext.length;
    if (iv.length !== IV_BYTES || aad.length !== BLOCK || size > SHORT_BYTES)
      throw internal('this is no short message');
    texts.set(iv, IV_AT);
    writeCounters(0, size);
    texts.set(aad);
    const end = BLOCK + size;
    const stream = this.#encryptCounters(padded(end));
    // The ciphertext is C = P ^ CIPH(counter blocks) (7.1, step 3, and 6.5, GCTR).
    for (let i = 0; i < size; i++) texts[BLOCK + i] = plaintext[i]! ^ stream[BLOCK + i]!;
    hashText(0, size);
    for (let i = 0; i < TAG_BYTES; i++) texts[end + i] = hashed[i]! ^ stream[i]!; // step 6: T
    return texts.toString('hex', BLOCK, end + TAG_BYTES);
  }

  /**
   * Opens either all messages or none. Each byte of a plaintext becomes one character (Latin-1). A few short
   * messages, such as those of one event, are decrypted only after all of them are authenticated.
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
        plaintext.fill(0); // unauthenticated plaintext must not outlive this call
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
      writeCounters(end, sizeOf(body));
      for (let i = 0; i < BLOCK; i++) texts[end + i] = aad[i]!;
      end += spanOf(body);
    }
    const stream = this.#encryptCounters(end);
    let at = 0;
    for (const { body } of messages) {
      if (!isAuthentic(at, sizeOf(body), stream)) return 'not authentic';
      at += spanOf(body);
    }
    // The plaintext is P = C ^ CIPH(counter blocks) (7.2, step 4, and 6.5, GCTR).
    for (let i = 0; i < end; i++) stream[i] = stream[i]! ^ texts[i]!;
    const text = stream.toString('latin1');
    at = 0;
    return messages.map(({ body }) => {
      const from = at + BLOCK;
      at += spanOf(body);
      return text.slice(from, from + sizeOf(body));
    });
  }

  /** Encrypts `counters` up to `end`: CIPH(J0) and key stream of each message. Makes GHASH use this key. */
  #encryptCounters(end: number): Buffer {
    for (let i = 0; i < BLOCK; i++) subkeyInUse[i] = this.#subkey[i]!;
    return this.#blocks.update(counters.subarray(0, end));
  }
}
