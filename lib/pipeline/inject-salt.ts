/** The salt of a request: chat, completions and messages carry a cache salt (docs/protocol/inference.md 8). */
import { randomBytes } from '../crypto/random.ts';
import { type JsonContent, type MemberEdit, type ParsedBody, valueEdit } from './request-body.ts';
import { SALT_BYTES, SALT_MEMBER } from './shard-key.ts';

/** A body that may be encrypted. */
export interface SaltedBody extends ParsedBody {
  /** For the shard-key header; undefined where no salt is known beyond this request. */
  readonly shardKey: string | undefined;
  /** Gives a JSON object its salt, which is never a plain member; undefined where it needs none. */
  readonly edit: MemberEdit | undefined;
}

/** A fresh salt: 32 random bytes as base64, 44 characters. */
export const randomSalt = (): string => randomBytes(SALT_BYTES).toString('base64');

/**
 * The body with a salt, and its shard key. A body's own salt counts, or the one that was mixed from it; one without any gets `sharedSalt`, the one its shard key was
 * hashed under while it arrived, or else a random one and no shard key. Bodies of other endpoints stay as they are.
 * Throws context_too_large. A salt that is too short was refused while the body arrived (shard-key.ts).
 */
export function injectSalt<B extends ParsedBody>(
  body: B,
  sharedSalt: string | undefined,
  random: () => string = randomSalt,
): B & SaltedBody {
  const { content } = body;
  if (content.kind !== 'json' || content.shardKeyScan === undefined) {
    return { ...body, shardKey: undefined, edit: undefined };
  }
  const shardKey = content.shardKeyScan.finish();
  const { hasOwnSalt, mixedSalt } = content.shardKeyScan;
  const salt = hasOwnSalt ? mixedSalt : (sharedSalt ?? random());
  return { ...body, shardKey, edit: salt === undefined ? undefined : saltEdit(content, salt) };
}

/** The edit that gives the body that salt in place of the one that it has, or after the last member. */
function saltEdit({ members, bodyStart }: JsonContent, salt: string): MemberEdit {
  const present = valueEdit(members, SALT_MEMBER, salt);
  if (present !== undefined) return present;
  const value = [Buffer.from(JSON.stringify(salt), 'utf8')];
  const last = members.at(-1);
  const at = last?.end ?? bodyStart;
  const prefix = `${last === undefined ? '' : ','}"${SALT_MEMBER}":`;
  return { name: SALT_MEMBER, start: at, end: at, prefix, value };
}
