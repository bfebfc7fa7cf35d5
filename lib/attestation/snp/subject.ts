/** What the SEV-SNP checks judge: the evidence, the reference value, and the parts of both that could be read. */
import { constantTimeEqual } from '../../crypto/digest.ts';
import { type Attempt, type CheckRow, type Finding, finding } from '../check.ts';
import type { EvidenceContext } from '../evidence.ts';
import type { SnpReferenceValues } from '../reference-values.ts';
import type { ArkCrl, SnpRoots, Vcek, VcekExtensions } from './certificates.ts';
import type { SnpProduct } from './message.ts';
import type { SnpReport } from './report.ts';

export interface SnpSubject {
  readonly report: SnpReport;
  /** As the message states it. */
  readonly product: SnpProduct | undefined;
  readonly entry: SnpReferenceValues;
  readonly context: EvidenceContext;
  readonly roots: Attempt<SnpRoots>;
  /** Absent until verify.ts has obtained them. */
  readonly vcek?: Attempt<Vcek>;
  readonly vcekExtensions?: Attempt<VcekExtensions>;
  readonly arkCrl?: Attempt<ArkCrl>;
  /** The result of `matchMeasurement`. */
  readonly vcpus?: number | 'exact' | undefined;
}

export type SnpRow = CheckRow<SnpSubject>;

export const hex = (bytes: Uint8Array): string => Buffer.from(bytes).toString('hex');

export const bits = (value: bigint): string => `0x${value.toString(16)}`;

/** Compares byte strings that the manifest, the nonce or the hardware determine. */
export function equalBytes(found: Uint8Array, expected: Uint8Array): Finding {
  return finding(constantTimeEqual(found, expected), hex(found), hex(expected));
}
