/**
 * The server side of the message format, written literally from docs/protocol/inference.md 4 and 5. It shares
 * no code with lib/envelope, because the simulator tests that code.
 */
import { createCipheriv, createDecipheriv, createSecretKey, type KeyObject, randomBytes } from 'node:crypto';
import { inSequenceOrder, replaceSpans, type Span, topLevelOf } from './json-text.ts';
import { Rejection } from './rejection.ts';

const NONCE_BYTES = 12;
const IV_BYTES = 12;
const TAG_BYTES = 16;

/** The secret and nonce that protect one request and its response. */
export interface Protection {
  readonly secretId: string;
  readonly key: Uint8Array | KeyObject;
  readonly nonce: Buffer;
}

export interface Message extends Omit<Protection, 'key'> {
  readonly iv: Buffer;
  /** Ciphertext and tag. */
  readonly sealed: Buffer;
}

const fail = (what: string): Rejection => new Rejection(500, `decrypting request: ${what}`);

/** `"id:nonce:iv:ciphertext"`, with or without its quotes. Throws Rejection. */
export function parseMessage(text: string): Message {
  const [secretId, ...fields] = text.replace(/^"+|"+$/g, '').split(':');
  if (!secretId || fields.length !== 3) throw fail('invalid message format');
  const [nonce, iv, sealed] = fields.map((field) => {
    if (field.length % 2 !== 0 || !/^[0-9a-fA-F]*$/.test(field)) throw fail('a part is not hex');
    return Buffer.from(field, 'hex');
  }) as [Buffer, Buffer, Buffer];
  if (nonce.length !== NONCE_BYTES) throw fail('nonce has the wrong length');
  if (iv.length !== IV_BYTES) throw fail('iv has the wrong length');
  if (sealed.length < TAG_BYTES) throw fail('ciphertext too short');
  return { secretId, nonce, iv, sealed };
}

function additionalData(nonce: Uint8Array, sequence: number): Buffer {
  const counter = Buffer.alloc(4);
  counter.writeUInt32LE(sequence);
  return Buffer.concat([nonce, counter]);
}

/** Message number `sequence` of one direction, with its quotes. */
export function sealMessage(
  { secretId, key, nonce }: Protection,
  sequence: number,
  iv: Uint8Array,
  plaintext: Uint8Array,
): string {
  const cipher = createCipheriv('aes-256-gcm', key, iv);
  cipher.setAAD(additionalData(nonce, sequence));
  const sealed = cipher.update(plaintext, undefined, 'hex') + cipher.final('hex');
  const head = `${secretId}:${nonce.toString('hex')}:${Buffer.from(iv).toString('hex')}`;
  return `"${head}:${sealed}${cipher.getAuthTag().toString('hex')}"`;
}

/** Opens message number `sequence`; its own id and nonce do not count. Throws Rejection. */
export function openMessage(
  { key, nonce }: Pick<Protection, 'key' | 'nonce'>,
  sequence: number,
  { iv, sealed }: Message,
): Buffer {
  const decipher = createDecipheriv('aes-256-gcm', key, iv);
  decipher.setAAD(additionalData(nonce, sequence));
  decipher.setAuthTag(sealed.subarray(-TAG_BYTES));
  try {
    return Buffer.concat([decipher.update(sealed.subarray(0, -TAG_BYTES)), decipher.final()]);
  } catch {
    throw fail('cipher: message authentication failed');
  }
}

/** Opens the messages of one request, in order. */
export type Opener = ReturnType<typeof createOpener>;

/** `lookup` finds a secret by its id. The first message decides the secret and the nonce of the exchange. */
export function createOpener(lookup: (id: string) => Uint8Array | undefined) {
  let protection: Protection | undefined;
  let sequence = 0;
  const ivs = new Set<string>();
  /** Deviations that the server accepts but a good client avoids. */
  const irregularities: string[] = [];

  return {
    irregularities: irregularities as readonly string[],
    /** Secret and nonce for the response; undefined until a message was opened. */
    protection: () => protection,
    /** Opens the next message. `text`: the message with its quotes. Throws Rejection. */
    open(text: string): Buffer {
      const message = parseMessage(text);
      if (protection === undefined) {
        const key = lookup(message.secretId);
        if (key === undefined) throw fail(`getting secret: no secret for ID "${message.secretId}"`);
        protection = { secretId: message.secretId, key, nonce: message.nonce };
      }
      if (message.secretId !== protection.secretId) throw fail('more than one secret ID in the request');
      if (!message.nonce.equals(protection.nonce)) irregularities.push('more than one nonce in the request');
      if (!/^"[^"]+"$/.test(text)) irregularities.push('a message without its quotes');
      if (/:.*[A-F]/.test(text)) irregularities.push('a message with upper-case hex');
      const iv = message.iv.toString('hex');
      if (ivs.has(iv)) irregularities.push('an iv used twice in the request');
      ivs.add(iv);
      return openMessage(protection, sequence++, message);
    },
  };
}

/** Seals the next message of one response; returns it with its quotes. */
export type Sealer = (plaintext: string) => string;

/** The sealer for the response to a request: its nonce, a counter of its own, a fresh iv per message. */
export function createSealer(given: Protection): Sealer {
  const { key } = given; // imported once, not for every message
  const protection = { ...given, key: key instanceof Uint8Array ? createSecretKey(key) : key };
  let sequence = 0;
  return (plaintext) => sealMessage(protection, sequence++, randomBytes(IV_BYTES), Buffer.from(plaintext));
}

/** Member names that the service's path library misreads (docs/protocol/inference.md 5.4). */
const UNADDRESSABLE =
  /^$|[|\\]|^[{[:!]|^@(pretty|ugly|reverse|this|flatten|join|valid|keys|values|tostr|fromstr|group|dig)([:|]|$)/;

function utf8(bytes: Uint8Array): string {
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    throw fail('body is not valid UTF-8');
  }
}

/** Opens every member that is not in `plain`; returns the JSON text of the whole body. Throws Rejection. */
export function openMembers(body: Uint8Array, plain: ReadonlySet<string>, opener: Opener): string {
  const text = utf8(body);
  let top: ReturnType<typeof topLevelOf>;
  try {
    top = topLevelOf(text);
  } catch {
    throw fail('decoding JSON: invalid body');
  }
  if (top.kind !== 'object') throw fail('decoding JSON: body is not an object');

  const names = new Set<string>();
  for (const { name } of top.spans) {
    if (names.has(name)) throw fail(`member ${JSON.stringify(name)} occurs twice`);
    if (UNADDRESSABLE.test(name)) throw fail(`member name ${JSON.stringify(name)} cannot be addressed`);
    names.add(name);
  }

  const opened = new Map<Span, string>();
  for (const span of inSequenceOrder(top.spans)) {
    if (plain.has(span.name)) continue;
    const raw = text.slice(span.start, span.end);
    // A member that is no message is plaintext and should not be here. Never quote it in the response.
    if (!raw.startsWith('"')) throw fail(`member ${JSON.stringify(span.name)} is not encrypted`);
    const value = utf8(opener.open(raw));
    try {
      JSON.parse(value);
    } catch {
      throw fail(`member ${JSON.stringify(span.name)} is not JSON after decryption`);
    }
    opened.set(span, value);
  }
  return replaceSpans(text, opened);
}

/**
 * Seals every value of the top level that is not in `plain`: object members, or array elements in the order
 * of their index texts. All other bytes stay. Throws SyntaxError if the text is not JSON.
 */
export function sealMembers(text: string, plain: ReadonlySet<string>, seal: Sealer): string {
  const { spans } = topLevelOf(text);
  const sealed = new Map<Span, string>();
  for (const span of inSequenceOrder(spans)) {
    if (!plain.has(span.name)) sealed.set(span, seal(text.slice(span.start, span.end)));
  }
  return replaceSpans(text, sealed);
}
