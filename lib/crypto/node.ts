/**
 * Cryptography by OpenSSL, through node:crypto. `#crypto` is this file, or ./portable.ts where node:crypto is
 * absent.
 *
 * AES-256-GCM (NIST SP 800-38D) has 12-byte ivs and 16-byte tags only. An event of a stream has four short
 * messages, and OpenSSL spends nearly all its time on a new context for each. So short messages are opened
 * otherwise: one ECB context per key encrypts the counter blocks of several messages in one call. GHASH is
 * that of the RustCrypto project, in constant time, compiled to WebAssembly; it works in the memory into
 * which the messages are decoded. The bench row stream_cpu_per_token needs this: an event takes 20 of 150 us
 * less than with GHASH in JavaScript, whose table of 28 KB has left the processor's cache before each event.
 */
import * as openssl from 'node:crypto';
import { PrivatemodeError } from '../errors.ts';
// ghash/lib.rs as WebAssembly in base64. scripts/build-ghash.ts compiles it, and CI compares the result.
import ghashModule from './ghash/module.json' with { type: 'json' };

export const IV_BYTES = 12;
export const TAG_BYTES = 16;
const BLOCK = 16; // bytes of an AES block, and of the AAD of a short message
const IV_AT = BLOCK - IV_BYTES; // offset of the iv in its block, which the AAD overwrites later
/** The most bytes of a short ciphertext. For a longer one, an OpenSSL context costs less than this GHASH. */
const SHORT_BYTES = 512;
const TOGETHER = 14; // short messages opened in one call: the module's memory has room for so many
// Without authTagLength, OpenSSL would accept tags of as few as 4 bytes.
const GCM_OPTIONS = { authTagLength: TAG_BYTES };

const internal = (message: string) => new PrivatemodeError('internal', message);

/** The SHA-256 (FIPS 180-4) of the concatenated parts, 32 bytes. */
export const sha256 = (...parts: Uint8Array[]): Uint8Array =>
  new Uint8Array(openssl.hash('sha256', Buffer.concat(parts), 'buffer'));

/** The SHA-384 (FIPS 180-4) of the concatenated parts, 48 bytes. */
export const sha384 = (...parts: Uint8Array[]): Uint8Array =>
  new Uint8Array(openssl.hash('sha384', Buffer.concat(parts), 'buffer'));

/** SHA-256 as 32 characters, one per byte. The shard key needs it once every few tokens of a prompt. */
export const sha256Latin1 = (bytes: Uint8Array): string => openssl.hash('sha256', bytes, 'latin1');

/** Compares the bytes. The time of a comparison depends on the lengths only. */
export const constantTimeEqual = (a: Uint8Array, b: Uint8Array): boolean =>
  a.length === b.length && openssl.timingSafeEqual(a, b);

/**
 * `scalar` times the base point of P-384, as 0x04 || x || y (SEC 1 2.3.3), 97 bytes. `scalar` must be public
 * (FIPS 186-5, SP 800-186 3.2.1.4). Throws unless 0 < scalar < order. Takes 1 ms; JavaScript takes 4 ms.
 */
export function multiplyBaseP384(scalar: bigint): Uint8Array {
  const ecdh = openssl.createECDH('secp384r1');
  ecdh.setPrivateKey(scalar.toString(16).padStart(96, '0'), 'hex');
  return ecdh.getPublicKey();
}

/** A message to open, in hex as received: `iv`, and `body`, which is ciphertext and tag. */
export interface SealedParts {
  readonly iv: string;
  readonly aad: Uint8Array;
  readonly body: string;
}

/** Why nothing was opened: the text is no hex of the right lengths, or a tag is wrong. */
export type OpenFailure = 'malformed' | 'not authentic';

/** The part of WebAssembly that this file uses. The types of Node leave WebAssembly out. */
declare const WebAssembly: {
  readonly Module: new (bytes: Uint8Array) => object;
  readonly Instance: new (module: object) => { readonly exports: GhashModule };
};
interface GhashModule {
  readonly memory: { readonly buffer: ArrayBuffer };
  memory_at(): number; // where the memory begins that callers may use
  /** Writes the GHASH (6.4) of `count` blocks to `out`. `key`, `blocks` and `out` are positions in memory. */
  ghash(key: number, blocks: number, count: number, out: number): void;
}
const compiled = new WebAssembly.Module(Buffer.from(ghashModule, 'base64'));
const { memory, memory_at, ghash } = new WebAssembly.Instance(compiled).exports;

const SUBKEY_AT = memory_at();
const HASH_AT = SUBKEY_AT + BLOCK;
const TEXTS_AT = HASH_AT + BLOCK;
const subkeyInUse = Buffer.from(memory.buffer, SUBKEY_AT, BLOCK);
const hashed = Buffer.from(memory.buffer, HASH_AT, BLOCK);

/** Holds AAD, ciphertext and tag of each short message. Zeros and lengths later replace the tag. */
const texts = Buffer.from(memory.buffer, TEXTS_AT, TOGETHER * (BLOCK + SHORT_BYTES + TAG_BYTES));
/** Holds for each message, at its offsets in `texts`: J0 in place of the AAD, then the counter blocks. */
const counters = Buffer.alloc(texts.length);

/** Rounds `size` up to whole blocks. */
const padded = (size: number): number => (size + BLOCK - 1) & -BLOCK;
/** The number of bytes of a ciphertext, without its tag. `body` is in hex. */
const sizeOf = (body: string): number => body.length / 2 - TAG_BYTES;
/** The number of bytes that a message takes in `texts`. */
const spanOf = (body: string): number => BLOCK + padded(body.length / 2);
const isShort = ({ aad, body }: SealedParts): boolean => aad.length === BLOCK && sizeOf(body) <= SHORT_BYTES;

/**
 * Whether the tag is right, in constant time (7.2, steps 5 to 8). T ^ CIPH(J0) must be the GHASH of AAD and
 * ciphertext, each padded with zeros to whole blocks, and of both lengths in bits. Overwrites the tag.
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

/** A key for AES-256-GCM and HMAC-SHA256, which no log and no inspection of the object shows. */
export class SecretKey {
  readonly #key: openssl.KeyObject;
  readonly #blocks: openssl.Cipheriv;
  readonly #subkey: Buffer;

  /** Wipes the bytes, so that only the key holds them. Throws `internal` unless there are 32 bytes. */
  constructor(bytes: Uint8Array) {
    this.#key = openssl.createSecretKey(bytes);
    bytes.fill(0);
    // OpenSSL would silently accept other lengths, even weaker ones.
    if (this.#key.symmetricKeySize !== 32) throw internal('the secret is not 32 bytes');
    this.#blocks = openssl.createCipheriv('aes-256-ecb', this.#key, null).setAutoPadding(false);
    this.#subkey = this.#blocks.update(Buffer.alloc(BLOCK)); // H = CIPH(0^128): 7.1, step 1; 7.2, step 2
  }

  /** The HMAC-SHA256 (RFC 2104) of the text in UTF-8, as lower-case hex. */
  hmacSha256(text: string): string {
    return openssl.createHmac('sha256', this.#key).update(text).digest('hex');
  }

  /**
   * Begins to seal one message in pieces, all but the last of whole blocks. `update` returns as many bytes as
   * it gets. After `final`, `getAuthTag` returns the tag. Throws `internal` unless the iv has 12 bytes.
   */
  seal(iv: Uint8Array, aad: Uint8Array) {
    if (iv.length !== IV_BYTES) throw internal('the iv is not 12 bytes');
    return openssl.createCipheriv('aes-256-gcm', this.#key, iv, GCM_OPTIONS).setAAD(aad);
  }

  /**
   * Opens all of these messages, or none. Each byte of a plaintext becomes one character (latin1). A few
   * short messages, such as those of an event, are decrypted only after all of them are found authentic.
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
        plaintext.fill(0); // bytes that are not authentic must not outlive this call
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
      // J0 is the iv and the counter 1 (7.2, step 3). The counter blocks follow by inc32 (6.2).
      for (let at = end, counter = 1; at < end + BLOCK + sizeOf(body); at += BLOCK, counter++) {
        texts.copy(counters, at, end + IV_AT, end + BLOCK);
        counters.writeUInt32BE(counter, at + IV_BYTES);
      }
      for (let i = 0; i < BLOCK; i++) texts[end + i] = aad[i]!;
      end += spanOf(body);
    }
    for (let i = 0; i < BLOCK; i++) subkeyInUse[i] = this.#subkey[i]!;
    const stream = this.#blocks.update(counters.subarray(0, end)); // each message's CIPH(J0) and key stream
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
