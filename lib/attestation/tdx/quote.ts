/**
 * The binary TDX quote, version 4 (attestation.md 9.2). The evidence carries its fields as a message, so the bytes that
 * were signed are rebuilt here; the parser reads quotes in their binary form. All integers are little-endian.
 */
import { malformed } from '../x509/der.ts';
import {
  ENCLAVE_REPORT,
  type EnclaveReport,
  HEADER,
  type MessageOf,
  type QuoteV4,
  type Schema,
  TD_QUOTE_BODY,
} from './message.ts';

export const QUOTE_VERSION = 4;
/** ECDSA over P-256. */
export const ATTESTATION_KEY_TYPE = 2;
export const TEE_TYPE_TDX = 0x81;
/** A QE report with its own certification data; a PEM chain of the PCK certificate. */
export const CERTIFICATE_DATA_TYPE = { qeReport: 6, pckChain: 5 } as const;
export const HEADER_BYTES = 48;
export const BODY_BYTES = 584;
export const QE_REPORT_BYTES = 384;

/** The order of the fields in the binary form: where it differs from the numbers of the message, it is spelled out. */
const HEADER_ORDER = [
  'version',
  'attestationKeyType',
  'teeType',
  'pceSvn',
  'qeSvn',
  'qeVendorId',
  'userData',
] as const satisfies readonly (keyof typeof HEADER)[];
const BODY_ORDER = Object.keys(TD_QUOTE_BODY);
const REPORT_ORDER = Object.keys(ENCLAVE_REPORT);

/** Bytes that the attestation key signs: header and TD body, 632 bytes. */
export function signedQuoteBytes({
  header,
  tdQuoteBody,
}: Pick<QuoteV4, 'header' | 'tdQuoteBody'>): Uint8Array {
  return Buffer.concat([
    write(HEADER, HEADER_ORDER, header, HEADER_BYTES),
    write(TD_QUOTE_BODY, BODY_ORDER, tdQuoteBody, BODY_BYTES),
  ]);
}

/** Bytes that the PCK key signs: the SGX report body of the quoting enclave, 384 bytes. */
export function qeReportBytes(report: EnclaveReport): Uint8Array {
  return write(ENCLAVE_REPORT, REPORT_ORDER, report, QE_REPORT_BYTES);
}

/**
 * The sizes that a quote states about itself, against what is there (attestation.md 10, structure checks):
 * each row has what is stated and what was counted.
 */
export function statedSizes(quote: QuoteV4): readonly { name: string; stated: number; actual: number }[] {
  const { certificationData } = quote.signedData;
  const { qeAuthData, pckCertificateChainData } = certificationData.qeReportCertificationData;
  const chainBytes = pckCertificateChainData.pckCertChain.length;
  const certificationBytes = QE_REPORT_BYTES + 64 + 2 + qeAuthData.data.length + 6 + chainBytes;
  return [
    { name: 'PCK chain', stated: pckCertificateChainData.size, actual: chainBytes },
    { name: 'QE authentication data', stated: qeAuthData.parsedDataSize, actual: qeAuthData.data.length },
    { name: 'certification data', stated: certificationData.size, actual: certificationBytes },
    { name: 'signed data', stated: quote.signedDataSize, actual: 128 + 6 + certificationBytes },
  ];
}

/**
 * Reads a binary quote of version 4; what follows the signed data becomes `extraBytes`.
 * Throws evidence_malformed for another version (version 5 by name), a truncated quote, or sizes that disagree.
 */
export function parseQuote(bytes: Uint8Array): QuoteV4 {
  const source = new ByteSource(bytes);
  const version = source.peekUint16();
  if (version === 5) throw malformed('the quote has version 5, which is not supported');
  if (version !== QUOTE_VERSION) throw malformed(`the quote has version ${version} instead of 4`);
  const header = read(HEADER, HEADER_ORDER, source);
  const tdQuoteBody = read(TD_QUOTE_BODY, BODY_ORDER, source);
  const signedDataSize = source.uint(4);
  const signed = new ByteSource(source.take(signedDataSize));
  const signature = signed.take(64);
  const ecdsaAttestationKey = signed.take(64);
  const [certificateDataType, size] = [signed.uint(2), signed.uint(4)];
  const inner = new ByteSource(signed.take(size));
  signed.end();
  const qeReport = read(ENCLAVE_REPORT, REPORT_ORDER, inner);
  const qeReportSignature = inner.take(64);
  const parsedDataSize = inner.uint(2);
  const data = inner.take(parsedDataSize);
  const [chainType, chainSize] = [inner.uint(2), inner.uint(4)];
  const pckCertChain = inner.take(chainSize);
  inner.end();
  return {
    header,
    tdQuoteBody,
    signedDataSize,
    signedData: {
      signature,
      ecdsaAttestationKey,
      certificationData: {
        certificateDataType,
        size,
        qeReportCertificationData: {
          qeReport,
          qeReportSignature,
          qeAuthData: { parsedDataSize, data },
          pckCertificateChainData: { certificateDataType: chainType, size: chainSize, pckCertChain },
        },
      },
    },
    extraBytes: source.rest(),
  };
}

function write(
  schema: Schema,
  order: readonly string[],
  value: Readonly<Record<string, number | Uint8Array | readonly Uint8Array[]>>,
  total: number,
): Uint8Array {
  const parts = order.flatMap((name) => {
    const [field, part] = [schema[name], value[name]];
    if (typeof part !== 'number') return part ?? [];
    return littleEndian(part, field?.kind === 'uint' ? field.width : 0);
  });
  const out = new Uint8Array(Buffer.concat(parts));
  if (out.length !== total)
    throw malformed(`a part of the quote has ${out.length} bytes instead of ${total}`);
  return out;
}

const littleEndian = (value: number, width: number): Uint8Array =>
  Uint8Array.from({ length: width }, (_, i) => value >>> (8 * i));

function read<S extends Schema>(schema: S, order: readonly string[], source: ByteSource): MessageOf<S> {
  const entries = order.map((name) => {
    const field = schema[name];
    if (field?.kind === 'uint') return [name, source.uint(field.width)];
    if (field?.kind === 'list') {
      return [name, Array.from({ length: field.count }, () => source.take(field.length))];
    }
    return [name, source.take(field?.kind === 'bytes' ? (field.length ?? 0) : 0)];
  });
  return Object.fromEntries(entries) as MessageOf<S>;
}

/** Takes bytes from the front; every take beyond the end throws evidence_malformed. */
class ByteSource {
  readonly #bytes: Uint8Array;
  #offset = 0;

  constructor(bytes: Uint8Array) {
    this.#bytes = bytes;
  }

  take(length: number): Uint8Array {
    if (length > this.#bytes.length - this.#offset) throw malformed('the quote ends too early');
    this.#offset += length;
    return this.#bytes.subarray(this.#offset - length, this.#offset);
  }

  uint(width: 2 | 4): number {
    const part = this.take(width);
    const view = new DataView(part.buffer, part.byteOffset, width);
    return width === 2 ? view.getUint16(0, true) : view.getUint32(0, true);
  }

  peekUint16(): number {
    const value = this.uint(2);
    this.#offset -= 2;
    return value;
  }

  rest(): Uint8Array {
    return this.take(this.#bytes.length - this.#offset);
  }

  end(): void {
    if (this.#offset !== this.#bytes.length) throw malformed('bytes follow where the quote should end');
  }
}
