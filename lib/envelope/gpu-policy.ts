/** The text that tells the service which certificates of its GPUs to accept (docs/protocol/inference.md, section 7). */

export interface GpuPolicy {
  /** Whether certificates the status service knows nothing about are accepted. */
  readonly allowUnknown: boolean;
  /** How long after its revocation a certificate is still accepted; 0 = not at all. */
  readonly gracePeriodHours: number;
}

/** The text of the policy at that time, in ms since 1970. */
export function policyText({ allowUnknown, gracePeriodHours }: GpuPolicy, nowMs: number): string {
  const statuses = ['allow-good'];
  if (gracePeriodHours > 0) statuses.push('allow-revoked');
  if (allowUnknown) statuses.push('allow-unknown');
  const notBefore = Math.floor(nowMs / 1000) - gracePeriodHours * 3600;
  return `rules=${statuses.join(',')}; revocation-time-not-before=${notBefore}`;
}
