/**
 * Computes the shard key: a fingerprint of the salted prompt, link by link. By it the service finds the
 * machine that has the prompt's prefix cached (docs/protocol/inference.md 8).
 */
import { sha256, sha256Latin1 } from '#crypto/digest';
import { PrivatemodeError } from '../errors.ts';
import type { Value } from './encrypt-body.ts';

export const SALT_MEMBER = 'cache_salt';
/** Bytes of the shortest salt. */
export const SALT_BYTES = 32;

/**
 * Longest JSON text, in bytes, of a string or a number that is decoded, because decoding holds up every other
 * request. No prompt that may be hashed is longer: it has at most a million tokens of four bytes, and each
 * byte takes six if it is escaped.
 */
const MAX_TEXT_BYTES = 24 * 1024 * 1024;

/**
 * Digits as written for integers, else the shortest plain decimal: `1.50` becomes `1.5`, `1e3` becomes
 * `1000`.
 */
function numberText(written: string): string {
  if (/^-?[0-9]+$/.test(written)) return written;
  const value = Number(written);
  if (!Number.isFinite(value)) return value > 0 ? '+Inf' : '-Inf';
  return value.toLocaleString('en', { useGrouping: false, maximumSignificantDigits: 17 });
}

/**
 * The text of a member as the service reads it (docs/protocol/inference.md 8, "text()"), in UTF-8: a string
 * decoded, arrays, objects and flags raw, null empty. `raw`: its JSON text. Throws context_too_large where a
 * string or a number is longer than 24 MiB.
 */
function memberText(raw: Buffer): Buffer {
  const first = String.fromCharCode(raw[0]!);
  if ('{[tf'.includes(first)) return raw;
  if (first === 'n') return Buffer.alloc(0);
  if (raw.length > MAX_TEXT_BYTES) {
    const message = `a text of the request is longer than ${MAX_TEXT_BYTES} bytes`;
    throw new PrivatemodeError('context_too_large', message);
  }
  if (first !== '"') return Buffer.from(numberText(raw.toString('latin1')), 'latin1');
  return raw.includes('\\') ? Buffer.from(JSON.parse(raw.toString('utf8')), 'utf8') : raw.subarray(1, -1);
}

/** The text of the member of that name; undefined if there is none. Throws context_too_large. */
function textOf(values: readonly Value[], name: string): Buffer | undefined {
  const bytes = values.find((value) => value.name === name)?.bytes;
  return bytes && memberText(bytes);
}

/**
 * The text of the body's own salt; undefined if it has none, or one that is null or an empty string. Throws
 * salt_too_short if it has 1 to 31 bytes, and context_too_large.
 */
export function ownSalt(values: readonly Value[]): Buffer | undefined {
  const text = textOf(values, SALT_MEMBER);
  if (text === undefined || text.length === 0) return undefined;
  if (text.length >= SALT_BYTES) return text;
  throw new PrivatemodeError('salt_too_short', 'cache_salt must be at least 32 bytes long');
}

/** The members whose texts are hashed, in this order. */
const CONTENT_MEMBERS = ['system', 'tools', 'messages', 'prompt', 'suffix'];
const BASE64 = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/';
const DIGEST_BYTES = 32;
const TOKEN_BYTES = 4;
const TOKEN_LIMIT = 1_000_000;
/** How many tokens a link covers, by its first token. */
const STEPS = [
  { from: 100_096, tokens: 512 },
  { from: 1024, tokens: 128 },
  { from: 0, tokens: 16 },
];

const stepAt = (token: number): number => STEPS.find(({ from }) => token >= from)!.tokens;

/**
 * Hashes content under a salt (UTF-8 bytes); the pieces may be cut anywhere. `update` throws
 * context_too_large beyond 1 000 000 tokens of four bytes.
 */
export function createShardKeyHash(salt: Uint8Array) {
  const seed = Buffer.from(sha256(salt));
  const block = Buffer.alloc(DIGEST_BYTES + 512 * TOKEN_BYTES); // the last digest, then the content of a link
  seed.copy(block);
  let filled = DIGEST_BYTES;
  let size = DIGEST_BYTES + stepAt(0) * TOKEN_BYTES;
  let hashed = 0; // tokens
  let total = 0; // bytes
  let links = '';
  return {
    update(content: Uint8Array): void {
      total += content.length;
      if (Math.floor(total / TOKEN_BYTES) > TOKEN_LIMIT) {
        // Agents compact a conversation at the first words (docs/decisions.md 47). Claude Code would drop as
        // many tokens as the message says are too many, and their number is not known here.
        const message = `prompt is too long: more than ${TOKEN_LIMIT} tokens, of which a shared prompt cache counts one for each four bytes, images included`;
        throw new PrivatemodeError('context_too_large', message);
      }
      for (let i = 0; i < content.length; ) {
        const take = Math.min(size - filled, content.length - i);
        block.set(content.subarray(i, i + take), filled);
        filled += take;
        i += take;
        if (filled < size) break;
        // Taken as text, because a Buffer for the digest costs more than the hash.
        block.write(sha256Latin1(block.subarray(0, size)), 'latin1');
        links += BASE64[block[DIGEST_BYTES - 1]! & 0x3f]!;
        hashed += (size - DIGEST_BYTES) / TOKEN_BYTES;
        filled = DIGEST_BYTES;
        size = DIGEST_BYTES + stepAt(hashed) * TOKEN_BYTES;
      }
    },
    digest(): string {
      const key = seed.toString('hex', 0, 8);
      return links === '' ? key : `${key}-${links}`;
    },
  };
}

/** The shard key of a prompt under that salt (UTF-8 bytes). Throws context_too_large. */
export function shardKeyOf(values: readonly Value[], salt: Uint8Array): string {
  const hash = createShardKeyHash(salt);
  for (const name of CONTENT_MEMBERS) {
    const text = textOf(values, name);
    if (text !== undefined) hash.update(text);
  }
  return hash.digest();
}
