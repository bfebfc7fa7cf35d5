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
 * Header names of the protection, towards the API and back (docs/protocol/inference.md, sections 2 and 6).
 */
export const PROTECTION_HEADERS = {
  version: 'Privatemode-Version',
  secretId: 'Privatemode-Secret-ID',
  targetModel: 'Privatemode-Target-Model',
  shardKey: 'Privatemode-Shard-Key',
  gpuPolicy: 'Privatemode-NVIDIA-OCSP-Policy',
  gpuPolicyMac: 'Privatemode-NVIDIA-OCSP-Policy-MAC',
  /** Response header; exactly `false` marks a body that is not encrypted. Unauthenticated. */
  encrypted: 'Privatemode-Encrypted',
} as const;

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
 * The protection headers of one attempt, as name and value. Values are latin1: the model's holds its UTF-8
 * bytes. `protocolVersion` is only announced, and decides nothing else. Throws `internal` unless the key
 * holds 32 bytes.
 */
export function protectionHeaders(
  attempt: ProtectedAttempt,
  protocolVersion: string = PROTOCOL_VERSION,
): Record<string, string> {
  const { secretId, key, model, shardKey } = attempt;
  checkKey(key);
  const policy = policyText(attempt);
  const known = macs.get(key);
  const mac = known?.policy === policy ? known.mac : hmacSha256(key, policy);
  if (mac !== known?.mac) macs.set(key, { policy, mac });
  const headers: Record<string, string> = {
    [PROTECTION_HEADERS.version]: protocolVersion,
    [PROTECTION_HEADERS.secretId]: secretId,
    [PROTECTION_HEADERS.gpuPolicy]: policy,
    [PROTECTION_HEADERS.gpuPolicyMac]: mac,
  };
  if (model !== undefined) {
    headers[PROTECTION_HEADERS.targetModel] = Buffer.from(model, 'utf8').toString('latin1');
  }
  if (shardKey !== undefined) headers[PROTECTION_HEADERS.shardKey] = shardKey;
  return headers;
}
