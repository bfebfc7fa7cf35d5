/**
 * The message format: `"id:nonce:iv:ciphertext+tag"`, AES-256-GCM, one random nonce per attempt, one iv per message, two sequence
 * counters (docs/protocol/inference.md, section 4).
 */
import { type KeyObject, randomFillSync } from 'node:crypto';
import { checkKey, gcmDecrypt, gcmEncryption, IV_BYTES, TAG_BYTES } from '../crypto/aead.ts';
import { releaseMemory } from '../crypto/release-memory.ts';
import { PrivatemodeError } from '../errors.ts';
import { decode, locate, place } from './message-text.ts';
import { AAD_BYTES, openSlots, SHORT_BYTES, SLOTS, type Slot, slots } from './short-messages.ts';

/** The secret shared with the attested service (docs/protocol/inference.md, section 10). */
export interface InferenceSecret {
  /** base64(SHA-256(HPKE public key)). */
  readonly id: string;
  /** 32 bytes. */
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

/** One attempt of one request: a fresh nonce and the two sequence counters. Nothing outside this room knows how a message is built. */
export interface RequestCipher {
  readonly secretId: string;
  /** Bytes of the sealed message, quotes included, for a plaintext of that many bytes. */
  sealedLength(plaintextBytes: number): number;
  /** Starts the next request message, of at most 65,536. Throws `internal` beyond, and once a response message was opened. */
  seal(): MessageSealer;
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
  ): void;
}

export interface RequestCipherOptions {
  /** 12 bytes; default random. Tests only. */
  readonly nonce?: Uint8Array;
  /** Source of 12-byte ivs; default the CSPRNG. Tests only. */
  readonly ivs?: () => Uint8Array;
  /** Where both counters start; default 0. Tests only. */
  readonly sequence?: number;
}

const NONCE_BYTES = 12;
const SEQUENCE_LIMIT = 2 ** 32;

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

/** Where the hex of ciphertexts too long for a slot is decoded to; larger ones get memory of their own. */
const scratch = Buffer.alloc(16 * 1024);

/**
 * A cipher for one attempt. Throws `internal` unless `secret.key` holds 32 bytes, and after 2^32 messages.
 * The id and nonce texts of a response are not compared: its own nonce and counter are what authenticate it.
 */
export function createRequestCipher(
  { id, key }: InferenceSecret,
  options: RequestCipherOptions = {},
): RequestCipher {
  checkKey(key);
  const nextIv = options.ivs ?? randomBytes12;
  const nonce = options.nonce ?? Uint8Array.from(randomBytes12());
  if (nonce.length !== NONCE_BYTES) throw new PrivatemodeError('internal', 'the nonce is not 12 bytes');
  const prefix = `"${id}:${Buffer.from(nonce).toString('hex')}:`;
  const overhead = prefix.length + 2 * IV_BYTES + 1 + 2 * TAG_BYTES + 1;
  const aad = Buffer.alloc(AAD_BYTES);
  aad.set(nonce);
  const first = options.sequence ?? 0;
  let sent = first;
  let received = first;
  let opening = false;
  let failure: PrivatemodeError | undefined;
  // Requests and responses share key, nonce and numbering, so a gateway could send our own messages back as a response.
  let sentIvs = Buffer.alloc(16 * IV_BYTES);

  const keepIv = (iv: Uint8Array): void => {
    const at = (sent - first) * IV_BYTES;
    if (at === MAX_SEALED * IV_BYTES) {
      throw new PrivatemodeError('internal', `a request has more than ${MAX_SEALED} messages`);
    }
    if (at === sentIvs.length) sentIvs = Buffer.concat([sentIvs, Buffer.alloc(sentIvs.length)]);
    sentIvs.set(iv, at);
  };

  /** Whether that is the iv of the request message with the number of the next response message. */
  const isOwnIv = (iv: Uint8Array): boolean => {
    if (received >= sent) return false;
    const at = (received - first) * IV_BYTES;
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

  const failed = (
    code: 'response_malformed' | 'response_not_authentic',
    message: string,
  ): PrivatemodeError => {
    failure = new PrivatemodeError(code, message);
    return failure;
  };

  /** Decodes the located message, and takes the next number for it; returns its AAD. */
  const receive = (source: Buffer, slot: Slot, bytes: Buffer, at: number): Buffer => {
    if (!decode(source, slot.iv, slot.tag, bytes, at)) {
      throw failed('response_malformed', 'an encrypted value of the response is malformed');
    }
    if (isOwnIv(slot.iv)) {
      throw failed('response_not_authentic', 'the response contains a message of its own request');
    }
    received += 1;
    return aadFor(received - 1);
  };

  const authentic = <T>(opened: T | undefined): T => {
    if (opened !== undefined) return opened;
    throw failed('response_not_authentic', 'an encrypted value of the response does not authenticate');
  };

  const openLong = (source: Buffer): Buffer => {
    const { size } = place;
    const slot = slots[0]!;
    const bytes = size <= scratch.length ? scratch : Buffer.allocUnsafeSlow(size);
    const messageAad = receive(source, slot, bytes, 0);
    return authentic(gcmDecrypt(key, slot.iv, messageAad, bytes.subarray(0, size), slot.tag));
  };

  /** Puts the located message, a short one, into a slot. */
  const fill = (source: Buffer, slot: Slot): void => {
    const messageAad = receive(source, slot, slot.bytes, AAD_BYTES);
    for (let i = 0; i < AAD_BYTES; i++) slot.bytes[i] = messageAad[i]!;
    slot.size = place.size;
  };

  /** Opens the short messages of the `count` numbers in `order` before `end`, which are in the slots. */
  const openFilled = (order: readonly number[], end: number, count: number, opened: Buffer[]): void => {
    if (count === 0) return;
    const plaintexts = authentic(openSlots(key, count));
    for (let k = 0; k < count; k++) opened[order[end - count + k]!] = plaintexts[k]!;
  };

  return {
    secretId: id,
    sealedLength: (plaintextBytes) => overhead + 2 * plaintextBytes,

    seal() {
      if (opening || failure) throw new PrivatemodeError('internal', 'sealing after the response began');
      const iv = nextIv();
      const encryption = gcmEncryption(key, iv, aadFor(sent));
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
        final: () => {
          encryption.final();
          return Buffer.from(`${encryption.getAuthTag().toString('hex')}"`, 'latin1');
        },
      };
    },

    openAll(source, order, starts, ends, opened) {
      if (failure) throw failure;
      opening = true;
      let filled = 0;
      for (let k = 0; k < order.length; k++) {
        const part = order[k]!;
        const isLong = locate(source, starts[part]!, ends[part]!).size > SHORT_BYTES;
        if (isLong || filled === SLOTS) {
          openFilled(order, k, filled, opened);
          filled = 0;
        }
        if (isLong) opened[part] = openLong(source);
        else fill(source, slots[filled++]!);
      }
      openFilled(order, order.length, filled, opened);
    },
  };
}
