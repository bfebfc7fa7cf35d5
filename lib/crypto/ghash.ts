/**
 * GHASH (NIST SP 800-38D section 6.4) for messages of a few blocks: over bytes that lie in memory already, without any
 * allocation, by a table of 8 KiB per key that stays in the processor's cache. Held against @noble/ciphers by tests.
 *
 * Field elements are four 32-bit words of the block's bytes, little endian. The table is looked up by data, so the time
 * depends on it by way of the processor's cache, as that of any implementation without the processor's own instruction does.
 */
const WORDS = 4;
const NIBBLES = 32;
const VALUES = 16;

/** Products of the hash subkey: of each nibble of a block, by its place and its value. */
export type GhashTable = Int32Array;

const swapped = (word: number): number =>
  ((word & 0xff) << 24) | ((word & 0xff00) << 8) | ((word >>> 8) & 0xff00) | (word >>> 24);

/** The table for a hash subkey of 16 bytes. */
export function ghashTable(subkey: Buffer): GhashTable {
  const table = new Int32Array(NIBBLES * VALUES * WORDS);
  let [a, b, c, d] = [0, 4, 8, 12].map((at) => subkey.readInt32BE(at)) as [number, number, number, number];
  for (let bit = 0; bit < 4 * NIBBLES; bit++) {
    const at = WORDS * (VALUES * (bit >> 2) + (8 >> (bit & 3)));
    for (const [k, word] of [a, b, c, d].entries()) table[at + k] = swapped(word);
    // times x: a shift, and the reduction by 1 + x + x^2 + x^7
    const reduction = d & 1 ? 0xe1000000 : 0;
    d = (c << 31) | (d >>> 1);
    c = (b << 31) | (c >>> 1);
    b = (a << 31) | (b >>> 1);
    a = (a >>> 1) ^ reduction;
  }
  for (let place = 0; place < NIBBLES; place++) {
    for (let value = 1; value < VALUES; value++) {
      const lowest = value & -value;
      for (let k = 0; k < WORDS; k++) {
        const of = (some: number): number => WORDS * (VALUES * place + some) + k;
        table[of(value)] = table[of(lowest)]! ^ (value === lowest ? 0 : table[of(value ^ lowest)]!);
      }
    }
  }
  return table;
}

/** Where the products of the nibbles of a word begin. */
const PER_WORD = 8 * VALUES * WORDS;

/** Writes GHASH of the first `size` bytes of `bytes`, whole blocks, to `hash`: its four words. */
export function ghash(table: GhashTable, bytes: DataView, size: number, hash: Int32Array): void {
  let a = 0;
  let b = 0;
  let c = 0;
  let d = 0;
  for (let at = 0; at < size; at += 4 * WORDS) {
    const x0 = a ^ bytes.getInt32(at, true);
    const x1 = b ^ bytes.getInt32(at + 4, true);
    const x2 = c ^ bytes.getInt32(at + 8, true);
    const x3 = d ^ bytes.getInt32(at + 12, true);
    a = b = c = d = 0;
    for (let byte = 0; byte < 4; byte++) {
      const low = 8 * byte;
      const place = 2 * byte * VALUES;
      for (let k = 0; k < WORDS; k++) {
        const word = k === 0 ? x0 : k === 1 ? x1 : k === 2 ? x2 : x3;
        const first = k * PER_WORD + WORDS * (place + ((word >>> (low + 4)) & 0xf));
        const second = k * PER_WORD + WORDS * (place + VALUES + ((word >>> low) & 0xf));
        a ^= table[first]! ^ table[second]!;
        b ^= table[first + 1]! ^ table[second + 1]!;
        c ^= table[first + 2]! ^ table[second + 2]!;
        d ^= table[first + 3]! ^ table[second + 3]!;
      }
    }
  }
  hash[0] = a;
  hash[1] = b;
  hash[2] = c;
  hash[3] = d;
}
