/**
 * The SEV-SNP attestation report, 1184 bytes, versions 2 to 5 (attestation.md 6.2). One table of fields serves the
 * binary layout and the protobuf message that carries the fields; all integers are little-endian.
 */
import { malformed } from '../x509/der.ts';

export interface SnpReport {
  readonly version: number;
  readonly guestSvn: number;
  readonly policy: bigint;
  readonly familyId: Uint8Array;
  readonly imageId: Uint8Array;
  readonly vmpl: number;
  /** 1 = ECDSA P-384 with SHA-384. */
  readonly signatureAlgo: number;
  readonly currentTcb: bigint;
  readonly platformInfo: bigint;
  readonly signerInfo: number;
  readonly reportData: Uint8Array;
  readonly measurement: Uint8Array;
  readonly hostData: Uint8Array;
  readonly idKeyDigest: Uint8Array;
  readonly authorKeyDigest: Uint8Array;
  readonly reportId: Uint8Array;
  readonly reportIdMa: Uint8Array;
  readonly reportedTcb: bigint;
  readonly chipId: Uint8Array;
  readonly committedTcb: bigint;
  readonly currentBuild: number;
  readonly currentMinor: number;
  readonly currentMajor: number;
  readonly committedBuild: number;
  readonly committedMinor: number;
  readonly committedMajor: number;
  readonly launchTcb: bigint;
  /** 512 bytes: R and S, 72 bytes little-endian each, then zeros. */
  readonly signature: Uint8Array;
  /** Family, model and stepping as CPUID(1).EAX bits; 0 in version 2. */
  readonly cpuid1EaxFms: number;
  readonly launchMitVector: bigint;
  readonly currentMitVector: bigint;
}

export const SNP_REPORT_BYTES = 1184;
/** The signature covers [0, 0x2A0). */
export const SNP_SIGNED_BYTES = 0x2a0;

export interface SnpReportField {
  readonly name: keyof SnpReport;
  /** Field number in the protobuf message Report. */
  readonly proto: number;
  readonly offset: number;
  /** `fms` is three bytes in the report and one number in the message. */
  readonly kind: 'u8' | 'u32' | 'u64' | 'bytes' | 'fms';
  readonly length: number;
}

const LENGTHS = { u8: 1, u32: 4, u64: 8, fms: 3 } as const;
const field = (
  proto: number,
  name: keyof SnpReport,
  offset: number,
  kind: keyof typeof LENGTHS,
): SnpReportField => ({ name, proto, offset, kind, length: LENGTHS[kind] });
const bytes = (proto: number, name: keyof SnpReport, offset: number, length: number): SnpReportField => ({
  name,
  proto,
  offset,
  kind: 'bytes',
  length,
});

export const SNP_REPORT_FIELDS: readonly SnpReportField[] = [
  field(1, 'version', 0x000, 'u32'),
  field(2, 'guestSvn', 0x004, 'u32'),
  field(3, 'policy', 0x008, 'u64'),
  bytes(4, 'familyId', 0x010, 16),
  bytes(5, 'imageId', 0x020, 16),
  field(6, 'vmpl', 0x030, 'u32'),
  field(7, 'signatureAlgo', 0x034, 'u32'),
  field(8, 'currentTcb', 0x038, 'u64'),
  field(9, 'platformInfo', 0x040, 'u64'),
  field(10, 'signerInfo', 0x048, 'u32'),
  bytes(11, 'reportData', 0x050, 64),
  bytes(12, 'measurement', 0x090, 48),
  bytes(13, 'hostData', 0x0c0, 32),
  bytes(14, 'idKeyDigest', 0x0e0, 48),
  bytes(15, 'authorKeyDigest', 0x110, 48),
  bytes(16, 'reportId', 0x140, 32),
  bytes(17, 'reportIdMa', 0x160, 32),
  field(18, 'reportedTcb', 0x180, 'u64'),
  field(29, 'cpuid1EaxFms', 0x188, 'fms'),
  bytes(19, 'chipId', 0x1a0, 64),
  field(20, 'committedTcb', 0x1e0, 'u64'),
  field(21, 'currentBuild', 0x1e8, 'u8'),
  field(22, 'currentMinor', 0x1e9, 'u8'),
  field(23, 'currentMajor', 0x1ea, 'u8'),
  field(24, 'committedBuild', 0x1ec, 'u8'),
  field(25, 'committedMinor', 0x1ed, 'u8'),
  field(26, 'committedMajor', 0x1ee, 'u8'),
  field(27, 'launchTcb', 0x1f0, 'u64'),
  field(30, 'launchMitVector', 0x1f8, 'u64'),
  field(31, 'currentMitVector', 0x200, 'u64'),
  bytes(28, 'signature', 0x2a0, 512),
];

/** Family, model and stepping of CPUID(1).EAX bits (attestation.md 6.2). */
export function familyModelStepping(eax: number): { family: number; model: number; stepping: number } {
  const bits = (from: number, count: number): number => (eax >>> from) & ((1 << count) - 1);
  return { family: bits(20, 8) + bits(8, 4), model: (bits(16, 4) << 4) | bits(4, 4), stepping: bits(0, 4) };
}

/** The CPUID(1).EAX bits of a family, model and stepping: the base family is 15 where that is exceeded. */
function eaxOf(family: number, model: number, stepping: number): number {
  const base = Math.min(family, 15);
  return ((family - base) << 20) | ((model >> 4) << 16) | (base << 8) | ((model & 15) << 4) | stepping;
}

/**
 * The 1184 bytes of a report; reserved bytes are zero. Throws evidence_malformed for a byte string of another length
 * than the table's, or a number that does not fit its field.
 */
export function serializeReport(report: SnpReport): Uint8Array {
  const out = new Uint8Array(SNP_REPORT_BYTES);
  const view = new DataView(out.buffer);
  for (const { name, offset, kind, length } of SNP_REPORT_FIELDS) {
    const value = report[name];
    if (kind === 'bytes') {
      if (!(value instanceof Uint8Array) || value.length !== length) {
        throw malformed(`report field ${name} must have ${length} bytes`);
      }
      out.set(value, offset);
      continue;
    }
    if (value instanceof Uint8Array) throw malformed(`report field ${name} must be a number`);
    const number = BigInt(value);
    const bits = kind === 'fms' ? 32 : length * 8;
    if (number < 0n || number >> BigInt(bits) !== 0n)
      throw malformed(`report field ${name} exceeds ${bits} bits`);
    if (kind === 'u64') view.setBigUint64(offset, number, true);
    else if (kind === 'u32') view.setUint32(offset, Number(number), true);
    else if (kind === 'u8') view.setUint8(offset, Number(number));
    else if (report.version >= 3) {
      const { family, model, stepping } = familyModelStepping(Number(number));
      if (family > 255) throw malformed('the CPU family exceeds a byte');
      out.set([family, model, stepping], offset);
    }
  }
  return out;
}

/**
 * The fields of a binary report. Throws evidence_malformed for another length, reserved bytes that are not zero, or
 * a family/model/stepping that CPUID cannot express.
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
