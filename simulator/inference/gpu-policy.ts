/**
 * The certificate-status policy that a client sends, and its MAC (docs/protocol/inference.md 7). The worker
 * responds only if the policy allows the status of its GPU certificate.
 */
import { createHmac, timingSafeEqual } from 'node:crypto';
import { Rejection } from './rejection.ts';

/** The status of the simulated GPU's certificate. `revokedAt` is in unix seconds. */
export type GpuStatus =
  | { readonly status: 'good' | 'unknown' }
  | { readonly status: 'revoked'; readonly revokedAt: number };

const fail = (what: string): Rejection => new Rejection(500, `verifying OCSP policy: ${what}`);

/** Exactly two parts, separated by `; `. */
const POLICY = /^rules=([^;]+); revocation-time-not-before=(-?\d+)$/;
const RULES = ['allow-good', 'allow-revoked', 'allow-unknown'];

/** Whether a policy allows that status. Throws Rejection. */
function allows(policy: string, gpu: GpuStatus): boolean {
  const [, rules = '', notBefore] = POLICY.exec(policy) ?? [];
  if (notBefore === undefined) throw fail('malformed policy');
  const allowed = rules.split(',');
  if (!allowed.every((rule) => RULES.includes(rule))) throw fail('unknown rule');
  const isRecent = gpu.status !== 'revoked' || gpu.revokedAt >= Number(notBefore);
  return allowed.includes(`allow-${gpu.status}`) && isRecent;
}

function checkMac(policy: string, mac: string, secret: Uint8Array): void {
  const expected = createHmac('sha256', secret.subarray(0, 32)).update(policy).digest();
  const given = Buffer.from(mac, 'hex');
  if (given.length === expected.length && timingSafeEqual(given, expected)) return;
  // The real server names the expected MAC in clear (docs/protocol/inference.md 14.22); clients must handle
  // that.
  throw fail(`wrong MAC: expected ${expected.toString('hex')}`);
}

/**
 * Checks both headers with the secret of `secretId`, and the GPU's status against the policy. Without the
 * headers, only a good status passes. Throws Rejection.
 */
export function checkGpuPolicy(
  { policy, mac }: { readonly policy: string | undefined; readonly mac: string | undefined },
  secretId: string,
  lookup: (id: string) => Uint8Array | undefined,
  gpu: GpuStatus,
): void {
  const secret = lookup(secretId);
  if (secret === undefined)
    throw new Rejection(500, `getting secret for OCSP verification: no secret for ID "${secretId}"`);
  if ((policy === undefined) !== (mac === undefined)) throw fail('policy and MAC must come together');
  if (policy !== undefined && mac !== undefined) checkMac(policy, mac, secret);
  const isAllowed = policy === undefined ? gpu.status === 'good' : allows(policy, gpu);
  if (!isAllowed) throw fail(`GPU certificate status ${gpu.status} is not allowed`);
}
