/**
 * A TDX quote of version 4, as the protobuf message that carries it (docs/protocol/attestation.md 9.1). Its
 * signatures cover the binary form (9.2, integers little-endian). One table gives both, and the types.
 */
import { malformed } from '../../crypto/der.ts';
import * as protobuf from '../protobuf.ts';

/** A field: its number in the message, and its shape. `width`: bytes of the integer in the binary form. */
export type Field =
  | { readonly kind: 'uint'; readonly no: number; readonly width: 2 | 4 }
  | { readonly kind: 'bytes'; readonly no: number; readonly length: number | undefined }
  | { readonly kind: 'list'; readonly no: number; readonly length: number; readonly count: number }
  | { readonly kind: 'message'; readonly no: number; readonly fields: Schema };

export interface Schema {
  readonly [name: string]: Field;
}

interface Values<F extends Field> {
  readonly uint: number;
  readonly bytes: Uint8Array;
  readonly list: readonly Uint8Array[];
  readonly message: F extends { fields: infer S extends Schema } ? MessageOf<S> : never;
}

export type MessageOf<S extends Schema> = { readonly [K in keyof S]: Values<S[K]>[S[K]['kind']] };

const u16 = (no: number) => ({ kind: 'uint', no, width: 2 }) as const;
const u32 = (no: number) => ({ kind: 'uint', no, width: 4 }) as const;
const bytes = (no: number, length?: number) => ({ kind: 'bytes', no, length }) as const;
const message = <const S extends Schema>(no: number, fields: S) => ({ kind: 'message', no, fields }) as const;

// In each of the next three tables, the fields stand in the order of the binary form.
const HEADER = {
  version: u16(1),
  attestationKeyType: u16(2),
  teeType: u32(3),
  pceSvn: bytes(5, 2),
  qeSvn: bytes(4, 2),
  qeVendorId: bytes(6, 16),
  userData: bytes(7, 20),
} as const;

const TD_QUOTE_BODY = {
  teeTcbSvn: bytes(1, 16),
  mrSeam: bytes(2, 48),
  mrSignerSeam: bytes(3, 48),
  seamAttributes: bytes(4, 8),
  tdAttributes: bytes(5, 8),
  xfam: bytes(6, 8),
  mrTd: bytes(7, 48),
  mrConfigId: bytes(8, 48),
  mrOwner: bytes(9, 48),
  mrOwnerConfig: bytes(10, 48),
  rtmrs: { kind: 'list', no: 11, length: 48, count: 4 },
  reportData: bytes(12, 64),
} as const;

const ENCLAVE_REPORT = {
  cpuSvn: bytes(1, 16),
  miscSelect: u32(2),
  reserved1: bytes(3, 28),
  attributes: bytes(4, 16),
  mrEnclave: bytes(5, 32),
  reserved2: bytes(6, 32),
  mrSigner: bytes(7, 32),
  reserved3: bytes(8, 96),
  isvProdId: u16(9),
  isvSvn: u16(10),
  reserved4: bytes(11, 60),
  reportData: bytes(12, 64),
} as const;

const QE_REPORT_CERTIFICATION_DATA = {
  qeReport: message(1, ENCLAVE_REPORT),
  qeReportSignature: bytes(2, 64),
  qeAuthData: message(3, { parsedDataSize: u16(1), data: bytes(2) }),
  pckCertificateChainData: message(4, { certificateDataType: u16(1), size: u32(2), pckCertChain: bytes(3) }),
} as const;

export const QUOTE_V4 = {
  header: message(1, HEADER),
  tdQuoteBody: message(2, TD_QUOTE_BODY),
  signedDataSize: u32(3),
  signedData: message(4, {
    signature: bytes(1, 64),
    ecdsaAttestationKey: bytes(2, 64),
    certificationData: message(3, {
      certificateDataType: u16(1),
      size: u32(2),
      qeReportCertificationData: message(3, QE_REPORT_CERTIFICATION_DATA),
    }),
  }),
  extraBytes: bytes(5),
} as const;

export type QuoteV4 = MessageOf<typeof QUOTE_V4>;
export type TdQuoteBody = MessageOf<typeof TD_QUOTE_BODY>;
export type EnclaveReport = MessageOf<typeof ENCLAVE_REPORT>;

/** ECDSA over P-256; a QE report with its own certification data; in that, PEM of the PCK certificate. */
export const QUOTE_TYPES = { version: 4, attestationKey: 2, tee: 0x81, certification: 6, pck: 5 } as const;
export const QE_REPORT_BYTES = 384;

/** A quote has about 5 KB; what Contrast adds in `extra_bytes` has 70 to 86 KB, and grows. */
const MAX_MESSAGE_BYTES = 1024 * 1024;

/**
 * Throws evidence_malformed for: more than 1 MiB, a field of another length or number than listed, a missing
 * sub-message, a number too large for its place in the binary form, a singular field twice.
 */
export function decodeQuoteV4(bytes: Uint8Array): QuoteV4 {
  if (bytes.length > MAX_MESSAGE_BYTES) throw malformed('the TDX message is too large');
  return decode(QUOTE_V4, protobuf.readWireFields(bytes));
}

function decode<S extends Schema>(schema: S, wire: protobuf.WireFields): MessageOf<S> {
  const entries = Object.entries(schema).map(([name, field]) => [name, decodeField(name, field, wire)]);
  return Object.fromEntries(entries) as MessageOf<S>;
}

function decodeField(name: string, field: Field, wire: protobuf.WireFields): unknown {
  if (field.kind === 'bytes') return protobuf.bytesField(wire, field.no, field.length);
  if (field.kind === 'uint') {
    const value = Number(protobuf.uintField(wire, field.no, 32));
    if (value < 2 ** (8 * field.width)) return value;
    throw malformed(`${name} exceeds ${field.width} bytes`);
  }
  if (field.kind === 'message') {
    const inner = protobuf.messageField(wire, field.no);
    if (inner !== undefined) return decode(field.fields, inner);
    throw malformed(`the TDX message has no ${name}`);
  }
  const list = protobuf.repeatedBytesField(wire, field.no);
  if (list.length === field.count && list.every(({ length }) => length === field.length)) return list;
  throw malformed(`${name} must be ${field.count} byte strings of ${field.length} bytes`);
}

/** The quote and its parts: in `qe`, the quoting enclave and the PCK vouch for the attestation key. */
export const quoteParts = (quote: QuoteV4) => ({
  quote,
  header: quote.header,
  body: quote.tdQuoteBody,
  qe: quote.signedData.certificationData.qeReportCertificationData,
});

/** The bytes that the attestation key signs: header (48 bytes) and TD body (584 bytes). */
export const signedQuoteBytes = (quote: Pick<QuoteV4, 'header' | 'tdQuoteBody'>): Uint8Array =>
  Buffer.concat([write(HEADER, quote.header), write(TD_QUOTE_BODY, quote.tdQuoteBody)]);

/** The bytes that the PCK key signs: the SGX report body of the quoting enclave, 384 bytes. */
export const qeReportBytes = (report: EnclaveReport): Uint8Array => write(ENCLAVE_REPORT, report);

function write<S extends Schema>(schema: S, values: MessageOf<S>): Uint8Array {
  const parts = Object.entries(schema).flatMap(([name, field]) => {
    const value = values[name] as number | Uint8Array | readonly Uint8Array[];
    return typeof value === 'number' ? littleEndian(value, field.kind === 'uint' ? field.width : 0) : value;
  });
  return Buffer.concat(parts);
}

export const littleEndian = (value: number, width: number): Uint8Array =>
  Uint8Array.from({ length: width }, (_, i) => value >>> (8 * i));
