/**
 * Gives a request its cache salt: chat, completions and messages carry one (docs/protocol/inference.md 8).
 */
import { randomBytes } from '../crypto/random.ts';
import type { Value } from './encrypt-body.ts';
import type { ParsedBody } from './request-body.ts';
import { ownSalt, SALT_BYTES, SALT_MEMBER, shardKeyOf } from './shard-key.ts';

/** A body that is ready to be encrypted. */
export interface SaltedBody extends ParsedBody {
  /** For the shard-key header; undefined if no salt is known beyond this request. */
  readonly shardKey: string | undefined;
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
 * Returns the body with its shard key and its salt. The salt is the body's own, or the one that was mixed from
 * it. A body without a salt gets the shared one; if there is none, it gets a random salt and no shard key.
 * Bodies of other endpoints stay as they are. Throws context_too_large and salt_too_short.
 */
export function injectSalt<B extends ParsedBody>(body: B, { shared, mix }: SaltRule): B & SaltedBody {
  const { content } = body;
  if (!content.salted) return { ...body, shardKey: undefined };
  const own = ownSalt(content.values);
  const replaced = own === undefined ? shared : mix?.(own);
  const known = replaced === undefined ? own : Buffer.from(replaced);
  const shardKey = known && shardKeyOf(content.values, known);
  const salt = replaced ?? (own === undefined ? randomSalt() : undefined);
  if (salt === undefined) return { ...body, shardKey };
  return { ...body, shardKey, content: { ...content, values: withSalt(content.values, salt) } };
}

/** Puts the salt in the place of the one that the body has, or behind the last member. */
function withSalt(values: readonly Value[], salt: string): readonly Value[] {
  const bytes = Buffer.from(JSON.stringify(salt));
  const at = values.findIndex(({ name }) => name === SALT_MEMBER);
  if (at >= 0) return values.with(at, { ...values[at]!, bytes });
  const before = Buffer.from(`,"${SALT_MEMBER}":`); // every body has a model before it
  return [...values, { name: SALT_MEMBER, before, bytes, isPlain: false }];
}
