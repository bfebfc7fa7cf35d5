/** Every chat, completions and messages request carries a cache salt (inference.md section 8). */
import { randomBytes } from 'node:crypto';
import { PrivatemodeError } from '../errors.ts';
import type { ByteChain } from './json/byte-chain.ts';
import type { JsonIndex, JsonMember } from './json/json-index.ts';
import { memberText } from './json/member-text.ts';

export const SALT_MEMBER = 'cache_salt';
const SALT_BYTES = 32;

/** A member to be put into the body in place of the bytes from `start` to `end`. */
export interface MemberEdit {
  readonly name: string;
  readonly start: number;
  readonly end: number;
  /** What goes before the value: nothing, or a comma, the name and a colon. */
  readonly prefix: string;
  /** JSON text of the value. */
  readonly value: Buffer;
}

/** A fresh salt: 32 CSPRNG bytes as base64, 44 characters. */
export const randomSalt = (): string => randomBytes(SALT_BYTES).toString('base64');

/** The text of the body's own salt; empty where it has none. Throws salt_too_short below 32 bytes. */
export function bodySalt(chain: ByteChain, member: JsonMember): Buffer {
  const text = Buffer.concat(memberText(chain, member));
  if (text.length > 0 && text.length < SALT_BYTES) {
    throw new PrivatemodeError('salt_too_short', 'cache_salt must be at least 32 bytes long');
  }
  return text;
}

/**
 * The edit that gives the body a salt, or undefined where it has one of its own. The body is not serialised
 * anew: the member is added after the last one, or its empty value is replaced. Throws salt_too_short.
 */
export function saltEdit(chain: ByteChain, index: JsonIndex, salt: () => string): MemberEdit | undefined {
  const own = index.members.find(({ name }) => name === SALT_MEMBER);
  if (own !== undefined) {
    if (bodySalt(chain, own).length > 0) return undefined;
    return { name: SALT_MEMBER, start: own.start, end: own.end, prefix: '', value: jsonString(salt()) };
  }
  const last = index.members.at(-1);
  const at = last === undefined ? index.bodyStart : last.end;
  const prefix = `${last === undefined ? '' : ','}"${SALT_MEMBER}":`;
  return { name: SALT_MEMBER, start: at, end: at, prefix, value: jsonString(salt()) };
}

const jsonString = (text: string): Buffer => Buffer.from(JSON.stringify(text), 'utf8');
