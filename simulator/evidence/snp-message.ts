/**
 * Writes the protobuf message that carries a SEV-SNP report and its certificates
 * (docs/protocol/attestation.md 6.1).
 */
import { REPORT_LAYOUT, SNP_EXTRA_CRL, type SnpReport } from '../../lib/attestation/snp/report.ts';
import { bytesField, messageField, uintField } from './wire-fields.ts';

/** A certificate that is absent or empty is left out, and so is the product without a stepping. */
export type SnpMessage = {
  readonly report: SnpReport;
  readonly machineStepping?: number | undefined;
} & Readonly<Partial<Record<'vcek' | 'ask' | 'ark' | 'arkCrl', Uint8Array | undefined>>>;

/** The number of Genoa among the names of products. */
const GENOA = 2;

export function encodeSnpAttestation(message: SnpMessage): Uint8Array {
  const { report, vcek, ask, ark, arkCrl, machineStepping } = message;
  const layout = Object.entries(REPORT_LAYOUT).toSorted(([, [a]], [, [b]]) => a - b);
  const reported = layout.map(([name, [number]]) => {
    const value = report[name as keyof SnpReport];
    return value instanceof Uint8Array ? bytesField(number, value) : uintField(number, value);
  });
  const chain = [bytesField(1, vcek), bytesField(2, ask), bytesField(3, ark)];
  if (arkCrl) chain.push(messageField(7, bytesField(1, Buffer.from(SNP_EXTRA_CRL)), bytesField(2, arkCrl)));
  const parts = [messageField(1, ...reported), messageField(2, ...chain)];
  if (machineStepping !== undefined) {
    const stepping = messageField(3, uintField(1, machineStepping));
    parts.push(messageField(3, uintField(1, GENOA), stepping));
  }
  return new Uint8Array(Buffer.concat(parts));
}
