/**
 * The message format: `"id:nonce:iv:ciphertext+tag"`, AES-256-GCM, one random nonce per attempt, one iv
 * per message, two sequence counters (inference.md section 4).
 */
import { type KeyObject, randomFillSync } from 'node:crypto';
import { type AeadEngine, IV_BYTES, nativeAead, TAG_BYTES } from '../crypto/aead.ts';
import { decodeHex } from '../crypto/hex.ts';
import { releaseMemory } from '../crypto/release-memory.ts';
import { PrivatemodeError } from '../errors.ts';
import {
  AAD_BYTES,
  SHORT_BYTES,
  type ShortMessages,
  SLOTS,
  type Slot,
  shortMessages,
  slots,
} from './short-messages.ts';

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
  /** Writes lower-case hex of the ciphertext of `plaintext`, twice as many bytes, to `target` from `at` on. */
  update(plaintext: Uint8Array, target: Buffer, at: number): void;
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
  /** Starts the next request message, of at most 65,536. Throws `internal` beyond, and once a response message was opened. */
  seal(): MessageSealer;
  /**
   * Opens the next response message: its text with or without the surrounding quotes, as ASCII.
   * Throws response_malformed, or response_not_authentic where the tag is wrong or the message is one of the request's own,
   * sent back; after a failure every call throws.
   */
  open(message: string): Buffer;
  /**
   * The same for several that stand in `source`: the numbers in `order` say in which order they come, and where `starts`,
   * `ends` and `opened` have the place of each. Where one of them fails, all do. Cheaper than one by one where they are short.
   */
  openAll(
    source: Buffer,
    order: readonly number[],
    starts: readonly number[],
    ends: readonly number[],
    opened: Buffer[],
  ): void;
}

export interface RequestCipherOptions {
  /** 12 bytes; default random. Tests only. */
  readonly nonce?: Uint8Array;
  /** Source of 12-byte ivs; default the CSPRNG. Tests only. */
  readonly ivs?: () => Uint8Array;
  /** Where both counters start; default 0. Tests only. */
  readonly sequence?: number;
  /** Default the native engine. */
  readonly engine?: AeadEngine;
}

const NONCE_BYTES = 12;
const SEQUENCE_LIMIT = 2 ** 32;
const QUOTE = 0x22;
const COLON = 0x3a;
const MALFORMED = 'an encrypted value of the response is malformed';
const NOT_AUTHENTIC = 'an encrypted value of the response does not authenticate';
const REFLECTED = 'the response contains a message of its own request';

/** Messages of one request. Each keeps its iv until the response has been opened: 12 bytes, so 768 KiB at most. */
const MAX_SEALED = 65_536;

// One system call for 512 nonces and ivs, none of which is handed out twice.
const pool = Buffer.alloc(512 * IV_BYTES);
let drawn = pool.length;

function randomBytes12(): Uint8Array {
  if (drawn === pool.length) {
    randomFillSync(pool);
    drawn = 0;
  }
  drawn += IV_BYTES;
  return pool.subarray(drawn - IV_BYTES, drawn);
}

// Where hex is decoded before it goes to the cipher: ciphertext only, and only within one call of open().
// Messages of a stream are short and many, so iv and tag have places, and views, of their own.
const scratch = Buffer.alloc(16 * 1024);
const BODY_AT = IV_BYTES + TAG_BYTES;
const ivView = scratch.subarray(0, IV_BYTES);
const tagView = scratch.subarray(IV_BYTES, BODY_AT);

/** Where the parts of a message stand, in bytes; `size` of the ciphertext. */
interface Place {
  ivAt: number;
  bodyAt: number;
  tagAt: number;
  size: number;
}

/** One for all: it is read before the next message is looked at. */
const place: Place = { ivAt: 0, bodyAt: 0, tagAt: 0, size: 0 };

/** The position after the next colon, or `end` where there is none. */
function afterColon(source: Uint8Array, start: number, end: number): number {
  let position = start;
  while (position < end && source[position] !== COLON) position += 1;
  return Math.min(position + 1, end);
}

/**
 * A cipher for one attempt. Throws `internal` where `secret.key` does not hold 32 bytes, and after 2^32 messages.
 * The id and nonce texts of a response are not compared: its own nonce and counter are what authenticate it.
 */
export function createRequestCipher(
  secret: InferenceSecret,
  options: RequestCipherOptions = {},
): RequestCipher {
  const { id, key } = secret;
  const aead = (options.engine ?? nativeAead).withKey(key);
  const nextIv = options.ivs ?? randomBytes12;
  const nonce = options.nonce ?? Uint8Array.from(randomBytes12());
  if (nonce.length !== NONCE_BYTES) throw new PrivatemodeError('internal', 'the nonce is not 12 bytes');
  const prefix = `"${id}:${Buffer.from(nonce).toString('hex')}:`;
  const overhead = prefix.length + 2 * IV_BYTES + 1 + 2 * TAG_BYTES + 1;
  const aad = Buffer.alloc(NONCE_BYTES + 4);
  aad.set(nonce);
  let sent = options.sequence ?? 0;
  let received = options.sequence ?? 0;
  let opened = false;
  let failure: PrivatemodeError | undefined;
  let short: ShortMessages | undefined;
  // Requests and responses share key, nonce and numbering, so a gateway could send our own messages back as a response.
  let sentIvs = Buffer.alloc(16 * IV_BYTES);
  const firstSent = sent;

  const keepIv = (iv: Uint8Array): void => {
    const at = (sent - firstSent) * IV_BYTES;
    if (at === MAX_SEALED * IV_BYTES) {
      throw new PrivatemodeError('internal', `a request has more than ${MAX_SEALED} messages`);
    }
    if (at === sentIvs.length) sentIvs = Buffer.concat([sentIvs, Buffer.alloc(sentIvs.length)]);
    sentIvs.set(iv, at);
  };

  /** Whether that is the iv of the request message with the number of the next response message. */
  const isOwnIv = (iv: Uint8Array): boolean => {
    if (received >= sent) return false;
    const at = (received - firstSent) * IV_BYTES;
    for (let i = 0; i < IV_BYTES; i++) if (iv[i] !== sentIvs[at + i]) return false;
    return true;
  };

  // Little endian, unlike everything else on this wire.
  const aadFor = (sequence: number): Buffer => {
    if (sequence >= SEQUENCE_LIMIT)
      throw new PrivatemodeError('internal', 'the message counter is exhausted');
    aad.writeUInt32LE(sequence, NONCE_BYTES);
    return aad;
  };

  const fail = (code: 'response_malformed' | 'response_not_authentic', words: string): PrivatemodeError => {
    failure = new PrivatemodeError(code, words);
    return failure;
  };

  /** Finds the parts of the message between `from` and `to`; throws where they are not there. */
  const locate = (source: Buffer, from: number, to: number): Place => {
    if (failure) throw failure;
    opened = true;
    let start = from;
    let end = to;
    while (start < end && source[start] === QUOTE) start += 1;
    while (end > start && source[end - 1] === QUOTE) end -= 1;
    place.ivAt = afterColon(source, afterColon(source, start, end), end);
    place.bodyAt = place.ivAt + 2 * IV_BYTES + 1;
    place.tagAt = end - 2 * TAG_BYTES;
    place.size = (place.tagAt - place.bodyAt) / 2;
    if (place.size < 0 || !Number.isInteger(place.size) || source[place.bodyAt - 1] !== COLON) {
      throw fail('response_malformed', MALFORMED);
    }
    return place;
  };

  const openLocated = (source: Buffer, { ivAt, bodyAt, tagAt, size }: Place): Buffer => {
    const bytes = BODY_AT + size <= scratch.length ? scratch : Buffer.allocUnsafeSlow(BODY_AT + size);
    const valid =
      decodeHex(source, ivAt, scratch, 0, IV_BYTES) &&
      decodeHex(source, tagAt, scratch, IV_BYTES, TAG_BYTES) &&
      decodeHex(source, bodyAt, bytes, BODY_AT, size);
    if (!valid) throw fail('response_malformed', MALFORMED);
    if (isOwnIv(ivView)) throw fail('response_not_authentic', REFLECTED);
    const ciphertext = bytes.subarray(BODY_AT, BODY_AT + size);
    const plaintext = aead.decrypt(ivView, aadFor(received), ciphertext, tagView);
    if (plaintext === undefined) throw fail('response_not_authentic', NOT_AUTHENTIC);
    received += 1;
    return plaintext;
  };

  /** Puts a short message into a slot, to be opened with others. */
  const fill = (slot: Slot, source: Buffer, { ivAt, bodyAt, tagAt, size }: Place): void => {
    const valid =
      decodeHex(source, ivAt, slot.iv, 0, IV_BYTES) &&
      decodeHex(source, tagAt, slot.tag, 0, TAG_BYTES) &&
      decodeHex(source, bodyAt, slot.bytes, AAD_BYTES, size);
    if (!valid) throw fail('response_malformed', MALFORMED);
    if (isOwnIv(slot.iv)) throw fail('response_not_authentic', REFLECTED);
    aadFor(received);
    for (let i = 0; i < AAD_BYTES; i++) slot.bytes[i] = aad[i]!;
    slot.size = size;
    received += 1;
  };

  const openFilled = (parts: readonly number[], into: Buffer[]): void => {
    if (parts.length === 0) return;
    short ??= shortMessages(key);
    const plaintexts = short.open(parts.length);
    if (plaintexts === undefined) throw fail('response_not_authentic', NOT_AUTHENTIC);
    for (let k = 0; k < parts.length; k++) into[parts[k]!] = plaintexts[k]!;
  };

  return {
    secretId: id,
    sealedLength: (plaintextBytes) => overhead + 2 * plaintextBytes,

    seal() {
      if (opened || failure) throw new PrivatemodeError('internal', 'sealing after the response began');
      const iv = nextIv();
      const encryption = aead.encrypt(iv, aadFor(sent));
      keepIv(iv);
      sent += 1;
      // The pool is drawn over again: the text of the iv is made now.
      const head = Buffer.from(`${prefix}${Buffer.from(iv).toString('hex')}:`, 'latin1');
      return {
        head: () => head,
        update: (plaintext, target, at) => {
          const ciphertext = encryption.update(plaintext);
          target.write(ciphertext.toString('hex'), at, 'latin1');
          releaseMemory(ciphertext);
        },
        final: () => Buffer.from(`${encryption.final().toString('hex')}"`, 'latin1'),
      };
    },

    open(message) {
      const source = Buffer.from(message, 'utf8'); // what is not ASCII stays wrong
      return openLocated(source, locate(source, 0, source.length));
    },
    openAll(source, order, starts, ends, into) {
      let filled: number[] = [];
      for (let k = 0; k < order.length; k++) {
        const part = order[k]!;
        const found = locate(source, starts[part]!, ends[part]!);
        if (found.size > SHORT_BYTES || options.engine !== undefined) {
          into[part] = openLocated(source, found);
          continue;
        }
        fill(slots[filled.length]!, source, found);
        filled.push(part);
        if (filled.length < SLOTS) continue;
        openFilled(filled, into);
        filled = [];
      }
      openFilled(filled, into);
    },
  };
}
