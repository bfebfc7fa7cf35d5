/** The interface to body encryption. A new protocol version would change only lib/envelope. */
import type { SecretKey } from '#crypto';

export { type InferenceSecret, type MessageSealer, notAuthentic, RequestCipher } from './message-cipher.ts';

export const PROTOCOL_VERSION = 'v1.40.0'; // not the product's version (docs/protocol/inference.md 3)
/** The value `false` says "unencrypted". Nothing authenticates the header (docs/protocol/inference.md 6). */
export const ENCRYPTED_HEADER = 'privatemode-encrypted';

export interface ProtectedAttempt {
  readonly secretId: string;
  readonly key: SecretKey;
  readonly model: string | undefined; // the model's name, checked by lib/pipeline/plain-values.ts
  readonly shardKey: string | undefined;
  /** Which certificates of its GPUs the service should accept. */
  readonly gpuPolicy: {
    readonly allowUnknown: boolean; // whether to accept certificates unknown to NVIDIA's status service
    readonly gracePeriodHours: number; // how long a revoked certificate is accepted; 0 rejects it at once
  };
  readonly nowMs: number; // ms since 1970, by the wall clock
}

/** The last policy of each key, and its MAC. All requests of one second have the same policy. */
const macs = new WeakMap<SecretKey, { readonly policy: string; readonly mac: string }>();

/**
 * The protection headers of one attempt, except the version (docs/protocol/inference.md 2 and 7). Values are
 * latin1: each UTF-8 byte of the model's name becomes a character.
 */
export function protectionHeaders(attempt: ProtectedAttempt): Record<string, string> {
  const { secretId, key, model, shardKey, gpuPolicy } = attempt;
  const revoked = gpuPolicy.gracePeriodHours > 0 ? ',allow-revoked' : '';
  const unknown = gpuPolicy.allowUnknown ? ',allow-unknown' : '';
  const notBefore = Math.floor(attempt.nowMs / 1000) - gpuPolicy.gracePeriodHours * 3600;
  const policy = `rules=allow-good${revoked}${unknown}; revocation-time-not-before=${notBefore}`;
  let known = macs.get(key);
  if (known?.policy !== policy) {
    known = { policy, mac: key.hmacSha256(policy) };
    macs.set(key, known);
  }
  return {
    'Privatemode-Secret-ID': secretId,
    'Privatemode-NVIDIA-OCSP-Policy': policy,
    'Privatemode-NVIDIA-OCSP-Policy-MAC': known.mac,
    ...(model !== undefined && { 'Privatemode-Target-Model': Buffer.from(model, 'utf8').toString('latin1') }),
    ...(shardKey !== undefined && { 'Privatemode-Shard-Key': shardKey }),
  };
}
