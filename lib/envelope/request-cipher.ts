import type { KeyObject } from 'node:crypto';

/**
 * The secret shared with the attested service (inference.md section 10).
 * `id` is base64(SHA-256(HPKE public key)); `key` holds the 32 secret bytes.
 */
export interface InferenceSecret {
  readonly id: string;
  readonly key: KeyObject;
}

/** Produces one sealed message piece by piece; the pieces concatenate to the message with its quotes. */
export interface MessageSealer {
  /** `"id:nonce:iv:` as ASCII bytes. */
  head(): Uint8Array;
  /** Lower-case hex of the ciphertext of `plaintext`, exactly twice as long. */
  update(plaintext: Uint8Array): Uint8Array;
  /** Hex of the tag, and the closing quote. */
  final(): Uint8Array;
}

/**
 * One attempt of one request: a fresh nonce and the two sequence counters (inference.md section 4).
 * Nothing outside this room knows how a message is built.
 */
export interface RequestCipher {
  readonly secretId: string;
  /** Bytes of the sealed message, quotes included, for a plaintext of that many bytes. */
  sealedLength(plaintextBytes: number): number;
  /** Starts the next request message. Throws once a response message was opened. */
  seal(): MessageSealer;
  /**
   * Opens the next response message: its text with or without the surrounding quotes, as latin1.
   * Throws response_malformed or response_not_authentic; after a failure every call throws.
   */
  open(message: string): Buffer;
}
