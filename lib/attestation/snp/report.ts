/**
 * The SEV-SNP attestation report, versions 2 to 5 (docs/protocol/attestation.md 6.2), and the message that
 * carries its fields and certificates (6.1). One table serves both; integers are little-endian.
 */
import { malformed } from '../../crypto/der.ts';
import * as protobuf from '../protobuf.ts';
import { familyModelStepping } from './packed-fields.ts';

export const SNP_REPORT_BYTES = 1184;
/** The signature covers [0, 0x2A0). */
export const SNP_SIGNED_BYTES = 0x2a0;

/** Bits of each kind of number. `fms` is three bytes in the report, and CPUID(1).EAX in the message. */
const BITS = { u8: 8, u32: 32, u64: 64, fms: 32 } as const;

/** Field number in the message, name, offset in the report, and the kind of number or the length in bytes. */
export const REPORT_LAYOUT = [
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

type ValueOf<Shape> = Shape extends number ? Uint8Array : Shape extends 'u64' ? bigint : number;
export type SnpReport = { readonly [Row in (typeof REPORT_LAYOUT)[number] as Row[1]]: ValueOf<Row[3]> };

/** The bytes of a report; reserved ones are 0. Throws evidence_malformed for CPUID bits without a place. */
export function serializeReport(report: SnpReport): Uint8Array {
  const out = new Uint8Array(SNP_REPORT_BYTES);
  for (const [, name, offset, shape] of REPORT_LAYOUT) {
    if (typeof shape === 'number') out.set(report[name], offset);
    else if (shape !== 'fms') out.set(protobuf.littleEndian(report[name], BITS[shape] / 8), offset);
    else if (report.version >= 3) out.set(cpuBytes(report[name]), offset);
  }
  return out;
}

/**
 * Family, model and stepping. The signature covers these three bytes alone, so no other bits may mean the
 * same: reserved ones are zero, and an extended family has base 15.
 */
function cpuBytes(eax: number): readonly number[] {
  const { family, model, stepping } = familyModelStepping(eax);
  const isExtended = eax >>> 20 !== 0;
  if ((eax & 0xf000f000) !== 0 || family > 255 || (isExtended && ((eax >>> 8) & 0xf) !== 0xf))
    throw malformed('the CPU family, model and stepping have bits that are not theirs');
  return [family, model, stepping];
}

export type SnpAttestation = Readonly<ReturnType<typeof decodeSnpAttestation>>;

/** The key of the DER CRL of the ARK among the extras of the certificate chain. */
export const SNP_EXTRA_CRL = '00569ee4-e480-4fba-bbf4-45b629901180';

/** Throws evidence_malformed: no report, another length, a number too large, a singular field twice. */
export function decodeSnpAttestation(message: Uint8Array) {
  const fields = protobuf.readWireFields(message);
  const report = protobuf.messageField(fields, 1);
  if (report === undefined) throw malformed('the message holds no SEV-SNP report');
  const [chain, product] = [
    protobuf.messageField(fields, 2) ?? new Map(),
    protobuf.messageField(fields, 3) ?? new Map(),
  ];
  // ASK, ARK, VLEK and the name of the product are never used, but must have their form.
  for (const number of [2, 3, 6]) protobuf.bytesField(chain, number);
  protobuf.uintField(product, 1, 32);
  const stepping = protobuf.messageField(product, 3);
  return {
    report: decodeReport(report),
    /** Empty if none came. */
    vcek: protobuf.bytesField(chain, 1),
    arkCrl: decodeExtras(chain).get(SNP_EXTRA_CRL),
    machineStepping: stepping && Number(protobuf.uintField(stepping, 1, 32)),
  };
}

function decodeReport(fields: protobuf.WireFields): SnpReport {
  const entries = REPORT_LAYOUT.map(([number, name, , shape]) => {
    if (typeof shape === 'number') return [name, protobuf.bytesField(fields, number, shape)];
    const value = protobuf.uintField(fields, number, BITS[shape]);
    return [name, shape === 'u64' ? value : Number(value)];
  });
  return Object.fromEntries(entries) as unknown as SnpReport;
}

function decodeExtras(chain: protobuf.WireFields): ReadonlyMap<string, Uint8Array> {
  const extras = new Map<string, Uint8Array>();
  for (const entry of protobuf.repeatedBytesField(chain, 7)) {
    const pair = protobuf.readWireFields(entry);
    const key = Buffer.from(protobuf.bytesField(pair, 1)).toString('utf8');
    if (extras.has(key)) throw malformed('an extra of the certificate chain appears twice');
    extras.set(key, protobuf.bytesField(pair, 2));
  }
  return extras;
}
