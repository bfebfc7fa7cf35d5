/**
 * The interface of the body protection: the protocol version that an attempt announces, its headers, and the
 * cipher that seals and opens its messages. Code outside this room makes them only through this file, so that
 * another generation of the protocol changes this room alone.
 */
import { checkKey, hmacSha256, type SecretKey } from '#crypto/aead';

export { createRequestCipher, type InferenceSecret, type RequestCipher } from './message-cipher.ts';

/** Which certificates of its GPUs the service should accept. */
export interface GpuPolicy {
  /** Whether the service accepts certificates that the status service does not know. */
  readonly allowUnknown: boolean;
  /** How long the service still accepts a certificate after its revocation; 0 = not at all. */
  readonly gracePeriodHours: number;
}

/** The protocol generation implemented, not the product's version (docs/protocol/inference.md, section 3). */
export const PROTOCOL_VERSION = 'v1.40.0';

/**
 * The response header that exactly `false` marks as not encrypted, in lower case (docs/protocol/inference.md,
 * section 6). Nothing authenticates it.
 */
export const ENCRYPTED_HEADER = 'privatemode-encrypted';

export interface ProtectedAttempt {
  readonly secretId: string;
  readonly key: SecretKey;
  /** Absent for the unstructured endpoint. Must be checked already (lib/pipeline/plain-members.ts). */
  readonly model: string | undefined;
  readonly shardKey: string | undefined;
  readonly gpuPolicy: GpuPolicy;
  /** Wall clock, ms since 1970. */
  readonly nowMs: number;
}

/** The header value of the policy at that time (docs/protocol/inference.md, section 7). */
function policyText({ gpuPolicy: { allowUnknown, gracePeriodHours }, nowMs }: ProtectedAttempt): string {
  const revoked = gracePeriodHours > 0 ? ',allow-revoked' : '';
  const unknown = allowUnknown ? ',allow-unknown' : '';
  const notBefore = Math.floor(nowMs / 1000) - gracePeriodHours * 3600;
  return `rules=allow-good${revoked}${unknown}; revocation-time-not-before=${notBefore}`;
}

/** The last policy under a key, and its MAC: the requests of one second have the same. */
const macs = new WeakMap<SecretKey, { readonly policy: string; readonly mac: string }>();

/**
 * The protection headers of one attempt, as name and value (docs/protocol/inference.md, section 2). Values
 * are latin1: the model's holds its UTF-8 bytes. `protocolVersion` is only announced, and decides nothing
 * else. Throws `internal` unless the key holds 32 bytes.
 */
export function protectionHeaders(
  attempt: ProtectedAttempt,
  protocolVersion: string = PROTOCOL_VERSION,
): Record<string, string> {
  const { secretId, key, model, shardKey } = attempt;
  checkKey(key);
  const policy = policyText(attempt);
  let known = macs.get(key);
  if (known?.policy !== policy) {
    known = { policy, mac: hmacSha256(key, policy) };
    macs.set(key, known);
  }
  return {
    'Privatemode-Version': protocolVersion,
    'Privatemode-Secret-ID': secretId,
    'Privatemode-NVIDIA-OCSP-Policy': policy,
    'Privatemode-NVIDIA-OCSP-Policy-MAC': known.mac,
    ...(model !== undefined && { 'Privatemode-Target-Model': Buffer.from(model, 'utf8').toString('latin1') }),
    ...(shardKey !== undefined && { 'Privatemode-Shard-Key': shardKey }),
  };
}
