/**
 * Reads binary TDX quotes of version 4 (docs/protocol/attestation.md 9.2), as other projects publish them:
 * with it the tests compare the signed bytes that lib rebuilds from a message with the bytes of real quotes.
 */
import type { MessageOf, Schema } from '../../../lib/attestation/protobuf.ts';
import { QUOTE_V4, type QuoteV4 } from '../../../lib/attestation/tdx/quote.ts';
import { malformed } from '../../../lib/crypto/der.ts';

const [, QE_REPORT] = QUOTE_V4.signedData[1].certificationData[1].qeReportCertificationData[1].qeReport;

/** What follows the signed data becomes `extraBytes`. Throws for a quote cut off, or sizes that disagree. */
export function parseQuote(bytes: Uint8Array): QuoteV4 {
  const source = new ByteSource(bytes);
  const header = read(QUOTE_V4.header[1], source);
  const tdQuoteBody = read(QUOTE_V4.tdQuoteBody[1], source);
  const signedDataSize = source.uint(4);
  const signed = new ByteSource(source.take(signedDataSize));
  const signature = signed.take(64);
  const ecdsaAttestationKey = signed.take(64);
  const [certificateDataType, size] = [signed.uint(2), signed.uint(4)];
  const inner = new ByteSource(signed.take(size));
  signed.end();
  const qeReport = read(QE_REPORT, inner);
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

function read<S extends Schema>(schema: S, source: ByteSource): MessageOf<S> {
  const entries = Object.entries(schema).map(([name, [, shape]]) => {
    if (shape === 'u16' || shape === 'u32') return [name, source.uint(shape === 'u16' ? 2 : 4)];
    if (shape === 'rtmrs') return [name, Array.from({ length: 4 }, () => source.take(48))];
    return [name, source.take(typeof shape === 'number' ? shape : 0)];
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

  rest(): Uint8Array {
    return this.take(this.#bytes.length - this.#offset);
  }

  end(): void {
    if (this.#offset !== this.#bytes.length) throw malformed('bytes follow where the quote should end');
  }
}
