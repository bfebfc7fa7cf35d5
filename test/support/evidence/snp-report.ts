/** Reads binary SEV-SNP reports, as the vectors hold them; the product gets the fields from a message. */
import {
  REPORT_LAYOUT,
  SNP_REPORT_BYTES,
  type SnpReport,
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
  const read = (name: string, [, shape, offset]: (typeof REPORT_LAYOUT)[keyof SnpReport]) => {
    if (name === 'cpuid1EaxFms')
      return eaxOf(view.getUint8(offset), view.getUint8(offset + 1), view.getUint8(offset + 2) & 15);
    if (typeof shape === 'number') return Uint8Array.from(raw.subarray(offset, offset + shape));
    if (shape === 'u64') return view.getBigUint64(offset, true);
    if (shape === 'u32') return view.getUint32(offset, true);
    return view.getUint8(offset);
  };
  const report = Object.fromEntries(
    Object.entries(REPORT_LAYOUT).map(([name, field]) => [name, read(name, field)]),
  );
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
