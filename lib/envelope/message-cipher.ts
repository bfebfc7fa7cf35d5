/**
 * Seals and opens messages of the form `"id:nonce:iv:ciphertext+tag"` (docs/protocol/inference.md, section
 * 4): AES-256-GCM, with nonce, iv and ciphertext+tag in hex. An attempt has one random nonce and two sequence
 * counters; each message has an iv of its own.
 */
import { checkKey, gcmDecrypt, gcmEncryption, IV_BYTES, type SecretKey, TAG_BYTES } from '#crypto/aead';
import {
  AAD_BYTES,
  openSlots,
  SHORT_BYTES,
  SLOTS,
  type Slot,
  sealSlots,
  slots,
} from '#crypto/short-messages';
import { randomBytes } from '../crypto/random.ts';
import { PrivatemodeError } from '../errors.ts';

/** The secret shared with the attested service (docs/protocol/inference.md, section 10). */
export interface InferenceSecret {
  /** base64(SHA-256(HPKE public key)). */
  readonly id: string;
  /** 32 bytes. */
  readonly key: SecretKey;
}

/**
 * The cipher of one attempt of one request: a fresh nonce and the two sequence counters. Nothing outside this
 * room knows how a message is built.
 */
export type RequestCipher = ReturnType<typeof createRequestCipher>;

/** Produces one sealed message piece by piece; the pieces concatenate to the message with its quotes. */
export type MessageSealer = ReturnType<RequestCipher['seal']>;

const NONCE_BYTES = 12;
const SEQUENCE_LIMIT = 2 ** 32;

/**
 * The most messages of one request. The cipher keeps the iv of each in hex, to compare those of the response
 * with them: 3 MiB at most.
 */
const MAX_SEALED = 65_536;

const BLANK = 0x20;
const QUOTE = 0x22;
const COLON = 0x3a;

/** The position after the next colon; `end` if there is no colon, or a control character comes before it. */
function afterColon(source: Uint8Array, start: number, end: number): number {
  let position = start;
  while (position < end && source[position] !== COLON && source[position]! >= BLANK) position += 1;
  return position < end && source[position] === COLON ? position + 1 : end;
}

/**
 * Positions of the parts of a message in its text, in bytes. `size` is the length of the ciphertext in bytes;
 * it is negative if the text lacks a part.
 */
type Place = Readonly<ReturnType<typeof locate>>;

/** Finds the parts of the message between `from` and `to`. */
function locate(source: Buffer, from: number, to: number) {
  let start = from;
  let end = to;
  while (start < end && source[start] === QUOTE) start += 1;
  while (end > start && source[end - 1] === QUOTE) end -= 1;
  const ivAt = afterColon(source, afterColon(source, start, end), end);
  const bodyAt = ivAt + 2 * IV_BYTES + 1;
  const tagAt = end - 2 * TAG_BYTES;
  const size = (tagAt - bodyAt) / 2;
  return { ivAt, bodyAt, tagAt, size: Number.isInteger(size) && source[bodyAt - 1] === COLON ? size : -1 };
}

const INVALID = 0x100;
const VALUES = new Uint16Array(256).fill(INVALID);
for (const [value, digit] of [...'0123456789abcdef'].entries()) {
  VALUES[digit.charCodeAt(0)] = VALUES[digit.toUpperCase().charCodeAt(0)] = value;
}
/** Bytes from which the native decoder is faster, even with the string that it must be given. */
const NATIVE_BYTES = 256;

/**
 * Decodes hex digits of either case, from `from` on in `source`, to `bytes` bytes in `target` from `at` on.
 * Returns false if one of them is no hex digit; the target then holds useless bytes. Short messages are
 * decoded without a native call, which would cost more than the work: an event is opened in 8.0 us instead of
 * 10.1, of the 21 that it takes in all (bench row stream_saturated).
 */
function decodeHex(source: Buffer, from: number, target: Buffer, at: number, bytes: number): boolean {
  if (bytes >= NATIVE_BYTES) {
    return target.write(source.toString('latin1', from, from + 2 * bytes), at, bytes, 'hex') === bytes;
  }
  let seen = 0;
  for (let i = 0; i < bytes; i++) {
    const value = (VALUES[source[from + 2 * i]!]! << 4) | VALUES[source[from + 2 * i + 1]!]!;
    seen |= value;
    target[at + i] = value;
  }
  return seen <= 0xff;
}

/**
 * Decodes the message at `place`: iv and tag into the slot, the ciphertext into `bytes` from `at` on. Returns
 * false if no message stands there.
 */
const decode = (source: Buffer, place: Place, { iv, tag }: Slot, bytes: Buffer, at: number): boolean =>
  place.size >= 0 &&
  decodeHex(source, place.ivAt, iv, 0, IV_BYTES) &&
  decodeHex(source, place.tagAt, tag, 0, TAG_BYTES) &&
  decodeHex(source, place.bodyAt, bytes, at, place.size);

/**
 * Takes the ciphertext of a message too long for a slot; one too long for this buffer gets its own memory.
 */
const scratch = Buffer.alloc(16 * 1024);

/**
 * Makes a function that returns `size` random bytes each time. It asks the system for eight times as many at
 * once, because asking costs as much as sealing a short message.
 */
function randomPieces(size: number): () => Uint8Array {
  let left: Uint8Array = new Uint8Array(0);
  return () => {
    if (left.length === 0) left = randomBytes(8 * size);
    const piece = left.subarray(0, size);
    left = left.subarray(size);
    return piece;
  };
}

const internal = (message: string) => new PrivatemodeError('internal', message);
const notAuthentic = (message: string) => new PrivatemodeError('response_not_authentic', message);

function authentic<T>(opened: T | undefined): T {
  if (opened === undefined) throw notAuthentic('an encrypted value of the response does not authenticate');
  return opened;
}

/**
 * Makes the cipher of one attempt. Throws `internal` unless `secret.key` holds 32 bytes; the cipher throws
 * `internal` after 2^32 messages. It does not compare the id and nonce texts of a response: the cipher's own
 * nonce and counter authenticate the response. `options` is for tests only: the nonce and the source of ivs,
 * 12 bytes each, and where both counters start.
 */
export function createRequestCipher(
  { id, key }: InferenceSecret,
  options: { readonly nonce?: Uint8Array; readonly ivs?: () => Uint8Array; readonly sequence?: number } = {},
) {
  const draw = randomPieces(IV_BYTES);
  const { nonce = draw(), ivs = draw, sequence: first = 0 } = options; // a nonce is as long as an iv
  checkKey(key);
  if (nonce.length !== NONCE_BYTES) throw internal('the nonce is not 12 bytes');
  const prefix = `"${id}:${Buffer.from(nonce).toString('hex')}:`;
  const overhead = prefix.length + 2 * IV_BYTES + 1 + 2 * TAG_BYTES + 1;
  const aad = Buffer.alloc(AAD_BYTES);
  aad.set(nonce);
  let received = first;
  let opening = false;
  let met = false; // a response message, whether it opens or not
  let failure: unknown;
  // Requests and responses share key, nonce and numbering, so a gateway could send our own messages back as a
  // response.
  const sentIvs: string[] = [];

  /** Whether `iv` is that of the request message with the same number as the next response message. */
  const isOwnIv = (iv: Buffer): boolean =>
    received - first < sentIvs.length && sentIvs[received - first] === iv.toString('hex');

  // Little endian, unlike everything else on this wire.
  const aadFor = (sequence: number): Buffer => {
    if (sequence >= SEQUENCE_LIMIT) throw internal('the message counter is exhausted');
    aad.writeUInt32LE(sequence, NONCE_BYTES);
    return aad;
  };

  /** Decodes the message at `place`, takes the next number for it, and returns its AAD. */
  const receive = (source: Buffer, place: Place, slot: Slot, bytes: Buffer, at: number): Buffer => {
    if (!decode(source, place, slot, bytes, at)) {
      throw new PrivatemodeError('response_malformed', 'an encrypted value of the response is malformed');
    }
    met = true;
    if (isOwnIv(slot.iv)) throw notAuthentic('the response contains a message of its own request');
    received += 1;
    return aadFor(received - 1);
  };

  const openLong = (source: Buffer, place: Place): Buffer => {
    const { size } = place;
    const slot = slots[0]!;
    const bytes = size <= scratch.length ? scratch : Buffer.allocUnsafeSlow(size);
    const messageAad = receive(source, place, slot, bytes, 0);
    return authentic(gcmDecrypt(key, slot.iv, messageAad, bytes.subarray(0, size), slot.tag));
  };

  /** Decodes the short message at `place` into a slot. */
  const fill = (source: Buffer, place: Place, slot: Slot): void => {
    const messageAad = receive(source, place, slot, slot.bytes, AAD_BYTES);
    for (let i = 0; i < AAD_BYTES; i++) slot.bytes[i] = messageAad[i]!;
    slot.size = place.size;
  };

  /**
   * Opens the short messages in the first `count` slots. Slot k holds the message with index
   * `order[end - count + k]`.
   */
  const openFilled = (order: readonly number[], end: number, count: number, opened: Buffer[]): void => {
    if (count === 0) return;
    const plaintexts = authentic(openSlots(key, count));
    for (let k = 0; k < count; k++) opened[order[end - count + k]!] = plaintexts[k]!;
  };

  /** Takes the next number for a request message and draws its iv. Returns the iv, its hex, and the AAD. */
  const number = () => {
    if (opening) throw internal('sealing after the response began');
    if (sentIvs.length === MAX_SEALED) throw internal(`a request has more than ${MAX_SEALED} messages`);
    const iv = ivs();
    const text = Buffer.from(iv).toString('hex');
    const messageAad = aadFor(first + sentIvs.length);
    sentIvs.push(text);
    return { iv, text, messageAad };
  };

  /**
   * Starts the next request message, of at most 65,536. Throws `internal` after that many, and once the first
   * response message was opened.
   */
  const seal = () => {
    const { iv, text, messageAad } = number();
    const encryption = gcmEncryption(key, iv, messageAad);
    const head = Buffer.from(`${prefix}${text}:`, 'latin1');
    return {
      /** `"id:nonce:iv:` as ASCII bytes. */
      head: (): Uint8Array => head,
      /**
       * Encrypts `plaintext`, and writes the ciphertext as lower-case hex, twice as many bytes, to `target`
       * from `at` on.
       */
      update: (plaintext: Uint8Array, target: Buffer, at: number): void => {
        const ciphertext = encryption.update(plaintext);
        target.write(ciphertext.toString('hex'), at, 'latin1');
        releaseMemory(ciphertext);
      },
      /** Hex of the tag, and the closing quote. */
      final: (): Uint8Array => {
        encryption.final();
        return Buffer.from(`${encryption.getAuthTag().toString('hex')}"`, 'latin1');
      },
    };
  };

  /** Seals these plaintexts in the slots, which already hold their ivs and AAD. Returns the messages. */
  const sealFilled = (plaintexts: readonly Uint8Array[]): Buffer[] => {
    sealSlots(key, plaintexts);
    return plaintexts.map((_, k) => {
      const { iv, bytes, size, tag } = slots[k]!;
      const ciphertext = bytes.toString('hex', AAD_BYTES, AAD_BYTES + size);
      const text = `${prefix}${iv.toString('hex')}:${ciphertext}${tag.toString('hex')}"`;
      return Buffer.from(text, 'latin1');
    });
  };

  return {
    secretId: id,
    /** Bytes of the sealed message, quotes included, for a plaintext of that many bytes. */
    sealedLength: (plaintextBytes: number): number => overhead + 2 * plaintextBytes,

    seal,

    /**
     * Makes the next request messages; each plaintext comes in pieces. For a short plaintext, returns the
     * sealed message with its quotes; for a longer one, the sealer of its message. Throws as `seal` does. In
     * a loop over this function alone, it seals a short request in 35 us, and in 65 us with an OpenSSL
     * context for each message. The bench row request_cpu does not show that: processes of one build differ
     * by more.
     */
    sealAll(plaintexts: readonly (readonly Uint8Array[])[]): (Buffer | ReturnType<typeof seal>)[] {
      const messages: (Buffer | ReturnType<typeof seal>)[] = [];
      const filled: { readonly of: number; readonly plaintext: Uint8Array }[] = [];
      for (const [of, pieces] of plaintexts.entries()) {
        if (pieces.reduce((sum, { length }) => sum + length, 0) > SHORT_BYTES) messages[of] = seal();
        else {
          const { iv, messageAad } = number();
          const slot = slots[filled.length]!;
          slot.iv.set(iv);
          slot.bytes.set(messageAad);
          filled.push({ of, plaintext: pieces.length === 1 ? pieces[0]! : Buffer.concat(pieces) });
        }
        if (filled.length === SLOTS || of === plaintexts.length - 1) {
          const sealed = sealFilled(filled.map(({ plaintext }) => plaintext));
          for (const [k, { of }] of filled.entries()) messages[of] = sealed[k]!;
          filled.length = 0;
        }
      }
      return messages;
    },

    /** Whether a response message was opened, or failed to open. Text in place of one does not count. */
    hasOpened: (): boolean => met,

    /**
     * Opens the next response messages, which stand in `source` with or without their quotes. `order` lists
     * their indices in `starts`, `ends` and `opened`, in the order in which they were sealed. If one message
     * fails, all do: throws response_malformed, or response_not_authentic if a tag is wrong or a message is
     * one of the request's own, sent back. Every later use throws the same error.
     */
    openAll(
      source: Buffer,
      order: readonly number[],
      starts: readonly number[],
      ends: readonly number[],
      opened: Buffer[],
    ): void {
      if (failure !== undefined) throw failure;
      opening = true;
      let filled = 0;
      try {
        for (let k = 0; k < order.length; k++) {
          const part = order[k]!;
          const place = locate(source, starts[part]!, ends[part]!);
          const isLong = place.size > SHORT_BYTES;
          if (isLong || filled === SLOTS) {
            openFilled(order, k, filled, opened);
            filled = 0;
          }
          if (isLong) opened[part] = openLong(source, place);
          else fill(source, place, slots[filled++]!);
        }
        openFilled(order, order.length, filled, opened);
      } catch (thrown) {
        failure = thrown;
        throw thrown;
      }
    },
  };
}

/** Bytes from which releasing costs less than it saves. */
const WORTH_RELEASING = 4 * 1024;

/**
 * Frees at once the memory of bytes that nobody reads any more; the buffer is empty afterwards. Left to the
 * garbage collector, the prompts and ciphertexts of a few uploads cause a full collection, for which every
 * stream waits. Short buffers, and parts of larger ones, are left to it all the same. Do not release bytes
 * that the network or the disk still works on: they would read freed memory.
 */
export function releaseMemory({ buffer, length }: Uint8Array): void {
  if (length < WORTH_RELEASING || length !== buffer.byteLength) return;
  if (buffer instanceof ArrayBuffer) buffer.transfer(0);
}
