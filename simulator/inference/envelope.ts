/**
 * The server side of the message format, written literally from docs/protocol/inference.md 4 and 5. It shares
 * no code with lib/envelope, because the simulator tests that code.
 */
import { createCipheriv, createDecipheriv, createSecretKey, randomBytes } from 'node:crypto';
import { inSequenceOrder, replaceSpans, type Span, topLevelOf } from './json-text.ts';
import { Rejection } from './rejection.ts';

const NONCE_BYTES = 12;
const IV_BYTES = 12;
const TAG_BYTES = 16;

interface Message {
  readonly secretId: string;
  readonly nonce: Buffer;
  readonly iv: Buffer;
  readonly ciphertext: Buffer;
  readonly tag: Buffer;
}

/** The secret and nonce that protect one request and its response. */
export interface Protection {
  readonly secretId: string;
  readonly key: Uint8Array;
  readonly nonce: Buffer;
}

const fail = (what: string): Rejection => new Rejection(500, `decrypting request: ${what}`);

function hexBytes(text: string, what: string): Buffer {
  if (text.length % 2 !== 0 || !/^[0-9a-fA-F]*$/.test(text)) throw fail(`${what} is not hex`);
  return Buffer.from(text, 'hex');
}

/** `"id:nonce:iv:ciphertext"`, with or without its quotes. Throws Rejection. */
function parseMessage(text: string): Message {
  const parts = text.replace(/^"+|"+$/g, '').split(':');
  const [secretId, nonceHex, ivHex, sealedHex] = parts;
  if (parts.length !== 4 || !secretId || nonceHex === undefined || ivHex === undefined || !sealedHex) {
    throw fail('invalid message format');
  }
  const nonce = hexBytes(nonceHex, 'nonce');
  const iv = hexBytes(ivHex, 'iv');
  const sealed = hexBytes(sealedHex, 'ciphertext');
  if (nonce.length !== NONCE_BYTES) throw fail('nonce has the wrong length');
  if (iv.length !== IV_BYTES) throw fail('iv has the wrong length');
  if (sealed.length < TAG_BYTES) throw fail('ciphertext too short');
  const end = sealed.length - TAG_BYTES;
  return { secretId, nonce, iv, ciphertext: sealed.subarray(0, end), tag: sealed.subarray(end) };
}

function additionalData(nonce: Uint8Array, sequence: number): Buffer {
  const counter = Buffer.alloc(4);
  counter.writeUInt32LE(sequence);
  return Buffer.concat([nonce, counter]);
}

/** Opens the messages of one request, in order. */
export interface Opener {
  /** Opens the next message. `text`: the message with its quotes. Throws Rejection. */
  open(text: string): Buffer;
  /** Secret and nonce for the response; undefined until a message was opened. */
  protection(): Protection | undefined;
  /** Deviations that the server accepts but a good client avoids. */
  readonly irregularities: readonly string[];
}

/** `lookup` finds a secret by its id. The first message decides the secret and the nonce of the exchange. */
export function createOpener(lookup: (id: string) => Uint8Array | undefined): Opener {
  let protection: Protection | undefined;
  let sequence = 0;
  const ivs = new Set<string>();
  const irregularities: string[] = [];

  return {
    irregularities,
    protection: () => protection,
    open(text) {
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

      const decipher = createDecipheriv('aes-256-gcm', protection.key, message.iv);
      decipher.setAAD(additionalData(protection.nonce, sequence++));
      decipher.setAuthTag(message.tag);
      try {
        return Buffer.concat([decipher.update(message.ciphertext), decipher.final()]);
      } catch {
        throw fail('cipher: message authentication failed');
      }
    },
  };
}

/** Seals the next message of one response; returns it with its quotes. */
export type Sealer = (plaintext: string) => string;

/**
 * Makes the sealer for the response to a request. It uses the request's nonce, its own counter and a fresh iv
 * per message (tests with golden data pass `newIv`).
 */
export function createSealer(
  { secretId, key, nonce }: Protection,
  newIv: () => Uint8Array = () => randomBytes(IV_BYTES),
): Sealer {
  const head = `"${secretId}:${nonce.toString('hex')}:`;
  const secret = createSecretKey(key); // imported once, not for every message
  let sequence = 0;
  return (plaintext) => {
    const iv = newIv();
    const cipher = createCipheriv('aes-256-gcm', secret, iv);
    cipher.setAAD(additionalData(nonce, sequence++));
    const ciphertext = cipher.update(plaintext, 'utf8', 'hex') + cipher.final('hex');
    return `${head}${Buffer.from(iv).toString('hex')}:${ciphertext}${cipher.getAuthTag().toString('hex')}"`;
  };
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

/**
 * Opens every member that is not in `plain` and returns the JSON text of the whole body. Throws Rejection.
 */
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
