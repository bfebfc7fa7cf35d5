/** What the SEV-SNP checks judge: the evidence, the reference value, and the parts of both that could be read. */
import { constantTimeEqual } from '#crypto/digest';
import { type Attempt, type CheckRow, type Finding, finding } from '../check.ts';
import type { ArkCrl, SnpEvidence, SnpRoots, Vcek, VcekExtensions } from './certificates.ts';

export interface SnpSubject extends SnpEvidence {
  readonly roots: Attempt<SnpRoots>;
  /** Absent until verify.ts has obtained them. */
  readonly vcek?: Vcek;
  readonly vcekExtensions?: Attempt<VcekExtensions>;
  readonly arkCrl?: ArkCrl;
  /** The result of `matchMeasurement`. */
  readonly vcpus?: number | 'exact' | undefined;
}

export type SnpRow = CheckRow<SnpSubject>;

export const hex = (bytes: Uint8Array): string => Buffer.from(bytes).toString('hex');

export const bits = (value: bigint): string => `0x${value.toString(16)}`;

/** Passes for one of the byte strings that the manifest, the nonce or the hardware allow; without any, nothing passes. */
export function oneOf(found: Uint8Array, allowed: readonly Uint8Array[]): Finding {
  const holds = allowed.some((value) => constantTimeEqual(value, found));
  return finding(holds, hex(found), allowed.map(hex).join(' or '));
}
