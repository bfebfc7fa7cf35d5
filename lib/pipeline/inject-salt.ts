/**
 * Gives a request its cache salt: chat, completions and messages carry one (docs/protocol/inference.md 8).
 */
import { randomBytes } from '../crypto/random.ts';
import { type JsonContent, type MemberEdit, type ParsedBody, valueEdit } from './request-body.ts';
import { SALT_BYTES, SALT_MEMBER } from './shard-key.ts';

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

/** A fresh salt: 32 random bytes as base64, 44 characters. */
export const randomSalt = (): string => randomBytes(SALT_BYTES).toString('base64');

/**
 * Returns the body with its shard key and the edit that gives it a salt. The salt is the body's own, or the
 * one that was mixed from it. A body without a salt gets `sharedSalt`, under which its shard key was hashed
 * while it arrived; without `sharedSalt` it gets a random salt and no shard key. Bodies of other endpoints
 * stay as they are. Throws context_too_large. A salt that is too short was refused while the body arrived
 * (shard-key.ts).
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

/** The edit that puts the salt in the place of the one that the body has, or after the last member. */
function saltEdit({ members, bodyStart }: JsonContent, salt: string): MemberEdit {
  const present = valueEdit(members, SALT_MEMBER, salt);
  if (present !== undefined) return present;
  const value = [Buffer.from(JSON.stringify(salt), 'utf8')];
  const last = members.at(-1);
  const at = last?.end ?? bodyStart;
  const prefix = `${last === undefined ? '' : ','}"${SALT_MEMBER}":`;
  return { name: SALT_MEMBER, start: at, end: at, prefix, value };
}
