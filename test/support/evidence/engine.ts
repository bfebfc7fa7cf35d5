/**
 * Keys for whichever engine of lib/crypto this process runs: `node --conditions=portable` takes the portable
 * one.
 */
import { createHmac, createSecretKey } from 'node:crypto';
import { hmacSha256, type SecretKey, secretKey } from '#crypto/aead';
import { NODE_ALONE } from '../../suites.ts';

export const ENGINE = import.meta.resolve('#crypto/aead').includes('/portable/') ? 'portable' : 'node';

/** A key of these bytes, which stay as they are. */
export const keyOf = (bytes: Uint8Array): SecretKey => secretKey(Uint8Array.from(bytes));

/** Whether the key is made of these bytes, without a way to read them out. */
export const isMadeOf = (key: SecretKey, bytes: Uint8Array): boolean =>
  hmacSha256(key, 'the same') === createHmac('sha256', bytes).update('the same').digest('hex');

/**
 * For the options of a test that is about OpenSSL's own objects: the portable engine has nothing like them.
 */
export const ONLY_OPENSSL = (why: string): { readonly skip: string | false } => ({
  skip: ENGINE === 'portable' && `${NODE_ALONE}${why}`,
});

/**
 * A key of a wrong length. OpenSSL makes one, so that its use has to fail; the portable engine throws
 * `internal` here.
 */
export const wrongKeyOf = (bytes: Uint8Array): SecretKey =>
  ENGINE === 'node' ? createSecretKey(bytes) : keyOf(bytes);
