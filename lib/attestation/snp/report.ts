/**
 * The SEV-SNP attestation report, 1184 bytes, versions 2 to 5 (docs/protocol/attestation.md 6.2). One table of fields serves the
 * binary layout and the protobuf message that carries the fields; all integers are little-endian.
 */
import { malformed } from '../x509/der.ts';

export const SNP_REPORT_BYTES = 1184;
/** The signature covers [0, 0x2A0). */
export const SNP_SIGNED_BYTES = 0x2a0;

/** Bytes of each kind of number. `fms` is three bytes in the report, and CPUID(1).EAX bits in the message. */
const LENGTHS = { u8: 1, u32: 4, u64: 8, fms: 3 } as const;

interface Field<Name extends string, Kind> {
  readonly name: Name;
  /** Field number in the protobuf message Report. */
  readonly proto: number;
  readonly offset: number;
  readonly kind: Kind;
  readonly length: number;
}

function number<Name extends string, Kind extends keyof typeof LENGTHS>(
  proto: number,
  name: Name,
  offset: number,
  kind: Kind,
): Field<Name, Kind> {
  return { name, proto, offset, kind, length: LENGTHS[kind] };
}

function bytes<Name extends string>(
  proto: number,
  name: Name,
  offset: number,
  length: number,
): Field<Name, 'bytes'> {
  return { name, proto, offset, kind: 'bytes', length };
}

export const SNP_REPORT_FIELDS = [
  number(1, 'version', 0x000, 'u32'),
  number(2, 'guestSvn', 0x004, 'u32'),
  number(3, 'policy', 0x008, 'u64'),
  bytes(4, 'familyId', 0x010, 16),
  bytes(5, 'imageId', 0x020, 16),
  number(6, 'vmpl', 0x030, 'u32'),
  number(7, 'signatureAlgo', 0x034, 'u32'),
  number(8, 'currentTcb', 0x038, 'u64'),
  number(9, 'platformInfo', 0x040, 'u64'),
  number(10, 'signerInfo', 0x048, 'u32'),
  bytes(11, 'reportData', 0x050, 64),
  bytes(12, 'measurement', 0x090, 48),
  bytes(13, 'hostData', 0x0c0, 32),
  bytes(14, 'idKeyDigest', 0x0e0, 48),
  bytes(15, 'authorKeyDigest', 0x110, 48),
  bytes(16, 'reportId', 0x140, 32),
  bytes(17, 'reportIdMa', 0x160, 32),
  number(18, 'reportedTcb', 0x180, 'u64'),
  number(29, 'cpuid1EaxFms', 0x188, 'fms'), // 0 in version 2
  bytes(19, 'chipId', 0x1a0, 64),
  number(20, 'committedTcb', 0x1e0, 'u64'),
  number(21, 'currentBuild', 0x1e8, 'u8'),
  number(22, 'currentMinor', 0x1e9, 'u8'),
  number(23, 'currentMajor', 0x1ea, 'u8'),
  number(24, 'committedBuild', 0x1ec, 'u8'),
  number(25, 'committedMinor', 0x1ed, 'u8'),
  number(26, 'committedMajor', 0x1ee, 'u8'),
  number(27, 'launchTcb', 0x1f0, 'u64'),
  number(30, 'launchMitVector', 0x1f8, 'u64'),
  number(31, 'currentMitVector', 0x200, 'u64'),
  bytes(28, 'signature', 0x2a0, 512), // R and S, 72 bytes little-endian each, then zeros
] as const;

export type SnpReportField = (typeof SNP_REPORT_FIELDS)[number];
type ValueOf<Kind> = Kind extends 'bytes' ? Uint8Array : Kind extends 'u64' ? bigint : number;
export type SnpReport = { readonly [F in SnpReportField as F['name']]: ValueOf<F['kind']> };

/** Family, model and stepping of CPUID(1).EAX bits (docs/protocol/attestation.md 6.2). */
export function familyModelStepping(eax: number): { family: number; model: number; stepping: number } {
  const bits = (from: number, count: number): number => (eax >>> from) & ((1 << count) - 1);
  return { family: bits(20, 8) + bits(8, 4), model: (bits(16, 4) << 4) | bits(4, 4), stepping: bits(0, 4) };
}

/** SIGNER_INFO: bit 0 AUTHOR_KEY_EN, bit 1 MASK_CHIP_KEY, bits 4:2 SIGNING_KEY (0: VCEK), the rest reserved. */
export const signingKey = ({ signerInfo }: SnpReport): number => (signerInfo >>> 2) & 7;

/** Whether the evidence claims to be signed by a VCEK, the only kind of key there is a root for. */
export const isSignedByVcek = (report: SnpReport): boolean => signingKey(report) === 0;

/** The `length` bytes of a number, little-endian. */
export const littleEndian = (value: bigint, length: number): Uint8Array =>
  Uint8Array.from({ length }, (_, index) => Number((value >> BigInt(8 * index)) & 0xffn));

/**
 * The 1184 bytes of a report; reserved bytes are zero. Throws evidence_malformed for a byte string of another length
 * than the table's, or a number that does not fit its field.
 */
export function serializeReport(report: SnpReport): Uint8Array {
  const out = new Uint8Array(SNP_REPORT_BYTES);
  for (const field of SNP_REPORT_FIELDS) {
    if (field.kind !== 'fms' || report.version >= 3)
      out.set(fieldBytes(field, report[field.name]), field.offset);
  }
  return out;
}

function fieldBytes(
  { name, kind, length }: SnpReportField,
  value: SnpReport[keyof SnpReport],
): Uint8Array | readonly number[] {
  if (value instanceof Uint8Array) {
    if (kind === 'bytes' && value.length === length) return value;
    throw malformed(`report field ${name} must ${kind === 'bytes' ? `have ${length} bytes` : 'be a number'}`);
  }
  if (kind === 'bytes') throw malformed(`report field ${name} must have ${length} bytes`);
  const bits = kind === 'fms' ? 32 : length * 8;
  if (BigInt(value) < 0n || BigInt(value) >> BigInt(bits) !== 0n) {
    throw malformed(`report field ${name} exceeds ${bits} bits`);
  }
  if (kind !== 'fms') return littleEndian(BigInt(value), length);
  const { family, model, stepping } = familyModelStepping(Number(value));
  if (family > 255) throw malformed('the CPU family exceeds a byte');
  return [family, model, stepping];
}
