/** A secret, a nonce and ivs for tests, as the vectors and the property tests need them. */
import type { SecretKey } from '#crypto';
import { RequestCipher } from '../../../lib/envelope/message-cipher.ts';
import type { RequestFacts } from '../../../lib/pipeline/decrypter.ts';
import { keyOf } from '../evidence/engine.ts';
import type { LiteralExchange } from './literal-envelope.ts';

export const hex = (text: string): Buffer => Buffer.from(text, 'hex');

const SECRET = hex('000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f');

/** For both sides: `key` is the product's, `secret` the literal envelope's. */
export const EXCHANGE: LiteralExchange & { readonly key: SecretKey } = {
  id: 'YbrjTROzYmqPU07Q09kU1FyTQt6qGHQFBvIOcMOTZ2I=',
  key: keyOf(SECRET),
  secret: SECRET,
  nonce: hex('a0a1a2a3a4a5a6a7a8a9aaab'),
};

/** Ivs 0, 1, 2 ... as 12-byte big-endian numbers. */
export function countingIvs(): () => Buffer {
  let next = 0;
  return () => {
    const iv = Buffer.alloc(12);
    iv.writeUInt32BE(next++, 8);
    return iv;
  };
}

/** The given ivs (hex), one after the other; asks for no more than there are. */
export function listedIvs(ivsHex: readonly string[]): () => Buffer {
  let next = 0;
  return () => {
    const iv = ivsHex[next++];
    if (iv === undefined) throw new Error('more ivs were drawn than the vector has');
    return hex(iv);
  };
}

/** A cipher for EXCHANGE with its nonce. */
export const fixedCipher = (options: ConstructorParameters<typeof RequestCipher>[1] = {}) =>
  new RequestCipher(EXCHANGE, { nonce: EXCHANGE.nonce, ...options });

/** What most requests ask for. */
export const ASKED: RequestFacts = { streaming: true, choices: 1, format: undefined, usage: 'every' };
