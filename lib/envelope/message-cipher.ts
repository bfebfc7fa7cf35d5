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

export type RequestCipher = ReturnType<typeof createRequestCipher>;
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
 * Makes the cipher of one attempt: a random nonce and two counters, which authenticate a response, so the id
 * and the nonce that stand in it need not. Throws `internal` unless the key holds 32 bytes; the cipher throws
 * it after 2^32 messages. `options`, for tests: nonce and ivs of 12 bytes, and the start of both counters.
 */
export function createRequestCipher(
  { id, key }: InferenceSecret,
  options: { readonly nonce?: Uint8Array; readonly ivs?: () => Uint8Array; readonly sequence?: number } = {},
) {
  const { nonce = randomBytes(IV_BYTES), ivs = () => randomBytes(IV_BYTES), sequence: first = 0 } = options;
  checkKey(key);
  const prefix = `"${id}:${Buffer.from(nonce).toString('hex')}:`;
  const overhead = prefix.length + 2 * IV_BYTES + 1 + 2 * TAG_BYTES + 1;
  const aad = Buffer.alloc(AAD_BYTES); // the nonce, which is as long as an iv, and a number
  aad.set(nonce);
  let received = first;
  let met = false; // a response message, whether it opens or not
  let failure: unknown;
  const sentIvs: string[] = []; // in hex: a gateway could send our own messages back as a response
  let head = prefix.slice(1); // of the last message: most of a response have the same one

  const aadFor = (sequence: number): Buffer => {
    if (sequence >= 2 ** 32) throw internal('the message counter is exhausted');
    aad.writeUInt32LE(sequence, IV_BYTES); // unlike everything else on this wire
    return aad;
  };

  /** Decodes the next response message into the slot; a long one into the memory that is returned. */
  const receive = (message: string, slot: Slot): Buffer => {
    // startsWith takes six times as long
    if (message.slice(0, head.length) !== head) {
      const nonceAt = message.indexOf(':') + 1;
      head = message.slice(0, message.indexOf(':', nonceAt) + 1);
      if (!HEAD.test(head)) throw malformed();
    }
    const ivAt = head.length;
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
    met = true;
    const isOwn = received - first < sentIvs.length && sentIvs[received - first] === iv.toString('hex');
    if (isOwn) throw notAuthentic('the response contains a message of its own request');
    const messageAad = aadFor(received);
    for (let i = 0; i < AAD_BYTES; i++) bytes[i] = messageAad[i]!;
    received += 1;
    return body;
  };

  const openLong = ({ iv, bytes, size, tag }: Slot, body: Buffer): Buffer =>
    authentic(gcmDecrypt(key, iv, bytes.subarray(0, AAD_BYTES), body.subarray(0, size), tag));

  /** Seals at most as many plaintexts as there are slots: the short ones together. */
  const sealBatch = (plaintexts: readonly Uint8Array[]): (string | MessageSealer)[] => {
    const short: Uint8Array[] = [];
    const messages = plaintexts.map((plaintext) => {
      if (met || failure !== undefined) throw internal('sealing after the response began');
      const iv = ivs();
      const ivText = Buffer.from(iv).toString('hex');
      const messageHead = `${prefix}${ivText}:`;
      const messageAad = aadFor(first + sentIvs.length);
      sentIvs.push(ivText);
      if (plaintext.length > SHORT_BYTES) return longSealer(messageHead, gcmEncryption(key, iv, messageAad));
      const slot = slots[short.length]!;
      slot.iv.set(iv);
      slot.bytes.set(messageAad);
      short.push(plaintext);
      return messageHead;
    });
    sealSlots(key, short);
    let used = 0;
    return messages.map((message) => {
      if (typeof message !== 'string') return message;
      const { bytes, size, tag } = slots[used++]!;
      return `${message}${bytes.toString('hex', AAD_BYTES, AAD_BYTES + size)}${tag.toString('hex')}"`;
    });
  };

  return {
    /** Bytes of the sealed message, quotes included, for a plaintext of that many bytes. */
    sealedLength: (plaintextBytes: number): number => overhead + 2 * plaintextBytes,
    /** Gives messages in quotes; a long one as its sealer. Throws `internal` after a response message. */
    seal(plaintexts: readonly Uint8Array[]): (string | MessageSealer)[] {
      const messages: (string | MessageSealer)[] = [];
      for (let i = 0; i < plaintexts.length; i += slots.length)
        messages.push(...sealBatch(plaintexts.slice(i, i + slots.length)));
      return messages;
    },
    /** Whether a response message was opened, or failed to open. Text in place of one does not count. */
    hasOpened: (): boolean => met,
    /**
     * Opens the next response messages, without their quotes, in the order in which they were sealed. Returns
     * each byte as one character (latin1). If one fails, all do: throws response_malformed, or
     * response_not_authentic for a wrong tag or a message of the request; later calls throw the same.
     */
    open(messages: readonly string[]): string[] {
      if (failure !== undefined) throw failure;
      const opened: string[] = [];
      let filled = 0;
      const openFilled = (): void => {
        if (filled > 0) opened.push(...authentic(openSlots(key, filled)));
        filled = 0;
      };
      try {
        for (const message of messages) {
          const slot = slots[filled]!;
          const body = receive(message, slot);
          if (slot.size > SHORT_BYTES) {
            openFilled();
            opened.push(openLong(slot, body).toString('latin1'));
          } else if (++filled === slots.length) openFilled();
        }
        openFilled();
        return opened;
      } catch (thrown) {
        failure = thrown;
        throw thrown;
      }
    },
  };
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

/** Bytes from which releasing costs less than it saves. */
const WORTH_RELEASING = 4 * 1024;
/**
 * Frees the memory of bytes that nobody reads, nor the network or the disk, which would read freed memory.
 * Left to the garbage collector, it costs a full collection (docs/hazards.md 25).
 */
export function releaseMemory({ buffer, length }: Uint8Array): void {
  if (length < WORTH_RELEASING || length !== buffer.byteLength) return;
  if (buffer instanceof ArrayBuffer) buffer.transfer(0);
}
