/** The salts of clients: whose prompts share a cache with whose (docs/operations.md, "A gateway for a team"). */
import { hkdfSync } from 'node:crypto';

/** In the derivations, so that a later rule gives other salts. */
const LABEL = 'privatemode-proxy cache salt v1';
const SALT_BYTES = 32;

/** 64 hex digits: within every rule for a salt (docs/protocol/inference.md 8). No name contains a NUL. */
const derive = (
  key: string | Uint8Array,
  salt: string,
  purpose: 'client' | 'request',
  name: string,
): string =>
  Buffer.from(hkdfSync('sha256', key, salt, `${LABEL}\0${purpose}\0${name}`, SALT_BYTES)).toString('hex');

/**
 * The salt of a client's requests that bring none: HKDF-SHA256 (RFC 5869) of the shared salt, with the client's name as context. Stays
 * the same as long as both do.
 */
export const clientSalt = (sharedSalt: string, name: string): string =>
  derive(sharedSalt, '', 'client', name);

/**
 * What takes the place of a salt that a request brings (its text in UTF-8): HKDF-SHA256 of it, salted with the shared one, if any, with
 * the client's name as context. Two clients that send the same salt get different ones.
 */
export const mixedSalt = (sharedSalt: string | undefined, name: string, own: Uint8Array): string =>
  derive(own, sharedSalt ?? '', 'request', name);
