/** Messages `"id:nonce:iv:ciphertext+tag"`: AES-256-GCM, hex after the id (docs/protocol/inference.md 4). */
import { checkKey, gcmDecrypt, gcmEncryption, IV_BYTES, type SecretKey, TAG_BYTES } from '#crypto/aead';
import { AAD_BYTES, openSlots, SHORT_BYTES, type Slot, sealSlots, slots } from '#crypto/short-messages';
import { randomBytes } from '../crypto/random.ts';
import { PrivatemodeError } from '../errors.ts';

/** Shared with the attested service. */
export interface InferenceSecret {
  readonly id: string; // base64(SHA-256(HPKE public key))
  readonly key: SecretKey; // 32 bytes
}

/** Makes the message of one long plaintext, in ASCII: `head`, what `update` writes, and `final`. */
export type MessageSealer = ReturnType<typeof longSealer>;

/** `id:nonce:` of a message. Nothing compares them, but a JSON string must hold them as they stand. */
const HEAD = /^[ !#-9;-[\]-~]*:[ !#-9;-[\]-~]*:$/;

const internal = (message: string) => new PrivatemodeError('internal', message);
const malformed = () =>
  new PrivatemodeError('response_malformed', 'an encrypted value of the response is malformed');
export const notAuthentic = (message: string) => new PrivatemodeError('response_not_authentic', message);

function authentic<T>(opened: T | undefined): T {
  if (opened === undefined) throw notAuthentic('an encrypted value of the response does not authenticate');
  return opened;
}

/**
 * The cipher of one attempt: a random nonce and two counters, which authenticate a response, so the id and
 * the nonce that stand in it need not. Throws `internal` unless the key holds 32 bytes, and after 2^32
 * messages. `options`, for tests: nonce and ivs of 12 bytes, and the start of both counters.
 */
export class RequestCipher {
  /** Whether a response message came, whether it opens or not. Text in place of one does not count. */
  hasReceived = false;
  readonly #key: SecretKey;
  readonly #ivs: (() => Uint8Array) | undefined;
  readonly #prefix: string;
  readonly #first: number;
  readonly #aad = Buffer.alloc(AAD_BYTES); // the nonce, which is as long as an iv, and a number
  readonly #sentIvs: string[] = []; // in hex: a gateway could send our own messages back as a response
  #received = 0;
  #failure: unknown;
  #head: string; // of the last message: most of a response have the same one

  constructor(
    { id, key }: InferenceSecret,
    options: { nonce?: Uint8Array; ivs?: () => Uint8Array; sequence?: number } = {},
  ) {
    const { nonce = randomBytes(IV_BYTES), ivs, sequence = 0 } = options;
    checkKey(key);
    this.#key = key;
    this.#ivs = ivs;
    this.#head = `${id}:${Buffer.from(nonce).toString('hex')}:`;
    this.#prefix = `"${this.#head}`;
    this.#aad.set(nonce);
    this.#first = sequence;
  }

  /** Bytes of the sealed message, quotes included, for a plaintext of that many bytes. */
  sealedLength(plaintextBytes: number): number {
    return this.#prefix.length + 2 * (IV_BYTES + plaintextBytes + TAG_BYTES) + 2;
  }

  /** Gives messages in quotes; a long one as its sealer. Throws `internal` after a response message. */
  seal(plaintexts: readonly Uint8Array[]): (string | MessageSealer)[] {
    const messages: (string | MessageSealer)[] = [];
    for (let i = 0; i < plaintexts.length; i += slots.length)
      messages.push(...this.#sealBatch(plaintexts.slice(i, i + slots.length)));
    return messages;
  }

  /**
   * Opens the next response messages, without their quotes, in the order in which they were sealed. Returns
   * each byte as one character (latin1). If one fails, all do: throws response_malformed, or
   * response_not_authentic for a wrong tag or a message of the request; later calls throw the same.
   */
  open(messages: readonly string[]): string[] {
    if (this.#failure !== undefined) throw this.#failure;
    const opened: string[] = [];
    let filled = 0;
    const openFilled = (): void => {
      if (filled > 0) opened.push(...authentic(openSlots(this.#key, filled)));
      filled = 0;
    };
    try {
      for (const message of messages) {
        const slot = slots[filled]!;
        const body = this.#receive(message, slot);
        if (slot.size > SHORT_BYTES) {
          openFilled();
          const { iv, bytes, size, tag } = slot;
          const aad = bytes.subarray(0, AAD_BYTES);
          const plaintext = gcmDecrypt(this.#key, iv, aad, body.subarray(0, size), tag);
          opened.push(authentic(plaintext).toString('latin1'));
        } else if (++filled === slots.length) openFilled();
      }
      openFilled();
      return opened;
    } catch (thrown) {
      this.#failure = thrown;
      throw thrown;
    }
  }

  #aadFor(number: number): Buffer {
    const sequence = this.#first + number;
    if (sequence >= 2 ** 32) throw internal('the message counter is exhausted');
    this.#aad.writeUInt32LE(sequence, IV_BYTES); // all else on this wire is big-endian
    return this.#aad;
  }

  /** Decodes the next response message into the slot; a long one into the memory that is returned. */
  #receive(message: string, slot: Slot): Buffer {
    // startsWith takes six times as long
    if (message.slice(0, this.#head.length) !== this.#head) {
      const nonceAt = message.indexOf(':') + 1;
      this.#head = message.slice(0, message.indexOf(':', nonceAt) + 1);
      if (!HEAD.test(this.#head)) throw malformed();
    }
    const ivAt = this.#head.length;
    const bodyAt = ivAt + 2 * IV_BYTES + 1;
    const digits = message.length - bodyAt;
    const size = (digits >> 1) - TAG_BYTES;
    if (message[bodyAt - 1] !== ':' || digits % 2 !== 0 || size < 0) throw malformed();
    const { iv, tag, bytes } = slot;
    const isShort = size <= SHORT_BYTES;
    const body = isShort ? bytes : Buffer.allocUnsafeSlow(size + TAG_BYTES);
    const at = isShort ? AAD_BYTES : 0;
    const isHex =
      iv.write(message.slice(ivAt, bodyAt - 1), 'hex') === IV_BYTES &&
      body.write(message.slice(bodyAt), at, 'hex') === size + TAG_BYTES;
    if (!isHex) throw malformed();
    for (let i = 0; i < TAG_BYTES; i++) tag[i] = body[at + size + i]!;
    slot.size = size;
    this.hasReceived = true;
    const sent = this.#sentIvs[this.#received];
    if (sent !== undefined && sent === iv.toString('hex'))
      throw notAuthentic('the response contains a message of its own request');
    const aad = this.#aadFor(this.#received);
    for (let i = 0; i < AAD_BYTES; i++) bytes[i] = aad[i]!;
    this.#received += 1;
    return body;
  }

  /** Seals at most as many plaintexts as there are slots: the short ones together. */
  #sealBatch(plaintexts: readonly Uint8Array[]): (string | MessageSealer)[] {
    const short: Uint8Array[] = [];
    const messages = plaintexts.map((plaintext) => {
      if (this.hasReceived || this.#failure !== undefined) throw internal('sealing after the response began');
      const iv = this.#ivs?.() ?? randomBytes(IV_BYTES);
      const ivText = Buffer.from(iv).toString('hex');
      const head = `${this.#prefix}${ivText}:`;
      const aad = this.#aadFor(this.#sentIvs.length);
      this.#sentIvs.push(ivText);
      if (plaintext.length > SHORT_BYTES) return longSealer(head, gcmEncryption(this.#key, iv, aad));
      const slot = slots[short.length]!;
      slot.iv.set(iv);
      slot.bytes.set(aad);
      short.push(plaintext);
      return head;
    });
    sealSlots(this.#key, short);
    let used = 0;
    return messages.map((message) => {
      if (typeof message !== 'string') return message;
      const { bytes, size, tag } = slots[used++]!;
      return `${message}${bytes.toString('hex', AAD_BYTES, AAD_BYTES + size)}${tag.toString('hex')}"`;
    });
  }
}

function longSealer(head: string, encryption: ReturnType<typeof gcmEncryption>) {
  return {
    head, // `"id:nonce:iv:`
    /** Writes the ciphertext as hex, twice as many bytes, to `target` from `at` on. */
    update(plaintext: Uint8Array, target: Buffer, at: number): void {
      const ciphertext = encryption.update(plaintext);
      target.write(ciphertext.toString('hex'), at, 'latin1');
      releaseMemory(ciphertext);
    },
    /** Hex of the tag, and the closing quote. */
    final(): string {
      encryption.final();
      return `${encryption.getAuthTag().toString('hex')}"`;
    },
  };
}

const WORTH_RELEASING = 4 * 1024; // bytes; releasing fewer costs more than it saves
/**
 * Frees the memory of bytes that nobody reads, nor the network or the disk, which would read freed memory.
 * Left to the garbage collector, it costs a full collection (docs/hazards.md 25).
 */
export function releaseMemory({ buffer, length }: Uint8Array): void {
  if (length < WORTH_RELEASING || length !== buffer.byteLength) return;
  if (buffer instanceof ArrayBuffer) buffer.transfer(0);
}
