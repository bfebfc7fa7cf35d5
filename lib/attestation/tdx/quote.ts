/**
 * Reads a TDX quote of version 4 from its protobuf message (docs/protocol/attestation.md 9.1). The signatures
 * cover the binary form of the quote (9.2), which has little-endian integers.
 */
import { malformed } from '../../crypto/der.ts';
import * as protobuf from '../protobuf.ts';

// Each of the three tables HEADER, TD_QUOTE_BODY and ENCLAVE_REPORT lists fields in binary order.
const HEADER = {
  version: [1, 'u16'],
  attestationKeyType: [2, 'u16'],
  teeType: [3, 'u32'],
  pceSvn: [5, 2],
  qeSvn: [4, 2],
  qeVendorId: [6, 16],
  userData: [7, 20],
} as const;

const TD_QUOTE_BODY = {
  teeTcbSvn: [1, 16],
  mrSeam: [2, 48],
  mrSignerSeam: [3, 48],
  seamAttributes: [4, 8],
  tdAttributes: [5, 8],
  xfam: [6, 8],
  mrTd: [7, 48],
  mrConfigId: [8, 48],
  mrOwner: [9, 48],
  mrOwnerConfig: [10, 48],
  rtmrs: [11, 'rtmrs'],
  reportData: [12, 64],
} as const;

const ENCLAVE_REPORT = {
  cpuSvn: [1, 16],
  miscSelect: [2, 'u32'],
  reserved1: [3, 28],
  attributes: [4, 16],
  mrEnclave: [5, 32],
  reserved2: [6, 32],
  mrSigner: [7, 32],
  reserved3: [8, 96],
  isvProdId: [9, 'u16'],
  isvSvn: [10, 'u16'],
  reserved4: [11, 60],
  reportData: [12, 64],
} as const;

const PCK_DATA = { certificateDataType: [1, 'u16'], size: [2, 'u32'], pckCertChain: [3, 'bytes'] } as const;

const QE_DATA = {
  qeReport: [1, ENCLAVE_REPORT],
  qeReportSignature: [2, 64],
  qeAuthData: [3, { parsedDataSize: [1, 'u16'], data: [2, 'bytes'] }],
  pckCertificateChainData: [4, PCK_DATA],
} as const;

const CERTIFICATION_DATA = {
  certificateDataType: [1, 'u16'],
  size: [2, 'u32'],
  qeReportCertificationData: [3, QE_DATA],
} as const;

export const QUOTE_V4 = {
  header: [1, HEADER],
  tdQuoteBody: [2, TD_QUOTE_BODY],
  signedDataSize: [3, 'u32'],
  signedData: [
    4,
    { signature: [1, 64], ecdsaAttestationKey: [2, 64], certificationData: [3, CERTIFICATION_DATA] },
  ],
  extraBytes: [5, 'bytes'],
} as const;

export type QuoteV4 = protobuf.MessageOf<typeof QUOTE_V4>;
export type TdQuoteBody = protobuf.MessageOf<typeof TD_QUOTE_BODY>;
export type EnclaveReport = protobuf.MessageOf<typeof ENCLAVE_REPORT>;

/** Key type 2 is ECDSA P-256. Certification data of type 6 holds a QE report and a PCK chain (type 5). */
export const QUOTE_TYPES = { version: 4, attestationKey: 2, tee: 0x81, certification: 6, pck: 5 } as const;
export const QE_REPORT_BYTES = 384;

/** A limit in bytes. A quote has about 5 KB. Contrast adds `extra_bytes` of 70 to 86 KB, which may grow. */
const MAX_MESSAGE_BYTES = 1024 * 1024;

/**
 * Throws evidence_malformed for a quote of more than 1 MiB, a missing sub-message, a repeated field, a wrong
 * number of RTMRs, a byte string of the wrong length, or a number too large for the binary form.
 */
export function decodeQuoteV4(bytes: Uint8Array): QuoteV4 {
  if (bytes.length > MAX_MESSAGE_BYTES) throw malformed('the TDX message is too large');
  return protobuf.decode(QUOTE_V4, protobuf.readWireFields(bytes));
}

/** Names the parts of a quote. `qe` holds the data by which the PCK key certifies the attestation key. */
export const quoteParts = (quote: QuoteV4) => ({
  quote,
  header: quote.header,
  body: quote.tdQuoteBody,
  qe: quote.signedData.certificationData.qeReportCertificationData,
});

/** The bytes that the attestation key signs: the header (48 bytes) and the TD body (584 bytes). */
export const signedQuoteBytes = (quote: Pick<QuoteV4, 'header' | 'tdQuoteBody'>): Uint8Array =>
  Buffer.concat([write(HEADER, quote.header), write(TD_QUOTE_BODY, quote.tdQuoteBody)]);

/** The bytes that the PCK key signs: the 384-byte SGX report body of the quoting enclave. */
export const qeReportBytes = (report: EnclaveReport): Uint8Array => write(ENCLAVE_REPORT, report);

const write = <S extends protobuf.Schema>(schema: S, values: protobuf.MessageOf<S>): Uint8Array =>
  Buffer.concat(Object.entries(schema).map(([name, field]) => protobuf.binary(field, values[name])));
