/**
 * Computes the shard key while the body arrives. The key is a fingerprint of the salted prompt, link by link:
 * by it the service finds the machine that has the prompt's prefix cached (docs/protocol/inference.md 8).
 */
import { sha256, sha256Latin1 } from '#crypto/digest';
import { PrivatemodeError } from '../errors.ts';
import type { ByteChain } from './json/byte-chain.ts';
import type { JsonIndex, JsonMember } from './json/json-index.ts';

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
 * The text of a member as the service reads it (docs/protocol/inference.md 8, "text()"), in pieces of UTF-8:
 * a string decoded, arrays and objects raw, null empty. Throws context_too_large where a string or a number
 * is longer than 24 MiB.
 */
function memberText(chain: ByteChain, { kind, start, end }: JsonMember): readonly Uint8Array[] {
  if (kind === 'object' || kind === 'array') return chain.slices(start, end);
  if (kind === 'null') return [];
  if (end - start > MAX_TEXT_BYTES) {
    const message = `a text of the request is longer than ${MAX_TEXT_BYTES} bytes`;
    throw new PrivatemodeError('context_too_large', message);
  }
  const raw = chain.bytes(start, end);
  if (kind === 'number') return [Buffer.from(numberText(raw.toString('latin1')), 'latin1')];
  if (kind !== 'string') return [raw];
  return [raw.includes(0x5c) ? Buffer.from(JSON.parse(raw.toString('utf8')), 'utf8') : raw.subarray(1, -1)];
}

/**
 * The text of the body's own salt; empty if the member is null or an empty string. Throws salt_too_short if
 * it has 1 to 31 bytes, and context_too_large.
 */
function saltText(chain: ByteChain, member: JsonMember): Buffer {
  const text = Buffer.concat(memberText(chain, member));
  if (text.length > 0 && text.length < SALT_BYTES) {
    throw new PrivatemodeError('salt_too_short', 'cache_salt must be at least 32 bytes long');
  }
  return text;
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

/** Makes the salt that replaces the one of a body. `own`: the text of the body's salt, in UTF-8. */
export type MixSalt = (own: Uint8Array) => string;

export type ShardKeyScan = ReturnType<typeof createShardKeyScan>;

/**
 * Hashes the shard key of a body while it arrives, as long as its members come in the order of
 * CONTENT_MEMBERS and no other salt turns up. Otherwise `finish` hashes the complete body from the start.
 * `sharedSalt` counts if the body has no salt of its own. `mixSalt` makes the salt that replaces the body's
 * own. `advance` and `finish` throw context_too_large and salt_too_short.
 */
export function createShardKeyScan(
  chain: ByteChain,
  index: JsonIndex,
  sharedSalt: string | undefined,
  mixSalt?: MixSalt,
) {
  let salt: Buffer | undefined = sharedSalt === undefined ? undefined : Buffer.from(sharedSalt, 'utf8');
  let early: ReturnType<typeof createShardKeyHash> | undefined;
  let possible = true; // to hash while the body arrives
  let done = 0; // members dealt with
  let rank = -1; // of the last content member hashed
  let fed = 0; // absolute position up to which the arriving member is hashed

  const takeSalt = (member: JsonMember): void => {
    const own = saltText(chain, member);
    if (own.length === 0) return;
    scan.hasOwnSalt = true;
    scan.mixedSalt = mixSalt?.(own);
    const next = scan.mixedSalt === undefined ? own : Buffer.from(scan.mixedSalt, 'utf8');
    if (early !== undefined && !next.equals(salt!)) possible = false;
    salt = next;
  };

  /** Hashes a content member. Of an array or an object that is still arriving, it hashes what has arrived. */
  const take = (member: JsonMember, complete: boolean): void => {
    const at = CONTENT_MEMBERS.indexOf(member.name);
    if (at < 0) return;
    if (at < rank || salt === undefined) possible = false;
    if (!possible || salt === undefined) return;
    rank = at;
    early ??= createShardKeyHash(salt);
    if (member.kind === 'array' || member.kind === 'object') {
      chain.slices(Math.max(fed, member.start), member.end).forEach(early.update);
      fed = member.end;
    } else if (complete) memberText(chain, member).forEach(early.update);
  };

  const scan = {
    /** Whether the body has a salt of its own; final once it is complete. */
    hasOwnSalt: false,
    /** The salt that replaces the body's own; undefined if the body keeps its own. */
    mixedSalt: undefined as string | undefined,
    /** Call it after the index has taken a chunk: it hashes what can be hashed already. */
    advance(): void {
      for (; done < index.members.length; done++) {
        const member = index.members[done]!;
        if (member.name === SALT_MEMBER) takeSalt(member);
        else take(member, true);
      }
      if (index.current !== undefined) take({ ...index.current, end: chain.length }, false);
    },
    /**
     * Call it when the index is complete. Returns the key, or undefined if neither the body nor `sharedSalt`
     * gives a salt.
     */
    finish(): string | undefined {
      scan.advance();
      if (salt === undefined) return undefined;
      if (possible && early !== undefined) return early.digest();
      const late = createShardKeyHash(salt);
      for (const wanted of CONTENT_MEMBERS) {
        const member = index.members.find(({ name }) => name === wanted);
        if (member !== undefined) memberText(chain, member).forEach(late.update);
      }
      return late.digest();
    },
  };
  return scan;
}
