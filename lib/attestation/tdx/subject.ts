/** What the TDX checks judge: the evidence, the reference value, and the parts of both that could be read. */

import { type Attempt, demand } from '../attempt.ts';
import { type CheckRow, type Finding, finding } from '../check.ts';
import type { EvidenceContext } from '../evidence.ts';
import type { TdxReferenceValues } from '../reference-values.ts';
import type { Certificate } from '../x509/certificate.ts';
import type { Collateral } from './collateral.ts';
import type { QuoteV4 } from './message.ts';
import type { PckChain } from './pck.ts';
import type { SgxExtension } from './sgx-extension.ts';

export interface TdxSubject {
  readonly quote: QuoteV4;
  readonly entry: TdxReferenceValues;
  readonly context: EvidenceContext;
  /** The one trust anchor. */
  readonly pinnedRoot: Attempt<Certificate>;
  readonly chain: Attempt<PckChain>;
  /** From the PCK certificate. */
  readonly sgx: Attempt<SgxExtension>;
  /** Undefined where a check has failed that needs none: forged evidence must not make this program call anybody. */
  readonly collateral: Collateral | undefined;
}

export type TdxRow = CheckRow<TdxSubject>;

/** Passes when there are no defects, else names them all. */
export function noDefects(defects: readonly string[], held: string): Finding {
  return finding(defects.length === 0, defects.length === 0 ? held : defects.join('; '));
}

/** Passes when the part was read; undefined where that was not tried. Throws the error of the reading. */
export function wasRead(part: Attempt<unknown>, found: string): Finding | undefined {
  return demand(part) === undefined ? undefined : finding(true, found);
}

export const hex = (bytes: Uint8Array): string => Buffer.from(bytes).toString('hex');
