/**
 * Reads the SEV-SNP report, versions 2 to 5 (docs/protocol/attestation.md 6.2), from the message with its
 * fields and certificates (6.1). REPORT_LAYOUT describes message and report. Integers are little-endian.
 */
import { malformed } from '../../crypto/der.ts';
import * as protobuf from '../protobuf.ts';
import { familyModelStepping } from './packed-fields.ts';

export const SNP_REPORT_BYTES = 1184;
/** The signature covers the first 0x2A0 bytes of the report. */
export const SNP_SIGNED_BYTES = 0x2a0;

/** In the message, cpuid1EaxFms is one number (0 in version 2); in the report, it is three bytes. */
export const REPORT_LAYOUT = {
  version: [1, 'u32', 0x000],
  guestSvn: [2, 'u32', 0x004],
  policy: [3, 'u64', 0x008],
  familyId: [4, 16, 0x010],
  imageId: [5, 16, 0x020],
  vmpl: [6, 'u32', 0x030],
  signatureAlgo: [7, 'u32', 0x034],
  currentTcb: [8, 'u64', 0x038],
  platformInfo: [9, 'u64', 0x040],
  signerInfo: [10, 'u32', 0x048],
  reportData: [11, 64, 0x050],
  measurement: [12, 48, 0x090],
  hostData: [13, 32, 0x0c0],
  idKeyDigest: [14, 48, 0x0e0],
  authorKeyDigest: [15, 48, 0x110],
  reportId: [16, 32, 0x140],
  reportIdMa: [17, 32, 0x160],
  reportedTcb: [18, 'u64', 0x180],
  cpuid1EaxFms: [29, 'u32', 0x188],
  chipId: [19, 64, 0x1a0],
  committedTcb: [20, 'u64', 0x1e0],
  currentBuild: [21, 'u8', 0x1e8],
  currentMinor: [22, 'u8', 0x1e9],
  currentMajor: [23, 'u8', 0x1ea],
  committedBuild: [24, 'u8', 0x1ec],
  committedMinor: [25, 'u8', 0x1ed],
  committedMajor: [26, 'u8', 0x1ee],
  launchTcb: [27, 'u64', 0x1f0],
  launchMitVector: [30, 'u64', 0x1f8],
  currentMitVector: [31, 'u64', 0x200],
  signature: [28, 512, 0x2a0], // The two 72-byte little-endian integers R and S, then zeros
} as const;

export type SnpReport = protobuf.MessageOf<typeof REPORT_LAYOUT>;

/** The bytes of a report. Reserved bytes are 0. Throws evidence_malformed if CPUID bits have no place. */
export function serializeReport(report: SnpReport): Uint8Array {
  const out = new Uint8Array(SNP_REPORT_BYTES);
  const { cpuid1EaxFms, ...fields } = REPORT_LAYOUT;
  for (const [name, field] of Object.entries(fields))
    out.set(protobuf.binary(field, report[name as keyof typeof fields]), field[2]);
  if (report.version >= 3) out.set(cpuBytes(report.cpuid1EaxFms), cpuid1EaxFms[2]);
  return out;
}

/**
 * Returns the CPU's family, model and stepping in three bytes. Only these bytes are signed, so no two EAX
 * values may give the same bytes: reserved bits must be 0, and an extended family needs the base family 15.
 */
function cpuBytes(eax: number): readonly number[] {
  const { family, model, stepping } = familyModelStepping(eax);
  const isExtended = eax >>> 20 !== 0;
  if ((eax & 0xf000f000) !== 0 || family > 255 || (isExtended && ((eax >>> 8) & 0xf) !== 0xf))
    throw malformed('the CPU family, model and stepping have bits that are not theirs');
  return [family, model, stepping];
}

export type SnpAttestation = Readonly<ReturnType<typeof decodeSnpAttestation>>;

/** The extras of the certificate chain have the CRL of the ARK (in DER) under this key. */
export const SNP_EXTRA_CRL = '00569ee4-e480-4fba-bbf4-45b629901180';

/** Throws evidence_malformed for a missing report, a wrong length, a too large number or a repeated field. */
export function decodeSnpAttestation(message: Uint8Array) {
  const fields = protobuf.readWireFields(message);
  const report = protobuf.messageField(fields, 1);
  if (report === undefined) throw malformed('the message holds no SEV-SNP report');
  const chain = protobuf.messageField(fields, 2) ?? new Map();
  const product = protobuf.messageField(fields, 3) ?? new Map();
  // ASK, ARK, VLEK and product name are not used, but each must have the right field type.
  for (const number of [2, 3, 6]) protobuf.bytesField(chain, number);
  protobuf.uintField(product, 1, 32);
  const stepping = protobuf.messageField(product, 3);
  return {
    report: protobuf.decode(REPORT_LAYOUT, report),
    /** The VCEK, which is empty if the message contains no VCEK. */
    vcek: protobuf.bytesField(chain, 1),
    arkCrl: decodeExtras(chain).get(SNP_EXTRA_CRL),
    machineStepping: stepping && Number(protobuf.uintField(stepping, 1, 32)),
  };
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
