/** The interface of the body protection: another generation of the protocol changes this room alone. */
import type { SecretKey } from '#crypto';

export { type InferenceSecret, type MessageSealer, notAuthentic, RequestCipher } from './message-cipher.ts';

export const PROTOCOL_VERSION = 'v1.40.0'; // of the protocol, not the product (docs/protocol/inference.md 3)
/** With the value `false`, it says "not encrypted", and nothing authenticates it (section 6). */
export const ENCRYPTED_HEADER = 'privatemode-encrypted';

export interface ProtectedAttempt {
  readonly secretId: string;
  readonly key: SecretKey;
  readonly model: string | undefined; // checked already (lib/pipeline/plain-members.ts)
  readonly shardKey: string | undefined;
  /** Which certificates of its GPUs the service should accept. */
  readonly gpuPolicy: {
    readonly allowUnknown: boolean; // those that the status service does not know
    readonly gracePeriodHours: number; // after a revocation; 0: none
  };
  readonly nowMs: number; // wall clock, since 1970
}

/** The last policy under a key, and its MAC: the requests of one second have the same. */
const macs = new WeakMap<SecretKey, { readonly policy: string; readonly mac: string }>();

/**
 * The protection headers of one attempt but the version (docs/protocol/inference.md 2 and 7). Values are
 * latin1: the model's holds its UTF-8 bytes.
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
