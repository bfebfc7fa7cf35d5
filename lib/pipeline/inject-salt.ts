/** Adds the cache salt and the shard key, which finds a cached prompt (docs/protocol/inference.md 8). */
import { sha256, sha256Latin1 } from '#crypto';
import { randomBytes } from '../crypto/random.ts';
import { PrivatemodeError } from '../errors.ts';
import type { Value } from './encrypt-body.ts';
import type { ParsedBody } from './request-body.ts';

export interface SaltedBody extends ParsedBody {
  readonly shardKey: string | undefined; // undefined if the salt is random: no other request has this salt
}

interface SaltRule {
  readonly shared: string | undefined; // for requests without a salt; undefined: each gets a random salt
  readonly mix?: ((own: Uint8Array) => string) | undefined; // makes a salt from a body's own salt (UTF-8)
}

const SALT_MEMBER = 'cache_salt';
export const SALT_BYTES = 32; // bytes of the shortest accepted salt, and of a random salt before base64
export const randomSalt = (): string => randomBytes(SALT_BYTES).toString('base64');

/**
 * Returns the body with a salt and a shard key. A salt in the body is kept, or replaced by what `mix` makes
 * of it. A body without a salt gets the shared salt. If no salt is shared, the body gets a random salt and no
 * shard key. Throws context_too_large, and salt_too_short if the body's own salt has 1 to 31 bytes.
 */
export function injectSalt<B extends ParsedBody>(body: B, { shared, mix }: SaltRule): B & SaltedBody {
  const { values, salted } = body;
  if (!salted) return { ...body, shardKey: undefined };
  const own = textOf(values, SALT_MEMBER);
  const hasOwn = own.length > 0; // null and an empty string count as no salt
  if (hasOwn && own.length < SALT_BYTES) {
    throw new PrivatemodeError('salt_too_short', 'cache_salt must be at least 32 bytes long');
  }
  const other = hasOwn ? mix?.(own) : shared;
  const known = other === undefined ? own : Buffer.from(other);
  const shardKey = known.length > 0 ? shardKeyOf(values, known) : undefined;
  if (hasOwn && other === undefined) return { ...body, shardKey };
  const at = values.findIndex(({ name }) => name === SALT_MEMBER);
  const before = values[at]?.before ?? Buffer.from(`,"${SALT_MEMBER}":`); // `model` precedes the salt
  const bytes = Buffer.from(JSON.stringify(other ?? randomSalt()));
  const salt = { name: SALT_MEMBER, before, bytes, isPlain: false };
  return { ...body, shardKey, values: at < 0 ? [...values, salt] : values.with(at, salt) };
}

/** A number as text: an integer as it is written, else a plain decimal (`1.50` → `1.5`, `1e3` → `1000`). */
function numberText(written: string): string {
  if (/^-?[0-9]+$/.test(written)) return written;
  const value = Number(written);
  if (!Number.isFinite(value)) return value > 0 ? '+Inf' : '-Inf';
  return value.toLocaleString('en', { useGrouping: false, maximumSignificantDigits: 17 });
}

/** Limits the time of decoding. Prompts beyond 4 MB are not hashed; fully escaped, 4 MB are 24 MB. */
const MAX_TEXT_BYTES = 24 * 1024 * 1024;
const EMPTY = Buffer.alloc(0);

/** A member's text in UTF-8. The service reads it the same way: text() in docs/protocol/inference.md 8. */
function textOf(values: readonly Value[], name: string): Buffer {
  const raw = values.find((value) => value.name === name)?.bytes ?? EMPTY;
  const first = raw.toString('latin1', 0, 1);
  if ('{[tf'.includes(first)) return raw;
  if (first === 'n') return EMPTY;
  if (raw.length > MAX_TEXT_BYTES) {
    const message = `a text of the request is longer than ${MAX_TEXT_BYTES} bytes`;
    throw new PrivatemodeError('context_too_large', message);
  }
  if (first !== '"') return Buffer.from(numberText(raw.toString('latin1')));
  return raw.includes('\\') ? Buffer.from(JSON.parse(raw.toString('utf8'))) : raw.subarray(1, -1);
}

const CONTENT_MEMBERS = ['system', 'tools', 'messages', 'prompt', 'suffix']; // members hashed, in this order
const BASE64 = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/';
const DIGEST_BYTES = 32;
const TOKEN_BYTES = 4;
const TOKEN_LIMIT = 1_000_000;
/** How many tokens one link of the hash chain covers, if the link begins at `token`. */
const linkFrom = (token: number): number => (token >= 100_096 ? 512 : token >= 1024 ? 128 : 16);

/** The shard key of a prompt under a salt (UTF-8). Throws context_too_large beyond a million tokens. */
export function shardKeyOf(values: readonly Value[], salt: Uint8Array): string {
  const written = values.filter(({ name }) => CONTENT_MEMBERS.includes(name));
  const isLong = written.reduce((sum, { bytes }) => sum + bytes.length, 0) > MAX_TEXT_BYTES;
  const texts = isLong ? [] : CONTENT_MEMBERS.map((name) => textOf(values, name));
  const tokens = Math.floor(texts.reduce((sum, { length }) => sum + length, 0) / TOKEN_BYTES);
  if (isLong || tokens > TOKEN_LIMIT) {
    // "prompt is too long" makes agents compact (docs/architecture.md D47). The model's limit is not known.
    const message = `prompt is too long: more than ${TOKEN_LIMIT} tokens, of which a shared prompt cache counts one for each four bytes, images included`;
    throw new PrivatemodeError('context_too_large', message);
  }
  const content = Buffer.concat(texts);
  const link = Buffer.alloc(DIGEST_BYTES + 512 * TOKEN_BYTES); // the previous link's digest, then content
  link.set(sha256(salt));
  let key = link.toString('hex', 0, 8);
  for (let token = 0, next = linkFrom(0); next <= tokens; token = next, next += linkFrom(next)) {
    if (token === 0) key += '-';
    const size = DIGEST_BYTES + content.copy(link, DIGEST_BYTES, TOKEN_BYTES * token, TOKEN_BYTES * next);
    // The digest is a string, because a Buffer for it would cost more than the hash.
    link.write(sha256Latin1(link.subarray(0, size)), 'latin1');
    key += BASE64[link[DIGEST_BYTES - 1]! & 0x3f]!;
  }
  return key;
}
