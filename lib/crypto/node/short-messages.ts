/**
 * Opens and seals short AES-256-GCM messages several at a time (NIST SP 800-38D, sections 7.2 and 7.1). An
 * event of a stream is four messages of a few blocks each, and OpenSSL spends nearly all its time on making a
 * context for each. Here one ECB context per key encrypts the counter blocks of all messages in one call. The
 * RustCrypto project's GHASH, compiled to WebAssembly (lib/crypto/ghash), works in the memory into which the
 * messages were decoded. The bench row stream_cpu_per_token needs it: an event takes 20 of 150 us less than
 * with GHASH in JavaScript, whose table of 28 KB has left the processor's cache whenever an event comes. The
 * time of this GHASH does not depend on the data.
 */
import { type Cipheriv, createCipheriv } from 'node:crypto';
import { GHASH_MODULE } from '../ghash/module.ts';
import { checkKey, IV_BYTES, type SecretKey, TAG_BYTES } from './aead.ts';

const BLOCK = 16;
export const AAD_BYTES = BLOCK;
/**
 * Bytes of ciphertext up to which a message is short. For a longer one, a context of its own costs less than
 * this GHASH.
 */
export const SHORT_BYTES = 512;
/** The most messages that are opened or sealed at a time. */
export const SLOTS = 8;

/** Memory for the parts of one message; `size` is the number of bytes of its ciphertext. */
export type Slot = (typeof slots)[number];

interface GhashModule {
  readonly memory: { readonly buffer: ArrayBuffer };
  /** Where the memory that callers may use begins. */
  memory_at(): number;
  /**
   * Writes the GHASH (section 6.4) of `count` blocks to `out`; all parameters but `count` are positions in
   * memory.
   */
  ghash(key: number, blocks: number, count: number, out: number): void;
}

/** The part of WebAssembly that we use; the types of Node leave it out. */
declare const WebAssembly: {
  readonly Module: new (bytes: Uint8Array) => object;
  readonly Instance: new (module: object) => { readonly exports: unknown };
};

const { exports } = new WebAssembly.Instance(new WebAssembly.Module(Buffer.from(GHASH_MODULE, 'base64')));
const { memory, memory_at, ghash } = exports as GhashModule;

/** The AAD, up to `SHORT_BYTES` of ciphertext, and room for the block of lengths or for a tag. */
const SLOT_BYTES = AAD_BYTES + SHORT_BYTES + BLOCK;
const SUBKEY_AT = memory_at();
const HASH_AT = SUBKEY_AT + BLOCK;
const SLOTS_AT = HASH_AT + BLOCK;
const subkey = Buffer.from(memory.buffer, SUBKEY_AT, BLOCK);
const hash = Buffer.from(memory.buffer, HASH_AT, BLOCK);

/**
 * The messages to open next, or the messages sealed last. All keys share the slots, so a caller fills and
 * empties them in one go. They never hold plaintext.
 */
export const slots = Array.from({ length: SLOTS }, (_, k) => {
  const at = SLOTS_AT + k * SLOT_BYTES;
  const bytes = Buffer.from(memory.buffer, at, SLOT_BYTES);
  return { iv: Buffer.alloc(IV_BYTES), tag: Buffer.alloc(TAG_BYTES), bytes, at, size: 0 };
});

/**
 * Begins with a block of zeros, whose encryption is the subkey; then come the counter blocks of all messages.
 */
const blocks = Buffer.alloc(BLOCK + SLOTS * (BLOCK + SHORT_BYTES));
const blocksView = new DataView(blocks.buffer, blocks.byteOffset, blocks.length);

const contexts = new WeakMap<SecretKey, Cipheriv>();

/**
 * The ECB context of a key, the same for all its messages. Throws `internal` unless the key holds 32 bytes.
 */
function contextOf(key: SecretKey): Cipheriv {
  let context = contexts.get(key);
  if (context === undefined) {
    checkKey(key);
    context = createCipheriv('aes-256-ecb', key, null).setAutoPadding(false);
    contexts.set(key, context);
  }
  return context;
}

/** `size` bytes rounded up to whole blocks. */
const padded = (size: number): number => (size + BLOCK - 1) & -BLOCK;

/**
 * Writes J0 and the counter blocks of the ciphertext to `blocks` at `position`; returns the position after
 * them. J0 is the iv and a counter of 1 (section 7.2, step 3); inc32 gives the next counters (section 6.2).
 */
function writeCounters({ iv, size }: Slot, position: number): number {
  const a = iv.readInt32BE(0);
  const b = iv.readInt32BE(4);
  const c = iv.readInt32BE(8);
  const end = position + BLOCK + padded(size);
  for (let at = position, counter = 1; at < end; at += BLOCK, counter++) {
    blocksView.setInt32(at, a);
    blocksView.setInt32(at + 4, b);
    blocksView.setInt32(at + 8, c);
    blocksView.setInt32(at + 12, counter);
  }
  return end;
}

/**
 * Completes the input of GHASH in the slot, and returns its length in bytes. The input is AAD and ciphertext,
 * each padded with zeros to whole blocks, and the lengths of both in bits (section 7.2, steps 5 and 6).
 */
function completeHashInput({ bytes, size }: Slot): number {
  const end = AAD_BYTES + padded(size);
  for (let i = AAD_BYTES + size; i < end + BLOCK; i++) bytes[i] = 0;
  bytes[end + 7] = 8 * AAD_BYTES;
  bytes[end + 14] = size >>> 5;
  bytes[end + 15] = (8 * size) & 0xff;
  return end + BLOCK;
}

/** Computes the GHASH of the message in a slot, and leaves it in `hash`. */
const hashOf = (slot: Slot): void => ghash(SUBKEY_AT, slot.at, completeHashInput(slot) / BLOCK, HASH_AT);

/**
 * Whether the tag of the message is right: T = GHASH ^ CIPH(J0), in constant time (section 7.2, steps 6 to
 * 8). `mask` is the position of CIPH(J0) in `stream`.
 */
function isAuthentic(slot: Slot, stream: Buffer, mask: number): boolean {
  hashOf(slot);
  let difference = 0;
  for (let i = 0; i < TAG_BYTES; i++) difference |= hash[i]! ^ stream[mask + i]! ^ slot.tag[i]!;
  return difference === 0;
}

/**
 * Sets the subkey, and returns the key stream of the messages in the first `count` slots. It begins with a
 * block of zeros; then each message has its encrypted J0 and its encrypted counter blocks. Throws `internal`
 * unless the key holds 32 bytes.
 */
function keyStream(key: SecretKey, count: number): Buffer {
  let end = BLOCK;
  for (let k = 0; k < count; k++) end = writeCounters(slots[k]!, end);
  const stream = contextOf(key).update(blocks.subarray(0, end));
  stream.copy(subkey, 0, 0, BLOCK); // step 1 of section 7.1, 2 of section 7.2: H = CIPH(0^128)
  for (let i = 0; i < BLOCK; i++) stream[i] = 0; // plaintexts will come from the same memory
  return stream;
}

/**
 * Opens the messages in the first `count` slots. Returns their plaintexts in order, each byte as one
 * character (latin1). Returns undefined if any of them does not authenticate, and then computes no plaintext.
 * Throws `internal` unless the key holds 32 bytes.
 */
export function openSlots(key: SecretKey, count: number): string[] | undefined {
  const stream = keyStream(key, count);
  for (let k = 0, at = BLOCK; k < count; k++) {
    if (!isAuthentic(slots[k]!, stream, at)) return undefined;
    at += BLOCK + padded(slots[k]!.size);
  }
  for (let k = 0, at = 2 * BLOCK; k < count; k++) {
    const { bytes, size } = slots[k]!;
    // Section 7.2, step 4, and section 6.5 (GCTR): P = C ^ CIPH(counter blocks).
    for (let i = 0; i < size; i++) stream[at + i] = stream[at + i]! ^ bytes[AAD_BYTES + i]!;
    at += padded(size) + BLOCK;
  }
  const text = stream.toString('latin1');
  const plaintexts: string[] = [];
  for (let k = 0, at = 2 * BLOCK; k < count; k++) {
    const { size } = slots[k]!;
    plaintexts.push(text.slice(at, at + size));
    at += padded(size) + BLOCK;
  }
  return plaintexts;
}

/**
 * Seals these plaintexts, of at most `SHORT_BYTES` each. The first slots must hold their ivs and AAD;
 * afterwards they hold the ciphertexts and tags too. Throws `internal` unless the key holds 32 bytes.
 */
export function sealSlots(key: SecretKey, plaintexts: readonly Uint8Array[]): void {
  for (const [k, { length }] of plaintexts.entries()) slots[k]!.size = length;
  const stream = keyStream(key, plaintexts.length);
  let at = BLOCK;
  for (const [k, plaintext] of plaintexts.entries()) {
    const slot = slots[k]!;
    const { bytes, size, tag } = slot;
    const mask = at;
    at += BLOCK;
    // Section 7.1, step 3, and section 6.5 (GCTR): C = P ^ CIPH(counter blocks).
    for (let i = 0; i < size; i++) bytes[AAD_BYTES + i] = plaintext[i]! ^ stream[at + i]!;
    at += padded(size);
    hashOf(slot); // steps 4 and 5
    for (let i = 0; i < TAG_BYTES; i++) tag[i] = hash[i]! ^ stream[mask + i]!; // step 6: T = GHASH ^ CIPH(J0)
  }
}
