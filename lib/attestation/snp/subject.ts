/** What the SEV-SNP checks judge: the evidence, the reference value, and the parts of both that could be read. */
import type { Attempt, CheckRow } from '../check.ts';
import type { ArkCrl, SnpEvidence, SnpRoots, Vcek, VcekExtensions } from './vcek.ts';

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

export const bits = (value: bigint): string => `0x${value.toString(16)}`;
