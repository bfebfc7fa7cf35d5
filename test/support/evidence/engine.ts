/**
 * Keys for whichever engine of lib/crypto this process runs: `node --conditions=portable` takes the portable
 * one.
 */
import { createHmac } from 'node:crypto';
import { SecretKey } from '#crypto';
import { NODE_ALONE } from '../../suites.ts';

export const ENGINE = import.meta.resolve('#crypto').endsWith('/portable.ts') ? 'portable' : 'node';

/** A key of these bytes, which stay as they are. */
export const keyOf = (bytes: Uint8Array): SecretKey => new SecretKey(Uint8Array.from(bytes));

/** Whether the key is made of these bytes, without a way to read them out. */
export const isMadeOf = (key: SecretKey, bytes: Uint8Array): boolean =>
  key.hmacSha256('the same') === createHmac('sha256', bytes).update('the same').digest('hex');

/**
 * For the options of a test that is about OpenSSL's own objects: the portable engine has nothing like them.
 */
export const ONLY_OPENSSL = (why: string): { readonly skip: string | false } => ({
  skip: ENGINE === 'portable' && `${NODE_ALONE}${why}`,
});
