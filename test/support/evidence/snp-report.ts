/** Reads binary SEV-SNP reports, as the vectors hold them; the product gets the fields from a message. */
import {
  SNP_REPORT_BYTES,
  SNP_REPORT_FIELDS,
  type SnpReport,
  type SnpReportField,
  serializeReport,
} from '../../../lib/attestation/snp/report.ts';
import { malformed } from '../../../lib/crypto/der.ts';

/**
 * The fields of a binary report. Throws evidence_malformed for another length, reserved bytes that are not
 * zero, or a family/model/stepping that CPUID cannot express.
 */
export function parseReport(raw: Uint8Array): SnpReport {
  if (raw.length !== SNP_REPORT_BYTES) throw malformed(`a report must have ${SNP_REPORT_BYTES} bytes`);
  const view = new DataView(raw.buffer, raw.byteOffset, raw.byteLength);
  const read = ({ offset, kind, length }: SnpReportField): number | bigint | Uint8Array => {
    if (kind === 'bytes') return Uint8Array.from(raw.subarray(offset, offset + length));
    if (kind === 'u64') return view.getBigUint64(offset, true);
    if (kind === 'u32') return view.getUint32(offset, true);
    if (kind === 'u8') return view.getUint8(offset);
    return eaxOf(view.getUint8(offset), view.getUint8(offset + 1), view.getUint8(offset + 2) & 15);
  };
  const report = Object.fromEntries(SNP_REPORT_FIELDS.map((row) => [row.name, read(row)]));
  const parsed = report as unknown as SnpReport;
  if (Buffer.compare(serializeReport(parsed), raw) !== 0) {
    throw malformed('reserved bytes of the report are not zero');
  }
  return parsed;
}

/** The CPUID(1).EAX bits of a family, model and stepping: the base family is 15 where that is exceeded. */
function eaxOf(family: number, model: number, stepping: number): number {
  const base = Math.min(family, 15);
  return ((family - base) << 20) | ((model >> 4) << 16) | (base << 8) | ((model & 15) << 4) | stepping;
}
