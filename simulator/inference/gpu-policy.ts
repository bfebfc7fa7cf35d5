/**
 * The certificate-status policy that a client sends, and its MAC (docs/protocol/inference.md 7). The worker
 * responds only if the policy allows the status of its GPU certificate.
 */
import { createHmac, timingSafeEqual } from 'node:crypto';
import { Rejection } from './rejection.ts';

/**
 * The status of the simulated GPU's certificate, as its authority states it. `revokedAt` is in unix seconds.
 */
export type GpuStatus =
  | { readonly status: 'good' | 'unknown' }
  | { readonly status: 'revoked'; readonly revokedAt: number };

interface Policy {
  readonly rules: ReadonlySet<string>;
  readonly notBefore: number;
}

const RULES = ['allow-good', 'allow-revoked', 'allow-unknown'];
const GOOD_ONLY: Policy = { rules: new Set(['allow-good']), notBefore: 0 };

const fail = (what: string): Rejection => new Rejection(500, `verifying OCSP policy: ${what}`);

/** Parses a policy: exactly two parts, separated by `; `. Throws Rejection. */
function parsePolicy(text: string): Policy {
  const parts = text.split('; ');
  const rules = /^rules=(.+)$/.exec(parts[0] ?? '')?.[1]?.split(',');
  const time = /^revocation-time-not-before=(-?\d+)$/.exec(parts[1] ?? '')?.[1];
  if (parts.length !== 2 || rules === undefined || time === undefined) throw fail('malformed policy');
  if (!rules.every((rule) => RULES.includes(rule))) throw fail('unknown rule');
  return { rules: new Set(rules), notBefore: Number(time) };
}

function checkMac(policy: string, mac: string, secret: Uint8Array): void {
  const expected = createHmac('sha256', secret.subarray(0, 32)).update(policy).digest();
  const given = Buffer.from(mac, 'hex');
  if (given.length !== expected.length || !timingSafeEqual(given, expected)) {
    // The real server names the expected MAC in clear (docs/protocol/inference.md 14.22); clients must handle
    // that.
    throw fail(`wrong MAC: expected ${expected.toString('hex')}`);
  }
}

function allows({ rules, notBefore }: Policy, gpu: GpuStatus): boolean {
  if (gpu.status === 'revoked') return rules.has('allow-revoked') && gpu.revokedAt >= notBefore;
  return rules.has(`allow-${gpu.status}`);
}

/**
 * Checks both headers with the secret of `secretId`, and the GPU's status against the policy. Without the
 * headers, only a good status passes. Throws Rejection.
 */
export function checkGpuPolicy(
  headers: { readonly policy: string | undefined; readonly mac: string | undefined },
  secretId: string,
  lookup: (id: string) => Uint8Array | undefined,
  gpu: GpuStatus,
): void {
  const secret = lookup(secretId);
  if (secret === undefined) {
    throw new Rejection(500, `getting secret for OCSP verification: no secret for ID "${secretId}"`);
  }
  let policy = GOOD_ONLY;
  if (headers.policy !== undefined || headers.mac !== undefined) {
    if (headers.policy === undefined || headers.mac === undefined)
      throw fail('policy and MAC must come together');
    checkMac(headers.policy, headers.mac, secret);
    policy = parsePolicy(headers.policy);
  }
  if (!allows(policy, gpu)) throw fail(`GPU certificate status ${gpu.status} is not allowed`);
}
