/** Which processor the evidence comes from (attestation.md 7, product line). */
import { type Attempt, valueIn } from '../attempt.ts';
import { type CheckRow, type Finding, finding } from '../check.ts';
import type { SnpReferenceValues } from '../reference-values.ts';
import type { SnpProduct } from './message.ts';
import type { SnpReport } from './report.ts';
import { productLine } from './report-checks.ts';
import type { VcekExtensions } from './vcek.ts';

export interface ProductSubject {
  readonly report: SnpReport;
  readonly product: SnpProduct | undefined;
  readonly entry: SnpReferenceValues;
  readonly vcekExtensions: Attempt<VcekExtensions>;
}

const STEPPED_NAME = /^(Milan-B[01]|Genoa-B[012]|Turin-B[01])$/;

/** A version 2 report does not say it: then the VCEK does, stepping included. */
function judgeByVcek(subject: ProductSubject): Finding | undefined {
  const productName = valueIn(subject.vcekExtensions)?.productName;
  if (productName === undefined) return undefined;
  const stepping = subject.product?.machineStepping;
  const holds =
    STEPPED_NAME.test(productName) &&
    productName.startsWith(`${subject.entry.product}-`) &&
    (stepping === undefined || productName.endsWith(`B${stepping}`));
  return finding(
    holds,
    `${productName} by the VCEK${stepping === undefined ? '' : `, stepping ${stepping}`}`,
  );
}

export const PRODUCT_ROWS: readonly CheckRow<ProductSubject>[] = [
  {
    id: 'snp.product',
    title: 'Processor product line',
    source: 'attestation.md 7',
    expected: 'the ProductName of the reference value',
    judge: (subject) => {
      const { report, entry } = subject;
      if (report.version < 3) return judgeByVcek(subject);
      const line = productLine(report);
      return finding(line === entry.product, line ?? 'unknown', entry.product);
    },
  },
];
