/**
 * The one seam of the body protection (design decision 12): what is announced, which headers go with an
 * attempt, and what seals and opens it. Gateway and client import this file and no other of this room, so
 * that another generation of the protocol changes this room alone.
 */
import type { KeyObject } from 'node:crypto';
import { type GpuPolicy, gpuPolicyHeaders } from './gpu-policy.ts';

export type { GpuPolicy } from './gpu-policy.ts';
export { createRequestCipher, type InferenceSecret, type RequestCipher } from './request-cipher.ts';

/** The protocol generation implemented, not the product's version (inference.md section 3). */
export const PROTOCOL_VERSION = 'v1.40.0';

/** Header names of the protection, towards the API and back (inference.md sections 2 and 6). */
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
  readonly key: KeyObject;
  /** Absent for the unstructured endpoint. Must be checked already (`pipeline/model-name.ts`). */
  readonly model: string | undefined;
  readonly shardKey: string | undefined;
  readonly gpuPolicy: GpuPolicy;
  /** Wall clock, ms since 1970. */
  readonly nowMs: number;
}

/** The protection headers of one attempt, as name and value; values are latin1 (UTF-8 bytes of the model). */
export function protectionHeaders(attempt: ProtectedAttempt): Record<string, string> {
  const { policy, mac } = gpuPolicyHeaders({ ...attempt.gpuPolicy, nowMs: attempt.nowMs, key: attempt.key });
  const headers: Record<string, string> = {
    [PROTECTION_HEADERS.version]: PROTOCOL_VERSION,
    [PROTECTION_HEADERS.secretId]: attempt.secretId,
    [PROTECTION_HEADERS.gpuPolicy]: policy,
    [PROTECTION_HEADERS.gpuPolicyMac]: mac,
  };
  if (attempt.model !== undefined) {
    headers[PROTECTION_HEADERS.targetModel] = Buffer.from(attempt.model, 'utf8').toString('latin1');
  }
  if (attempt.shardKey !== undefined) headers[PROTECTION_HEADERS.shardKey] = attempt.shardKey;
  return headers;
}
