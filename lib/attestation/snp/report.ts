/**
 * The SEV-SNP attestation report, versions 2 to 5 (docs/protocol/attestation.md 6.2), and the message that
 * carries its fields and certificates (6.1). One table serves both; integers are little-endian.
 */

import { malformed } from '../../crypto/der.ts';
import {
  bytesField,
  messageField,
  readWireFields,
  repeatedBytesField,
  uintField,
  type WireFields,
} from '../protobuf.ts';

export const SNP_REPORT_BYTES = 1184;
/** The signature covers [0, 0x2A0). */
export const SNP_SIGNED_BYTES = 0x2a0;

/** Bytes of each kind of number. `fms` is three bytes in the report, and CPUID(1).EAX bits in the message. */
const LENGTHS = { u8: 1, u32: 4, u64: 8, fms: 3 } as const;

/** Field number in the message, name, offset in the report, and the kind of number or the length in bytes. */
const LAYOUT = [
  [1, 'version', 0x000, 'u32'],
  [2, 'guestSvn', 0x004, 'u32'],
  [3, 'policy', 0x008, 'u64'],
  [4, 'familyId', 0x010, 16],
  [5, 'imageId', 0x020, 16],
  [6, 'vmpl', 0x030, 'u32'],
  [7, 'signatureAlgo', 0x034, 'u32'],
  [8, 'currentTcb', 0x038, 'u64'],
  [9, 'platformInfo', 0x040, 'u64'],
  [10, 'signerInfo', 0x048, 'u32'],
  [11, 'reportData', 0x050, 64],
  [12, 'measurement', 0x090, 48],
  [13, 'hostData', 0x0c0, 32],
  [14, 'idKeyDigest', 0x0e0, 48],
  [15, 'authorKeyDigest', 0x110, 48],
  [16, 'reportId', 0x140, 32],
  [17, 'reportIdMa', 0x160, 32],
  [18, 'reportedTcb', 0x180, 'u64'],
  [29, 'cpuid1EaxFms', 0x188, 'fms'], // 0 in version 2
  [19, 'chipId', 0x1a0, 64],
  [20, 'committedTcb', 0x1e0, 'u64'],
  [21, 'currentBuild', 0x1e8, 'u8'],
  [22, 'currentMinor', 0x1e9, 'u8'],
  [23, 'currentMajor', 0x1ea, 'u8'],
  [24, 'committedBuild', 0x1ec, 'u8'],
  [25, 'committedMinor', 0x1ed, 'u8'],
  [26, 'committedMajor', 0x1ee, 'u8'],
  [27, 'launchTcb', 0x1f0, 'u64'],
  [30, 'launchMitVector', 0x1f8, 'u64'],
  [31, 'currentMitVector', 0x200, 'u64'],
  [28, 'signature', 0x2a0, 512], // R and S, 72 bytes little-endian each, then zeros
] as const;

export const SNP_REPORT_FIELDS = LAYOUT.map(([proto, name, offset, shape]) =>
  typeof shape === 'number'
    ? { proto, name, offset, kind: 'bytes' as const, length: shape }
    : { proto, name, offset, kind: shape, length: LENGTHS[shape] },
);

export type SnpReportField = (typeof SNP_REPORT_FIELDS)[number];
type ValueOf<Shape> = Shape extends number ? Uint8Array : Shape extends 'u64' ? bigint : number;
export type SnpReport = { readonly [Row in (typeof LAYOUT)[number] as Row[1]]: ValueOf<Row[3]> };

/** Family, model and stepping of CPUID(1).EAX bits (docs/protocol/attestation.md 6.2). */
export function familyModelStepping(eax: number) {
  const bits = (from: number, count: number): number => (eax >>> from) & ((1 << count) - 1);
  return { family: bits(20, 8) + bits(8, 4), model: (bits(16, 4) << 4) | bits(4, 4), stepping: bits(0, 4) };
}

/** Whether no other bits mean the same numbers: reserved ones are zero, an extended family has base 15. */
const isOnlyCpu = (eax: number): boolean =>
  (eax & 0xf000f000) === 0 && (eax >>> 20 === 0 || ((eax >>> 8) & 0xf) === 0xf);

/** SIGNER_INFO: bit 0 AUTHOR_KEY_EN, 1 MASK_CHIP_KEY, 4:2 SIGNING_KEY (0: VCEK), the rest reserved. */
export const signingKey = ({ signerInfo }: SnpReport): number => (signerInfo >>> 2) & 7;

/** The `length` bytes of a number, little-endian. */
export const littleEndian = (value: bigint, length: number): Uint8Array =>
  Uint8Array.from({ length }, (_, index) => Number((value >> BigInt(8 * index)) & 0xffn));

/**
 * The bytes of a report; reserved ones are zero. Throws evidence_malformed for bytes of another length, a
 * number that does not fit its field, or CPU bits beyond family, model and stepping.
 */
export function serializeReport(report: SnpReport): Uint8Array {
  const out = new Uint8Array(SNP_REPORT_BYTES);
  for (const field of SNP_REPORT_FIELDS) {
    if (field.kind !== 'fms' || report.version >= 3)
      out.set(fieldBytes(field, report[field.name]), field.offset);
  }
  return out;
}

function fieldBytes({ name, kind, length }: SnpReportField, value: SnpReport[keyof SnpReport]) {
  if (value instanceof Uint8Array) {
    if (value.length !== length) throw malformed(`report field ${name} must have ${length} bytes`);
    return value;
  }
  const number = BigInt(value);
  const bits = kind === 'fms' ? 32 : length * 8;
  if (BigInt.asUintN(bits, number) !== number) throw malformed(`report field ${name} exceeds ${bits} bits`);
  if (kind !== 'fms') return littleEndian(number, length);
  const { family, model, stepping } = familyModelStepping(Number(value));
  if (family > 255) throw malformed('the CPU family exceeds a byte');
  // The signature covers only the three bytes that are read from these bits.
  if (!isOnlyCpu(Number(value)))
    throw malformed('the CPU family, model and stepping have bits that are not theirs');
  return [family, model, stepping];
}

/** A certificate that did not come is undefined. ASK and ARK are never trusted. */
export type SnpAttestation = Readonly<ReturnType<typeof decodeSnpAttestation>>;

/** The key of the DER CRL of the ARK in `extras`. */
export const SNP_EXTRA_CRL = '00569ee4-e480-4fba-bbf4-45b629901180';

/** Throws evidence_malformed: no report, another length, a number too large, a singular field twice. */
export function decodeSnpAttestation(message: Uint8Array) {
  const fields = readWireFields(message);
  const report = messageField(fields, 1);
  if (report === undefined) throw malformed('the message holds no SEV-SNP report');
  const [certificates, product] = [messageField(fields, 2), messageField(fields, 3)];
  return {
    report: decodeReport(report),
    certificates: decodeCertificates(certificates ?? new Map()),
    product: product && decodeProduct(product),
  };
}

function decodeReport(fields: WireFields): SnpReport {
  const entries = SNP_REPORT_FIELDS.map(({ name, proto, kind, length }) => {
    if (kind === 'bytes') return [name, bytesField(fields, proto, length)];
    if (kind === 'u64') return [name, uintField(fields, proto, 64)];
    return [name, Number(uintField(fields, proto, kind === 'u8' ? 8 : 32))];
  });
  return Object.fromEntries(entries) as unknown as SnpReport;
}

function decodeCertificates(fields: WireFields) {
  const optional = (number: number): Uint8Array | undefined => {
    const bytes = bytesField(fields, number);
    return bytes.length === 0 ? undefined : bytes;
  };
  const extras = new Map<string, Uint8Array>();
  for (const entry of repeatedBytesField(fields, 7)) {
    const pair = readWireFields(entry);
    const key = Buffer.from(bytesField(pair, 1)).toString('utf8');
    if (extras.has(key)) throw malformed('an extra of the certificate chain appears twice');
    extras.set(key, bytesField(pair, 2));
  }
  return {
    vcek: optional(1),
    ask: optional(2),
    ark: optional(3),
    vlek: optional(6),
    /** By key, e.g. SNP_EXTRA_CRL. */
    extras: extras as ReadonlyMap<string, Uint8Array>,
  };
}

function decodeProduct(fields: WireFields) {
  const stepping = messageField(fields, 3);
  return {
    /** 0 unknown, 1 Milan, 2 Genoa, 3 Turin. */
    name: Number(uintField(fields, 1, 32)),
    machineStepping: stepping && Number(uintField(stepping, 1, 32)),
  };
}
