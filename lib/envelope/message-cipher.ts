/** Messages `"id:nonce:iv:ciphertext+tag"`: AES-256-GCM, hex after the id (docs/protocol/inference.md 4). */
import { IV_BYTES, type SealedParts, type SecretKey, SHORT_BYTES, TAG_BYTES } from '#crypto';
import { randomBytes } from '../crypto/random.ts';
import { PrivatemodeError } from '../errors.ts';

/** The secret that is shared with the attested service. */
export interface InferenceSecret {
  readonly id: string; // base64 of the SHA-256 of the HPKE public key
  readonly key: SecretKey; // an AES key of 32 bytes
}

/** Makes the message of a long plaintext in three parts of ASCII: `head`, what `update` writes, `final`. */
export type MessageSealer = ReturnType<typeof sealerOf>;

/** The start `id:nonce:` of a message, with any values that a JSON string can hold without escapes. */
const HEAD = /^[ !#-9;-[\]-~]*:[ !#-9;-[\]-~]*:$/;

const internal = (message: string) => new PrivatemodeError('internal', message);
const malformed = () =>
  new PrivatemodeError('response_malformed', 'an encrypted value of the response is malformed');
export const notAuthentic = (message: string) => new PrivatemodeError('response_not_authentic', message);

/**
 * The cipher of one attempt. The cipher's random nonce and two counters authenticate a response, so the id
 * and the nonce that a response states are not checked. Throws `internal` after 2^32 messages. `options` are
 * for tests. They set a nonce and ivs of 12 bytes, and the start of both counters.
 */
export class RequestCipher {
  /** Whether an encrypted message has arrived. One that fails to decrypt counts; other text does not. */
  hasReceived = false;
  hasOpened = false; // whether a message of the response has authenticated
  readonly #key: SecretKey;
  readonly #ivs: (() => Uint8Array) | undefined;
  readonly #prefix: string;
  readonly #first: number;
  readonly #aad = Buffer.alloc(IV_BYTES + 4); // the nonce (as long as an iv), then the number of a message
  readonly #sentIvs: string[] = []; // in hex; a gateway could send our messages back as a response
  #received = 0;
  #failure: unknown;
  #head: string; // `id:nonce:` of the last message; most messages of a response share it

  constructor(
    { id, key }: InferenceSecret,
    options: { nonce?: Uint8Array; ivs?: () => Uint8Array; sequence?: number } = {},
  ) {
    const { nonce = randomBytes(IV_BYTES), ivs, sequence = 0 } = options;
    this.#key = key;
    this.#ivs = ivs;
    this.#head = `${id}:${Buffer.from(nonce).toString('hex')}:`;
    this.#prefix = `"${this.#head}`;
    this.#aad.set(nonce);
    this.#first = sequence;
  }

  /** The length of the message in bytes, quotes included, for a plaintext of this many bytes. */
  sealedLength(plaintextBytes: number): number {
    return this.#prefix.length + 2 * (IV_BYTES + plaintextBytes + TAG_BYTES) + 2;
  }

  /** Returns messages in quotes, or sealers for long ones. Throws `internal` once a response arrived. */
  seal(plaintexts: readonly Uint8Array[]): (string | MessageSealer)[] {
    return plaintexts.map((plaintext) => {
      if (this.hasReceived || this.#failure !== undefined) throw internal('sealing after the response began');
      const iv = this.#ivs?.() ?? randomBytes(IV_BYTES);
      const ivText = Buffer.from(iv).toString('hex');
      const head = `${this.#prefix}${ivText}:`;
      const aad = this.#aadFor(this.#sentIvs.length);
      this.#sentIvs.push(ivText);
      if (plaintext.length > SHORT_BYTES) return sealerOf(head, this.#key.seal(iv, aad));
      return `${head}${this.#key.sealShort(iv, aad, plaintext)}"`;
    });
  }

  /**
   * Opens the next response messages, given without quotes, in the order in which they were sealed. Returns
   * plaintexts whose characters are bytes (latin1). If a message has a wrong tag, or is a message of the
   * request, the call throws response_not_authentic. A malformed message throws response_malformed. Later
   * calls throw the same error.
   */
  open(messages: readonly string[]): string[] {
    if (this.#failure !== undefined) throw this.#failure;
    try {
      const opened = this.#key.open(messages.map((message) => this.#receive(message)));
      if (opened === 'malformed') throw malformed();
      this.hasReceived ||= messages.length > 0;
      if (typeof opened === 'string')
        throw notAuthentic('an encrypted value of the response does not authenticate');
      this.hasOpened ||= messages.length > 0;
      return opened;
    } catch (thrown) {
      this.#failure = thrown;
      throw thrown;
    }
  }

  #aadFor(number: number): Uint8Array {
    const sequence = this.#first + number;
    if (sequence >= 2 ** 32) throw internal('the message counter is exhausted');
    this.#aad.writeUInt32LE(sequence, IV_BYTES); // little-endian, unlike all other numbers of the protocol
    return new Uint8Array(this.#aad);
  }

  #receive(message: string): SealedParts {
    // `startsWith` would take six times as long as this comparison.
    if (message.slice(0, this.#head.length) !== this.#head) {
      const nonceAt = message.indexOf(':') + 1;
      this.#head = message.slice(0, message.indexOf(':', nonceAt) + 1);
      if (!HEAD.test(this.#head)) throw malformed();
    }
    const ivAt = this.#head.length;
    const bodyAt = ivAt + 2 * IV_BYTES + 1;
    if (message[bodyAt - 1] !== ':') throw malformed();
    const iv = message.slice(ivAt, bodyAt - 1);
    const sent = this.#sentIvs[this.#received];
    if (sent !== undefined && sent === iv.toLowerCase()) {
      this.hasReceived = true;
      throw notAuthentic('the response contains a message of its own request');
    }
    const aad = this.#aadFor(this.#received++);
    return { iv, aad, body: message.slice(bodyAt) };
  }
}

function sealerOf(head: string, encryption: ReturnType<SecretKey['seal']>) {
  return {
    head, // the beginning `"id:nonce:iv:`
    /** Writes the ciphertext as hex, two bytes for each byte, to `target` from `at` on. */
    update(plaintext: Uint8Array, target: Buffer, at: number): void {
      const ciphertext = encryption.update(plaintext);
      target.write(ciphertext.toString('hex'), at, 'latin1');
      releaseMemory(ciphertext);
    },
    final(): string {
      encryption.final();
      return `${encryption.getAuthTag().toString('hex')}"`;
    },
  };
}

const WORTH_RELEASING = 4 * 1024; // bytes; freeing fewer bytes costs more than the memory is worth
/**
 * Frees the memory of bytes at once, because otherwise it stays until a full collection (docs/architecture.md
 * H25). No code and no pending write to network or disk may still need the bytes.
 */
export function releaseMemory({ buffer, length }: Uint8Array): void {
  if (length < WORTH_RELEASING || length !== buffer.byteLength) return;
  if (buffer instanceof ArrayBuffer) buffer.transfer(0);
}
