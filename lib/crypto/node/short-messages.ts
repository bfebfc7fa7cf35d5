/**
 * Opens short AES-256-GCM messages several at a time (NIST SP 800-38D, section 7.2). An event of a stream is four messages of
 * a few blocks each, and OpenSSL spends nearly all its time on making a context for each. Here one ECB context per key
 * encrypts the counter blocks of all messages in one call, and @noble/ciphers computes GHASH with one table per key. The bench
 * row stream_cpu_per_token needs it: 10 of 30 us less per event than with a context for each message.
 *
 * GHASH looks its table up by data, so its time depends on the data by way of the processor's cache, as in any implementation
 * without the processor's own instruction.
 */
import { type Cipheriv, createCipheriv } from 'node:crypto';
import { GHASH } from '@noble/ciphers/_polyval.js';
import { checkKey, IV_BYTES, type SecretKey, TAG_BYTES } from './aead.ts';

const BLOCK = 16;
export const AAD_BYTES = BLOCK;
/** Bytes of ciphertext up to which a message is short: beyond, a context of its own costs less than GHASH here. */
export const SHORT_BYTES = 512;
/** How many messages are opened at a time at most. */
export const SLOTS = 8;

/** Where the parts of one message are put; `size` is the number of bytes of its ciphertext. */
export type Slot = (typeof slots)[number];

const viewOf = ({ buffer, byteOffset, length }: Buffer): DataView => new DataView(buffer, byteOffset, length);

/** The messages to open next: shared by all keys, filled and opened in one go. They never hold plaintext. */
export const slots = Array.from({ length: SLOTS }, () => {
  // The AAD, up to `SHORT_BYTES` of ciphertext, and room for the block of lengths.
  const bytes = Buffer.alloc(AAD_BYTES + SHORT_BYTES + BLOCK);
  return { iv: Buffer.alloc(IV_BYTES), tag: Buffer.alloc(TAG_BYTES), bytes, view: viewOf(bytes), size: 0 };
});

const counterBlocks = Buffer.alloc(SLOTS * (BLOCK + SHORT_BYTES));
const counterView = viewOf(counterBlocks);
const hash = Buffer.alloc(BLOCK);
const hashView = viewOf(hash);

/** Bytes that noble chooses the size of its table by: from here on 512 entries, which stay in the processor's cache. */
const HASHED_BYTES = 2 ** 12;

/** GHASH (section 6.4) under one subkey for any number of messages; an instance of noble's takes one message only. */
class ReusableGhash extends GHASH {
  /** Writes GHASH of the first `size` bytes, whole blocks, to `hash`. */
  hashBlocks(blocks: DataView, size: number): void {
    this.s0 = this.s1 = this.s2 = this.s3 = 0;
    for (let at = 0; at < size; at += BLOCK) {
      this._updateBlock(
        blocks.getInt32(at, true),
        blocks.getInt32(at + 4, true),
        blocks.getInt32(at + 8, true),
        blocks.getInt32(at + 12, true),
      );
    }
    hashView.setInt32(0, this.s0, true);
    hashView.setInt32(4, this.s1, true);
    hashView.setInt32(8, this.s2, true);
    hashView.setInt32(12, this.s3, true);
  }
}

/** Wipes the table of a key that nobody holds any more. */
const unused = new FinalizationRegistry<ReusableGhash>((ghash) => ghash.destroy());
const contexts = new WeakMap<SecretKey, { readonly aes: Cipheriv; readonly ghash: ReusableGhash }>();

/** The same for every message under a key. Throws `internal` unless it holds 32 bytes. */
function contextOf(key: SecretKey) {
  const known = contexts.get(key);
  if (known !== undefined) return known;
  checkKey(key);
  const aes = createCipheriv('aes-256-ecb', key, null).setAutoPadding(false);
  const subkey = aes.update(Buffer.alloc(BLOCK)); // section 7.2, step 2: H = CIPH(0^128)
  const ghash = new ReusableGhash(subkey, HASHED_BYTES);
  subkey.fill(0);
  unused.register(key, ghash);
  const made = { aes, ghash };
  contexts.set(key, made);
  return made;
}

/** Bytes of the whole blocks that hold as many. */
const padded = (size: number): number => (size + BLOCK - 1) & -BLOCK;

/**
 * Section 7.2, step 3 (J0 is the iv and a counter of 1), and section 6.2 (inc32): writes J0 and the counter blocks of the
 * ciphertext to `position`. Returns the position after them.
 */
function writeCounters({ iv, size }: Slot, position: number): number {
  const [a, b, c] = [iv.readInt32BE(0), iv.readInt32BE(4), iv.readInt32BE(8)];
  const end = position + BLOCK + padded(size);
  for (let at = position, counter = 1; at < end; at += BLOCK, counter++) {
    counterView.setInt32(at, a);
    counterView.setInt32(at + 4, b);
    counterView.setInt32(at + 8, c);
    counterView.setInt32(at + 12, counter);
  }
  return end;
}

/**
 * Section 7.2, steps 5 and 6: the input of GHASH is AAD and ciphertext, each padded with zeros to whole blocks, and the lengths
 * of both in bits. Completes it in the slot; returns its bytes.
 */
function completeHashInput({ bytes, size }: Slot): number {
  const end = AAD_BYTES + padded(size);
  for (let i = AAD_BYTES + size; i < end + BLOCK; i++) bytes[i] = 0;
  bytes[end + 7] = 8 * AAD_BYTES;
  bytes[end + 14] = size >>> 5;
  bytes[end + 15] = (8 * size) & 0xff;
  return end + BLOCK;
}

/** Section 7.2, steps 6 to 8, in constant time: T = GHASH ^ CIPH(J0); `mask` is where the latter stands in `stream`. */
function isAuthentic(ghash: ReusableGhash, slot: Slot, stream: Buffer, mask: number): boolean {
  ghash.hashBlocks(slot.view, completeHashInput(slot));
  let difference = 0;
  for (let i = 0; i < TAG_BYTES; i++) difference |= hash[i]! ^ stream[mask + i]! ^ slot.tag[i]!;
  return difference === 0;
}

/**
 * Opens the messages in the first `count` slots. Returns their plaintexts in order, parts of one buffer, or undefined if any of
 * them does not authenticate; no plaintext is computed then. Throws `internal` unless the key holds 32 bytes.
 */
export function openSlots(key: SecretKey, count: number): Buffer[] | undefined {
  const { aes, ghash } = contextOf(key);
  let used = 0;
  for (let k = 0; k < count; k++) used = writeCounters(slots[k]!, used);
  const stream = aes.update(counterBlocks.subarray(0, used));
  for (let k = 0, at = 0; k < count; k++) {
    if (!isAuthentic(ghash, slots[k]!, stream, at)) return undefined;
    at += BLOCK + padded(slots[k]!.size);
  }
  const plaintexts: Buffer[] = [];
  for (let k = 0, at = BLOCK; k < count; k++) {
    const { bytes, size } = slots[k]!;
    // Section 7.2, step 4, and section 6.5 (GCTR): P = C ^ CIPH(counter blocks).
    for (let i = 0; i < size; i++) stream[at + i] = stream[at + i]! ^ bytes[AAD_BYTES + i]!;
    plaintexts.push(stream.subarray(at, at + size));
    at += padded(size) + BLOCK;
  }
  return plaintexts;
}
