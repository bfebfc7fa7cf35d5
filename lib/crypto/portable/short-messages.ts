/**
 * Opens and seals short AES-256-GCM messages one by one where node:crypto is absent: the twin of
 * ../node/short-messages.ts.
 */
import { gcmDecrypt, gcmEncryption, IV_BYTES, type SecretKey, TAG_BYTES } from './aead.ts';

export const AAD_BYTES = 16;
/** Bytes of ciphertext up to which a message is short. */
export const SHORT_BYTES = 512;
/** The most messages that are opened or sealed at a time. */
export const SLOTS = 8;

/** Memory for the parts of one message; `size` is the number of bytes of its ciphertext. */
export type Slot = (typeof slots)[number];

/**
 * The messages to open next, or the messages sealed last. All keys share the slots, so a caller fills and
 * empties them in one go. They never hold plaintext.
 */
export const slots = Array.from({ length: SLOTS }, () => ({
  iv: Buffer.alloc(IV_BYTES),
  tag: Buffer.alloc(TAG_BYTES),
  /** The AAD, up to `SHORT_BYTES` of ciphertext, and room for a tag. */
  bytes: Buffer.alloc(AAD_BYTES + SHORT_BYTES + TAG_BYTES),
  size: 0,
}));

/**
 * Opens the messages in the first `count` slots. Returns their plaintexts in order, each byte as one
 * character (latin1), or undefined if any of them does not authenticate. Throws `internal` unless the key
 * holds 32 bytes.
 */
export function openSlots(key: SecretKey, count: number): string[] | undefined {
  const opened: string[] = [];
  for (const { iv, tag, bytes, size } of slots.slice(0, count)) {
    const [aad, ciphertext] = [bytes.subarray(0, AAD_BYTES), bytes.subarray(AAD_BYTES, AAD_BYTES + size)];
    const plaintext = gcmDecrypt(key, iv, aad, ciphertext, tag);
    if (plaintext === undefined) return undefined;
    opened.push(plaintext.toString('latin1'));
  }
  return opened;
}

/**
 * Seals these plaintexts, of at most `SHORT_BYTES` each. The first slots must hold their ivs and AAD;
 * afterwards they hold the ciphertexts and tags too. Throws `internal` unless the key holds 32 bytes.
 */
export function sealSlots(key: SecretKey, plaintexts: readonly Uint8Array[]): void {
  for (const [k, plaintext] of plaintexts.entries()) {
    const slot = slots[k]!;
    const encryption = gcmEncryption(key, slot.iv, slot.bytes.subarray(0, AAD_BYTES));
    slot.bytes.set(encryption.update(plaintext), AAD_BYTES);
    encryption.final();
    slot.tag.set(encryption.getAuthTag());
    slot.size = plaintext.length;
  }
}
