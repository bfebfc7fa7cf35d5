/**
 * Opens short AES-256-GCM messages several at a time (NIST SP 800-38D section 7.2). An event of a stream is four messages of
 * a few blocks each, and OpenSSL spends nearly all its time on making a context for each. Here one context per key
 * encrypts the counter blocks of all of them in one call, and the authentication is GHASH of @noble/ciphers under a
 * table that is made once per key: a third of the time, verified against both engines of `aead.ts`.
 *
 * GHASH looks its table up by bytes of the ciphertext, so its time depends on them by way of the processor's cache,
 * as that of any implementation in JavaScript does; the AES itself stays in OpenSSL.
 */
import { type Cipheriv, createCipheriv, type KeyObject } from 'node:crypto';
import { GHASH } from '@noble/ciphers/_polyval.js';
import { checkKey, IV_BYTES, TAG_BYTES } from './aead.ts';

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

export interface ShortMessages {
  /**
   * Opens what stands in the first `count` slots. Returns the plaintexts in their order, parts of one buffer, or
   * undefined where any of them does not authenticate; no plaintext is computed then.
   */
  open(count: number): Buffer[] | undefined;
}

const blocksOf = (size: number): number => Math.ceil(size / BLOCK);

const counterBlocks = Buffer.alloc(SLOTS * BLOCK * (1 + blocksOf(SHORT_BYTES)));
const hash = new Uint8Array(BLOCK);

/** The counter blocks of one message, J0 and those after it, at `position`; returns the position after them. */
function writeCounters({ iv, size }: Slot, position: number): number {
  let at = position;
  for (let counter = 1; counter <= 1 + blocksOf(size); counter++) {
    for (let i = 0; i < IV_BYTES; i++) counterBlocks[at + i] = iv[i]!;
    counterBlocks[at + 12] = counterBlocks[at + 13] = 0; // fewer than 2^16 blocks
    counterBlocks[at + 14] = counter >>> 8;
    counterBlocks[at + 15] = counter & 0xff;
    at += BLOCK;
  }
  return at;
}

/** What GHASH is taken of: AAD, ciphertext padded to whole blocks, the bits of both. */
function authenticated({ bytes, size }: Slot): Buffer {
  const end = BLOCK * (1 + blocksOf(size));
  bytes.fill(0, BLOCK + size, end + BLOCK);
  bytes[end + 7] = 8 * AAD_BYTES;
  bytes[end + 14] = size >>> 5;
  bytes[end + 15] = (8 * size) & 0xff;
  return bytes.subarray(0, end + BLOCK);
}

/** Wipes the table of a key that nobody holds any more. */
const unused = new FinalizationRegistry<GHASH>((keyed) => keyed.destroy());
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

/** The hint makes the largest table, which is the fastest: 4,096 entries. */
const MANY_BYTES = 2 ** 20;

function createShortMessages(key: KeyObject): ShortMessages {
  checkKey(key);
  const aes: Cipheriv = createCipheriv('aes-256-ecb', key, null).setAutoPadding(false);
  const subkey = aes.update(Buffer.alloc(BLOCK));
  const keyed = new GHASH(subkey, MANY_BYTES);
  subkey.fill(0);
  unused.register(key, keyed);

  /** Whether the tag of a message is right; `mask` is where its encrypted J0 stands in `stream`. */
  const isAuthentic = (slot: Slot, stream: Buffer, mask: number): boolean => {
    const message = Object.create(keyed) as GHASH; // the table of the key, a state of its own
    message.update(authenticated(slot));
    message.digestInto(hash);
    let difference = 0;
    for (let i = 0; i < TAG_BYTES; i++) difference |= hash[i]! ^ stream[mask + i]! ^ slot.tag[i]!;
    return difference === 0;
  };

  return {
    open(count) {
      let used = 0;
      for (let k = 0; k < count; k++) used = writeCounters(slots[k]!, used);
      const stream = aes.update(counterBlocks.subarray(0, used));
      let position = 0;
      for (let k = 0; k < count; k++) {
        const slot = slots[k]!;
        if (!isAuthentic(slot, stream, position)) return undefined;
        position += BLOCK * (1 + blocksOf(slot.size));
      }
      const plaintexts: Buffer[] = [];
      position = 0;
      for (let k = 0; k < count; k++) {
        const { bytes, size } = slots[k]!;
        const start = position + BLOCK;
        for (let i = 0; i < size; i++) stream[start + i] = stream[start + i]! ^ bytes[BLOCK + i]!;
        plaintexts.push(stream.subarray(start, start + size));
        position = start + BLOCK * blocksOf(size);
      }
      return plaintexts;
    },
  };
}
