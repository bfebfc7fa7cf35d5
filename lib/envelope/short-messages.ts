/**
 * Opens short AES-256-GCM messages several at a time (NIST SP 800-38D section 7.2). An event of a stream is four messages of
 * a few blocks each, and OpenSSL spends nearly all its time on making a context for each. Here one context per key
 * encrypts the counter blocks of all of them in one call, and GHASH goes by a table that is made once per key: a third of
 * the time. Held against both engines of `aead.ts` by tests.
 */
import { type Cipheriv, createCipheriv, type KeyObject } from 'node:crypto';
import { checkKey, IV_BYTES, TAG_BYTES } from '../crypto/aead.ts';
import { type GhashTable, ghash, ghashTable } from '../crypto/ghash.ts';

const BLOCK = 16;
/** Bytes of ciphertext up to which a message is short: beyond, a context of its own costs less than GHASH here. */
export const SHORT_BYTES = 512;
/** How many messages are opened at a time at most. */
export const SLOTS = 8;

/** Where the parts of one message are put. */
export interface Slot {
  readonly iv: Buffer;
  readonly tag: Buffer;
  /** 16 bytes of AAD, then `SHORT_BYTES` for ciphertext. */
  readonly bytes: Buffer;
  /** Bytes of ciphertext. */
  size: number;
}

export const AAD_BYTES = BLOCK;

/**
 * The places for messages that are being opened: shared by all keys, filled and opened in one go. They hold ciphertext
 * only.
 */
export const slots: readonly Slot[] = Array.from({ length: SLOTS }, () => ({
  iv: Buffer.alloc(IV_BYTES),
  tag: Buffer.alloc(TAG_BYTES),
  bytes: Buffer.alloc(BLOCK + SHORT_BYTES + BLOCK),
  size: 0,
}));

const viewOf = ({ buffer, byteOffset, length }: Buffer): DataView => new DataView(buffer, byteOffset, length);
const ivViews = slots.map(({ iv }) => viewOf(iv));
const byteViews = slots.map(({ bytes }) => viewOf(bytes));

export interface ShortMessages {
  /**
   * Opens what stands in the first `count` slots. Returns the plaintexts in their order, parts of one buffer, or
   * undefined where any of them does not authenticate; no plaintext is computed then.
   */
  open(count: number): Buffer[] | undefined;
}

/** Bytes of the whole blocks that hold as many. */
const padded = (size: number): number => (size + BLOCK - 1) & -BLOCK;

const counterBlocks = Buffer.alloc(SLOTS * (BLOCK + SHORT_BYTES));
const counterView = viewOf(counterBlocks);
const hash = new Int32Array(4);

/** The counter blocks of a message, J0 and those after it, at `position`; returns the position after them. */
function writeCounters(iv: DataView, size: number, position: number): number {
  const [a, b, c] = [iv.getInt32(0), iv.getInt32(4), iv.getInt32(8)];
  const end = position + BLOCK + padded(size);
  for (let at = position, counter = 1; at < end; at += BLOCK, counter++) {
    counterView.setInt32(at, a);
    counterView.setInt32(at + 4, b);
    counterView.setInt32(at + 8, c);
    counterView.setInt32(at + 12, counter);
  }
  return end;
}

/** Completes what GHASH is taken of: AAD, ciphertext padded to whole blocks, the bits of both. Returns its bytes. */
function complete({ bytes, size }: Slot): number {
  const end = BLOCK + padded(size);
  for (let i = BLOCK + size; i < end + BLOCK; i++) bytes[i] = 0;
  bytes[end + 7] = 8 * AAD_BYTES;
  bytes[end + 14] = size >>> 5;
  bytes[end + 15] = (8 * size) & 0xff;
  return end + BLOCK;
}

/** Whether the tag in slot `k` is right; `mask` is where its encrypted J0 stands in `stream`. */
function isAuthentic(table: GhashTable, k: number, stream: Buffer, mask: number): boolean {
  const slot = slots[k]!;
  ghash(table, byteViews[k]!, complete(slot), hash);
  let difference = 0;
  for (let i = 0; i < TAG_BYTES; i++) {
    difference |= ((hash[i >> 2]! >>> (8 * (i & 3))) & 0xff) ^ stream[mask + i]! ^ slot.tag[i]!;
  }
  return difference === 0;
}

/** Wipes the table of a key that nobody holds any more. */
const unused = new FinalizationRegistry<GhashTable>((table) => table.fill(0));
const known = new WeakMap<KeyObject, ShortMessages>();

/** For an AES-256 key, the same for every request under it. Throws `internal` where it does not hold 32 bytes. */
export function shortMessages(key: KeyObject): ShortMessages {
  let made = known.get(key);
  if (made === undefined) {
    made = createShortMessages(key);
    known.set(key, made);
  }
  return made;
}

function createShortMessages(key: KeyObject): ShortMessages {
  checkKey(key);
  const aes: Cipheriv = createCipheriv('aes-256-ecb', key, null).setAutoPadding(false);
  const subkey = aes.update(Buffer.alloc(BLOCK));
  const table = ghashTable(subkey);
  subkey.fill(0);
  unused.register(key, table);

  return {
    open(count) {
      let used = 0;
      for (let k = 0; k < count; k++) used = writeCounters(ivViews[k]!, slots[k]!.size, used);
      const stream = aes.update(counterBlocks.subarray(0, used));
      let position = 0;
      for (let k = 0; k < count; k++) {
        if (!isAuthentic(table, k, stream, position)) return undefined;
        position += BLOCK + padded(slots[k]!.size);
      }
      const plaintexts: Buffer[] = [];
      position = BLOCK;
      for (let k = 0; k < count; k++) {
        const { bytes, size } = slots[k]!;
        for (let i = 0; i < size; i++) stream[position + i] = stream[position + i]! ^ bytes[BLOCK + i]!;
        plaintexts.push(stream.subarray(position, position + size));
        position += padded(size) + BLOCK;
      }
      return plaintexts;
    },
  };
}
