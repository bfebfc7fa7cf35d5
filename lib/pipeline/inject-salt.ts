/**
 * Gives a request its cache salt: chat, completions and messages carry one (docs/protocol/inference.md 8).
 */
import { randomBytes } from '../crypto/random.ts';
import { type JsonContent, type MemberEdit, type ParsedBody, valueEdit } from './request-body.ts';
import { ownSalt, SALT_BYTES, SALT_MEMBER, shardKeyOf } from './shard-key.ts';

/** A body that is ready to be encrypted. */
export interface SaltedBody extends ParsedBody {
  /** For the shard-key header; undefined if no salt is known beyond this request. */
  readonly shardKey: string | undefined;
  /**
   * The edit that gives a JSON object its salt; undefined if the body needs none. The salt is never a plain
   * member.
   */
  readonly edit: MemberEdit | undefined;
}

/** Which salts requests get. */
export interface SaltRule {
  /** The salt of requests that bring none; undefined: each of them gets a random one. */
  readonly shared: string | undefined;
  /** Makes the salt that replaces the one of a body. `own`: the text of the body's salt, in UTF-8. */
  readonly mix?: ((own: Uint8Array) => string) | undefined;
}

/** A fresh salt: 32 random bytes as base64, 44 characters. */
export const randomSalt = (): string => randomBytes(SALT_BYTES).toString('base64');

/**
 * Returns the body with its shard key and the edit that gives it a salt. The salt is the body's own, or the
 * one that was mixed from it. A body without a salt gets the shared one; if there is none, it gets a random
 * salt and no shard key. Bodies of other endpoints stay as they are. Throws context_too_large and
 * salt_too_short.
 */
export function injectSalt<B extends ParsedBody>(
  body: B,
  { shared, mix }: SaltRule,
  random: () => string = randomSalt,
): B & SaltedBody {
  const { content } = body;
  if (content.kind !== 'json' || !content.salted) return { ...body, shardKey: undefined, edit: undefined };
  const { bytes, members } = content;
  const own = ownSalt(bytes, members);
  const replaced = own === undefined ? shared : mix?.(own);
  const known = replaced === undefined ? own : Buffer.from(replaced, 'utf8');
  const shardKey = known && shardKeyOf(bytes, members, known);
  const salt = replaced ?? (own === undefined ? random() : undefined);
  return { ...body, shardKey, edit: salt === undefined ? undefined : saltEdit(content, salt) };
}

/** The edit that puts the salt in the place of the one that the body has, or after the last member. */
function saltEdit({ members }: JsonContent, salt: string): MemberEdit {
  const present = valueEdit(members, SALT_MEMBER, salt);
  if (present !== undefined) return present;
  const at = members.at(-1)!.end; // every body has a model
  const value = Buffer.from(JSON.stringify(salt), 'utf8');
  return { name: SALT_MEMBER, start: at, end: at, prefix: `,"${SALT_MEMBER}":`, value };
}
