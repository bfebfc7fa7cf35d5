/**
 * The message format: `"id:nonce:iv:ciphertext+tag"`, AES-256-GCM, the last three in hex, one random nonce per attempt, one iv per
 * message, two sequence counters (docs/protocol/inference.md, section 4).
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

/** One attempt of one request: a fresh nonce and the two sequence counters. Nothing outside this room knows how a message is built. */
export type RequestCipher = ReturnType<typeof createRequestCipher>;

/** Produces one sealed message piece by piece; the pieces concatenate to the message with its quotes. */
export type MessageSealer = ReturnType<RequestCipher['seal']>;

const NONCE_BYTES = 12;
const SEQUENCE_LIMIT = 2 ** 32;

/** Messages of one request. Each keeps its iv in hex until the response has been opened: 3 MiB at most. */
const MAX_SEALED = 65_536;

const BLANK = 0x20;
const QUOTE = 0x22;
const COLON = 0x3a;

/** The position after the next colon, or `end` if there is none, or a control character comes before it. */
function afterColon(source: Uint8Array, start: number, end: number): number {
  let position = start;
  while (position < end && source[position] !== COLON && source[position]! >= BLANK) position += 1;
  return position < end && source[position] === COLON ? position + 1 : end;
}

/** Where the parts of a message stand in its text, in bytes; `size` of the ciphertext, negative if they are not there. */
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
/** From here on the native decoder is faster, the string that it wants included. */
const NATIVE_BYTES = 256;

/**
 * Decodes `bytes` bytes from the hex digits, of either case, at `from` in `source` into `target` at `at`. False if one of them is
 * no hex digit; the target then holds some of them. Short messages go without a native call, which costs more than the work: an
 * event is opened in 8.0 us instead of 10.1, of the 21 that it takes in all (bench row stream_saturated).
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

/** Decodes the message at that place, its ciphertext to `bytes` from `at` on; false if it is none. */
const decode = (source: Buffer, place: Place, { iv, tag }: Slot, bytes: Buffer, at: number): boolean =>
  place.size >= 0 &&
  decodeHex(source, place.ivAt, iv, 0, IV_BYTES) &&
  decodeHex(source, place.tagAt, tag, 0, TAG_BYTES) &&
  decodeHex(source, place.bodyAt, bytes, at, place.size);

/** Where the hex of ciphertexts too long for a slot is decoded to; larger ones get memory of their own. */
const scratch = Buffer.alloc(16 * 1024);

/** Random bytes, `size` of them at each call. Asking the system for them costs as much as sealing a short message: it gives enough for eight. */
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
 * A cipher for one attempt. Throws `internal` unless `secret.key` holds 32 bytes, and after 2^32 messages.
 * The id and nonce texts of a response are not compared: its own nonce and counter are what authenticate it.
 * For tests only: the nonce and the source of ivs, 12 bytes each, and where both counters start.
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
  let failure: unknown;
  // Requests and responses share key, nonce and numbering, so a gateway could send our own messages back as a response.
  const sentIvs: string[] = [];

  /** Whether that is the iv of the request message with the number of the next response message. */
  const isOwnIv = (iv: Buffer): boolean =>
    received - first < sentIvs.length && sentIvs[received - first] === iv.toString('hex');

  // Little endian, unlike everything else on this wire.
  const aadFor = (sequence: number): Buffer => {
    if (sequence >= SEQUENCE_LIMIT) throw internal('the message counter is exhausted');
    aad.writeUInt32LE(sequence, NONCE_BYTES);
    return aad;
  };

  /** Decodes the message at that place, and takes the next number for it; returns its AAD. */
  const receive = (source: Buffer, place: Place, slot: Slot, bytes: Buffer, at: number): Buffer => {
    if (!decode(source, place, slot, bytes, at)) {
      throw new PrivatemodeError('response_malformed', 'an encrypted value of the response is malformed');
    }
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

  /** Puts the message at that place, a short one, into a slot. */
  const fill = (source: Buffer, place: Place, slot: Slot): void => {
    const messageAad = receive(source, place, slot, slot.bytes, AAD_BYTES);
    for (let i = 0; i < AAD_BYTES; i++) slot.bytes[i] = messageAad[i]!;
    slot.size = place.size;
  };

  /** Opens the short messages of the `count` numbers in `order` before `end`, which are in the slots. */
  const openFilled = (order: readonly number[], end: number, count: number, opened: Buffer[]): void => {
    if (count === 0) return;
    const plaintexts = authentic(openSlots(key, count));
    for (let k = 0; k < count; k++) opened[order[end - count + k]!] = plaintexts[k]!;
  };

  /** Takes the next number for a request message: draws its iv, and returns that with its hex and the AAD. */
  const number = () => {
    if (opening) throw internal('sealing after the response began');
    if (sentIvs.length === MAX_SEALED) throw internal(`a request has more than ${MAX_SEALED} messages`);
    const iv = ivs();
    const text = Buffer.from(iv).toString('hex');
    const messageAad = aadFor(first + sentIvs.length);
    sentIvs.push(text);
    return { iv, text, messageAad };
  };

  /** Starts the next request message, of at most 65,536. Throws `internal` beyond, and once a response message was opened. */
  const seal = () => {
    const { iv, text, messageAad } = number();
    const encryption = gcmEncryption(key, iv, messageAad);
    const head = Buffer.from(`${prefix}${text}:`, 'latin1');
    return {
      /** `"id:nonce:iv:` as ASCII bytes. */
      head: (): Uint8Array => head,
      /** Writes lower-case hex of the ciphertext of `plaintext`, twice as many bytes, to `target` from `at` on. */
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

  /** Seals these in the slots, which have their ivs and AAD. Returns the messages. */
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
     * The next request messages, for plaintexts in pieces: each short one sealed, with its quotes, and for each of the others what
     * seals it. Throws as `seal` does. In a loop over it alone, a short request is
     * sealed in 35 us, and in 65 with a context of OpenSSL's for each message; processes of one build differ by more in request_cpu.
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

    /** Whether a response message was opened, or failed to open. */
    hasOpened: (): boolean => opening,

    /**
     * Opens the next response messages. They stand in `source` with or without their quotes; `order` has the numbers of their
     * places in `starts`, `ends` and `opened` in the order in which they were sealed. If one of them fails, all do: throws
     * response_malformed, or response_not_authentic if a tag is wrong or a message is one of the request's own, sent back. After a
     * failure every call throws.
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

/** From here on it costs less than what it saves. */
const WORTH_RELEASING = 4 * 1024;

/**
 * Frees bytes that nobody reads any more, now: the buffer is empty afterwards. Left to the collector, the prompts and
 * ciphertexts of a few uploads bring on a full collection, for which every stream waits. Short ones, and parts of something
 * larger, are left to it. Not for what the network or the disk is still working on: they would read what is freed.
 */
export function releaseMemory({ buffer, length }: Uint8Array): void {
  if (length < WORTH_RELEASING || length !== buffer.byteLength) return;
  if (buffer instanceof ArrayBuffer) buffer.transfer(0);
}
