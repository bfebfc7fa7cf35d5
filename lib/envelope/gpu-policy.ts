/** The certificate-status policy for the remote's GPUs, and its MAC (inference.md section 7). */
import { createHmac, type KeyObject } from 'node:crypto';
import { KEY_BYTES } from '../crypto/aead.ts';
import { PrivatemodeError } from '../errors.ts';

export interface GpuPolicy {
  /** Whether certificates the status service knows nothing about are accepted. */
  readonly allowUnknown: boolean;
  /** How long after its revocation a certificate is still accepted; 0 = not at all. */
  readonly gracePeriodHours: number;
}

/** The policy text for those statuses and that unix time in seconds. */
export function gpuPolicyText(statuses: readonly string[], notBefore: number): string {
  return `rules=${statuses.join(',')}; revocation-time-not-before=${notBefore}`;
}

/** Lower-case hex HMAC-SHA256 of the policy under the first 32 bytes of the secret. Throws `internal` below 32. */
export function gpuPolicyMac(policy: string, key: KeyObject): string {
  if ((key.symmetricKeySize ?? 0) < KEY_BYTES) {
    throw new PrivatemodeError('internal', 'the secret is shorter than 32 bytes');
  }
  const macKey = key.symmetricKeySize === KEY_BYTES ? key : key.export().subarray(0, KEY_BYTES);
  return createHmac('sha256', macKey).update(policy).digest('hex');
}

/** What the last attempt under a key had: the policy names a second, and requests come in bursts. */
const last = new WeakMap<KeyObject, { readonly policy: string; readonly mac: string }>();

/** Policy and MAC for one attempt; `nowMs` is wall-clock milliseconds since 1970. */
export function gpuPolicyHeaders(options: GpuPolicy & { readonly nowMs: number; readonly key: KeyObject }): {
  readonly policy: string;
  readonly mac: string;
} {
  const { allowUnknown, gracePeriodHours, nowMs, key } = options;
  const statuses = ['allow-good'];
  if (gracePeriodHours > 0) statuses.push('allow-revoked');
  if (allowUnknown) statuses.push('allow-unknown');
  const policy = gpuPolicyText(statuses, Math.floor(nowMs / 1000) - gracePeriodHours * 3600);
  const known = last.get(key);
  if (known?.policy === policy) return known;
  const headers = { policy, mac: gpuPolicyMac(policy, key) };
  last.set(key, headers);
  return headers;
}
