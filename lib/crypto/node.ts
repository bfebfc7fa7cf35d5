/**
 * Cryptography by OpenSSL, by way of node:crypto. ./portable.ts is its twin where that is absent; `#crypto`
 * is one of them.
 *
 * AES-256-GCM (NIST SP 800-38D) has 12-byte ivs and 16-byte tags only. An event of a stream is four messages
 * of a few blocks each, and OpenSSL spends nearly all its time on making a context for each. So one ECB
 * context per key encrypts the counter blocks of short messages, of several to open in one call, and the
 * RustCrypto project's GHASH, compiled to WebAssembly, works in the memory into which they are decoded. The
 * bench row stream_cpu_per_token needs it: an event takes 20 of 150 us less than with GHASH in JavaScript,
 * whose table of 28 KB has left the processor's cache whenever an event comes.
 */
import {
  type Cipheriv,
  createCipheriv,
  createDecipheriv,
  createECDH,
  createHmac,
  createSecretKey,
  hash,
  type KeyObject,
  timingSafeEqual,
} from 'node:crypto';
import { PrivatemodeError } from '../errors.ts';
import { GHASH_MODULE } from './ghash/module.ts';

const KEY_BYTES = 32;
export const IV_BYTES = 12;
export const TAG_BYTES = 16;
const BLOCK = 16;
const AAD_BYTES = BLOCK; // of a short message
/** Up to that many bytes of plaintext, a context of its own costs a message more than this GHASH. */
export const SHORT_BYTES = 512;
const SLOTS = 8; // short messages that are opened at a time; the memory of the module has room for 14
// Without authTagLength, OpenSSL would accept tags of 4 bytes and more.
const GCM_OPTIONS = { authTagLength: TAG_BYTES };

const internal = (message: string) => new PrivatemodeError('internal', message);

/** SHA-256 (FIPS 180-4) over the concatenation of the parts: 32 bytes. */
export const sha256 = (...parts: Uint8Array[]): Uint8Array =>
  new Uint8Array(hash('sha256', Buffer.concat(parts), 'buffer'));

/** SHA-384 (FIPS 180-4) over the concatenation of the parts: 48 bytes. */
export const sha384 = (...parts: Uint8Array[]): Uint8Array =>
  new Uint8Array(hash('sha384', Buffer.concat(parts), 'buffer'));

/** SHA-256 as 32 characters, one per byte: the shard key needs it once every few tokens of a prompt. */
export const sha256Latin1 = (bytes: Uint8Array): string => hash('sha256', bytes, 'latin1');

/** Whether both hold the same bytes, in time that depends on their lengths only. */
export const constantTimeEqual = (a: Uint8Array, b: Uint8Array): boolean =>
  a.length === b.length && timingSafeEqual(a, b);

/**
 * `scalar` times the base point of P-384 as 0x04 || x || y (SEC 1 2.3.3), 97 bytes; for public data only
 * (FIPS 186-5, SP 800-186 3.2.1.4). Throws unless 0 < scalar < order. Takes 1 ms, JavaScript 4.
 */
export function multiplyBaseP384(scalar: bigint): Uint8Array {
  const ecdh = createECDH('secp384r1');
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
  readonly Instance: new (module: object) => { readonly exports: unknown };
};
interface GhashModule {
  readonly memory: { readonly buffer: ArrayBuffer };
  memory_at(): number; // where the memory that callers may use begins
  /** Writes the GHASH (6.4) of `count` blocks to `out`; the others are positions in memory, too. */
  ghash(key: number, blocks: number, count: number, out: number): void;
}
const { exports } = new WebAssembly.Instance(new WebAssembly.Module(Buffer.from(GHASH_MODULE, 'base64')));
const { memory, memory_at, ghash } = exports as GhashModule;

const SUBKEY_AT = memory_at();
const HASH_AT = SUBKEY_AT + BLOCK;
const subkeyInUse = Buffer.from(memory.buffer, SUBKEY_AT, BLOCK);
const hashed = Buffer.from(memory.buffer, HASH_AT, BLOCK);

/** Each for one short message of `size` bytes: its AAD, ciphertext, and tag or block of lengths. */
const SLOT_BYTES = AAD_BYTES + SHORT_BYTES + BLOCK;
const slots = Array.from({ length: SLOTS }, (_, k) => {
  const at = HASH_AT + BLOCK + k * SLOT_BYTES;
  return { at, bytes: Buffer.from(memory.buffer, at, SLOT_BYTES), tag: Buffer.alloc(TAG_BYTES), size: 0 };
});
type Slot = (typeof slots)[number];

/** Per message J0, then the counter blocks of its ciphertext. */
const counters = Buffer.alloc(SLOTS * (BLOCK + SHORT_BYTES));
const countersView = new DataView(counters.buffer, counters.byteOffset, counters.length);

/** `size` bytes rounded up to whole blocks. */
const padded = (size: number): number => (size + BLOCK - 1) & -BLOCK;

/**
 * Completes J0, the iv at `position` and a counter of 1 (7.2, step 3), and writes the counter blocks for
 * `size` bytes behind it, by inc32 (6.2). Returns the position after them.
 */
function writeCounters(position: number, size: number): number {
  const a = countersView.getInt32(position);
  const b = countersView.getInt32(position + 4);
  const c = countersView.getInt32(position + 8);
  const end = position + BLOCK + padded(size);
  for (let at = position, counter = 1; at < end; at += BLOCK, counter++) {
    countersView.setInt32(at, a);
    countersView.setInt32(at + 4, b);
    countersView.setInt32(at + 8, c);
    countersView.setInt32(at + 12, counter);
  }
  return end;
}

/**
 * Leaves the GHASH of a message in `hashed`: of AAD and ciphertext, each padded with zeros to whole blocks,
 * and the lengths of both in bits (7.1 and 7.2, steps 4 to 6).
 */
function hashSlot({ bytes, size, at }: Slot): void {
  const end = AAD_BYTES + padded(size);
  for (let i = AAD_BYTES + size; i < end + BLOCK; i++) bytes[i] = 0;
  bytes[end + 7] = 8 * AAD_BYTES;
  bytes[end + 14] = size >>> 5;
  bytes[end + 15] = (8 * size) & 0xff;
  ghash(SUBKEY_AT, at, end / BLOCK + 1, HASH_AT);
}

/**
 * Whether the tag of the message is T = GHASH ^ CIPH(J0), in constant time (7.2, steps 6 to 8). CIPH(J0)
 * stands at `mask` in `stream`.
 */
function isAuthentic(slot: Slot, stream: Buffer, mask: number): boolean {
  hashSlot(slot);
  let difference = 0;
  for (let i = 0; i < TAG_BYTES; i++) difference |= hashed[i]! ^ stream[mask + i]! ^ slot.tag[i]!;
  return difference === 0;
}

const sizeOf = ({ body }: SealedParts): number => body.length / 2 - TAG_BYTES;
const isShort = (message: SealedParts): boolean =>
  sizeOf(message) <= SHORT_BYTES && message.aad.length === AAD_BYTES;

/** A key for AES-256-GCM and HMAC-SHA256, which no log and no inspection shows. */
export class SecretKey {
  readonly #key: KeyObject;
  readonly #blocks: Cipheriv;
  readonly #subkey: Buffer;

  /** Wipes the bytes, so that only the key holds them. Throws `internal` unless there are 32. */
  constructor(bytes: Uint8Array) {
    this.#key = createSecretKey(bytes);
    bytes.fill(0);
    // OpenSSL would silently take other lengths, weaker ones too.
    if (this.#key.symmetricKeySize !== KEY_BYTES) throw internal('the secret is not 32 bytes');
    this.#blocks = createCipheriv('aes-256-ecb', this.#key, null).setAutoPadding(false);
    this.#subkey = this.#blocks.update(Buffer.alloc(BLOCK)); // H = CIPH(0^128): 7.1, step 1; 7.2, step 2
  }

  /** HMAC-SHA256 (RFC 2104) of the text's UTF-8, in lower-case hex. */
  hmacSha256(text: string): string {
    return createHmac('sha256', this.#key).update(text).digest('hex');
  }

  /**
   * Begins to seal one message, in pieces of whole blocks and a last one: `update` returns as many bytes as
   * it is given; after `final`, `getAuthTag` returns the tag. Throws `internal` unless the iv is 12 bytes.
   */
  sealLong(iv: Uint8Array, aad: Uint8Array) {
    if (iv.length !== IV_BYTES) throw internal('the iv is not 12 bytes');
    return createCipheriv('aes-256-gcm', this.#key, iv, GCM_OPTIONS).setAAD(aad);
  }

  /**
   * Seals at most SHORT_BYTES: ciphertext and tag in hex. Throws `internal` for a longer plaintext, and
   * unless the iv is 12 bytes and the AAD 16.
   */
  sealShort(iv: Uint8Array, aad: Uint8Array, plaintext: Uint8Array): string {
    const size = plaintext.length;
    if (iv.length !== IV_BYTES || aad.length !== AAD_BYTES || size > SHORT_BYTES)
      throw internal('this is no short message');
    const slot = slots[0]!;
    const { bytes } = slot;
    slot.size = size;
    counters.set(iv);
    bytes.set(aad);
    const stream = this.#encryptCounters(writeCounters(0, size));
    // 7.1, step 3, and 6.5 (GCTR): C = P ^ CIPH(counter blocks).
    for (let i = 0; i < size; i++) bytes[AAD_BYTES + i] = plaintext[i]! ^ stream[BLOCK + i]!;
    hashSlot(slot);
    const end = AAD_BYTES + size;
    for (let i = 0; i < TAG_BYTES; i++) bytes[end + i] = hashed[i]! ^ stream[i]!; // step 6: GHASH ^ CIPH(J0)
    return bytes.toString('hex', AAD_BYTES, end + TAG_BYTES);
  }

  /**
   * Opens these messages, all or none: each byte of a plaintext as one character (latin1). Of short ones that
   * follow each other, up to 8, no plaintext is computed before all are authentic.
   */
  open(messages: readonly SealedParts[]): string[] | OpenFailure {
    const opened: string[] = [];
    for (let from = 0, to = 0; from < messages.length; from = to) {
      while (to < messages.length && to - from < SLOTS && isShort(messages[to]!)) to++;
      const failure =
        to > from ? this.#openShort(messages, from, to, opened) : this.#openLong(messages[to++]!, opened);
      if (failure !== undefined) return failure;
    }
    return opened;
  }

  #openLong(message: SealedParts, opened: string[]): OpenFailure | undefined {
    const size = sizeOf(message);
    const [iv, body] = [Buffer.from(message.iv, 'hex'), Buffer.from(message.body, 'hex')];
    const isHex = 2 * iv.length === message.iv.length && 2 * body.length === message.body.length;
    if (!isHex || iv.length !== IV_BYTES || size < 0) return 'malformed';
    const decipher = createDecipheriv('aes-256-gcm', this.#key, iv, GCM_OPTIONS)
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
    return undefined;
  }

  #openShort(
    messages: readonly SealedParts[],
    from: number,
    to: number,
    opened: string[],
  ): OpenFailure | undefined {
    const count = to - from;
    let end = 0;
    for (let k = 0; k < count; k++) {
      const message = messages[from + k]!;
      const slot = slots[k]!;
      const { bytes, tag } = slot;
      const size = sizeOf(message);
      const isHex =
        message.iv.length === 2 * IV_BYTES &&
        counters.write(message.iv, end, 'hex') === IV_BYTES &&
        bytes.write(message.body, AAD_BYTES, 'hex') === size + TAG_BYTES;
      if (!isHex || size < 0) return 'malformed';
      for (let i = 0; i < TAG_BYTES; i++) tag[i] = bytes[AAD_BYTES + size + i]!;
      for (let i = 0; i < AAD_BYTES; i++) bytes[i] = message.aad[i]!;
      slot.size = size;
      end = writeCounters(end, size);
    }
    const stream = this.#encryptCounters(end);
    for (let k = 0, at = 0; k < count; k++) {
      if (!isAuthentic(slots[k]!, stream, at)) return 'not authentic';
      at += BLOCK + padded(slots[k]!.size);
    }
    for (let k = 0, at = BLOCK; k < count; k++) {
      const { bytes, size } = slots[k]!;
      // 7.2, step 4, and 6.5 (GCTR): P = C ^ CIPH(counter blocks).
      for (let i = 0; i < size; i++) stream[at + i] = stream[at + i]! ^ bytes[AAD_BYTES + i]!;
      at += padded(size) + BLOCK;
    }
    const text = stream.toString('latin1');
    for (let k = 0, at = BLOCK; k < count; k++) {
      const { size } = slots[k]!;
      opened.push(text.slice(at, at + size));
      at += padded(size) + BLOCK;
    }
    return undefined;
  }

  /** The key stream of the first `end` bytes of `counters`; from here on the module hashes under this key. */
  #encryptCounters(end: number): Buffer {
    for (let i = 0; i < BLOCK; i++) subkeyInUse[i] = this.#subkey[i]!;
    return this.#blocks.update(counters.subarray(0, end));
  }
}
