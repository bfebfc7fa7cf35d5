/**
 * The protobuf message QuoteV4 that carries a TDX quote (attestation.md 9.1). One table of messages and fields serves
 * reading, writing, the types and, through the widths, the binary layout in quote.ts.
 */
import { BinaryWriter, WireType } from '@bufbuild/protobuf/wire';
import {
  bytesField,
  messageField,
  readWireFields,
  repeatedBytesField,
  uintField,
  type WireFields,
} from '../protobuf.ts';
import { malformed } from '../x509/der.ts';

/** A field: its number in the message and its shape. `width` is the bytes of an integer in the binary quote. */
type Field =
  | { readonly kind: 'uint'; readonly no: number; readonly width: 2 | 4 }
  | { readonly kind: 'bytes'; readonly no: number; readonly length: number | undefined }
  | { readonly kind: 'list'; readonly no: number; readonly length: number; readonly count: number }
  | { readonly kind: 'message'; readonly no: number; readonly fields: Schema };

export interface Schema {
  readonly [name: string]: Field;
}

type ValueOf<F extends Field> = F extends { kind: 'uint' }
  ? number
  : F extends { kind: 'bytes' }
    ? Uint8Array
    : F extends { kind: 'list' }
      ? readonly Uint8Array[]
      : F extends { kind: 'message'; fields: infer S extends Schema }
        ? MessageOf<S>
        : never;

export type MessageOf<S extends Schema> = { readonly [K in keyof S]: ValueOf<S[K]> };

const u16 = <const N extends number>(no: N) => ({ kind: 'uint', no, width: 2 }) as const;
const u32 = <const N extends number>(no: N) => ({ kind: 'uint', no, width: 4 }) as const;
const fixed = (no: number, length: number) => ({ kind: 'bytes', no, length }) as const;
const blob = (no: number) => ({ kind: 'bytes', no, length: undefined }) as const;
const message = <const S extends Schema>(no: number, fields: S) => ({ kind: 'message', no, fields }) as const;

export const HEADER = {
  version: u16(1),
  attestationKeyType: u16(2),
  teeType: u32(3),
  qeSvn: fixed(4, 2),
  pceSvn: fixed(5, 2),
  qeVendorId: fixed(6, 16),
  userData: fixed(7, 20),
} as const;

export const TD_QUOTE_BODY = {
  teeTcbSvn: fixed(1, 16),
  mrSeam: fixed(2, 48),
  mrSignerSeam: fixed(3, 48),
  seamAttributes: fixed(4, 8),
  tdAttributes: fixed(5, 8),
  xfam: fixed(6, 8),
  mrTd: fixed(7, 48),
  mrConfigId: fixed(8, 48),
  mrOwner: fixed(9, 48),
  mrOwnerConfig: fixed(10, 48),
  rtmrs: { kind: 'list', no: 11, length: 48, count: 4 },
  reportData: fixed(12, 64),
} as const;

export const ENCLAVE_REPORT = {
  cpuSvn: fixed(1, 16),
  miscSelect: u32(2),
  reserved1: fixed(3, 28),
  attributes: fixed(4, 16),
  mrEnclave: fixed(5, 32),
  reserved2: fixed(6, 32),
  mrSigner: fixed(7, 32),
  reserved3: fixed(8, 96),
  isvProdId: u16(9),
  isvSvn: u16(10),
  reserved4: fixed(11, 60),
  reportData: fixed(12, 64),
} as const;

const QE_REPORT_CERTIFICATION_DATA = {
  qeReport: message(1, ENCLAVE_REPORT),
  qeReportSignature: fixed(2, 64),
  qeAuthData: message(3, { parsedDataSize: u16(1), data: blob(2) }),
  pckCertificateChainData: message(4, { certificateDataType: u16(1), size: u32(2), pckCertChain: blob(3) }),
} as const;

const QUOTE_V4 = {
  header: message(1, HEADER),
  tdQuoteBody: message(2, TD_QUOTE_BODY),
  signedDataSize: u32(3),
  signedData: message(4, {
    signature: fixed(1, 64),
    ecdsaAttestationKey: fixed(2, 64),
    certificationData: message(3, {
      certificateDataType: u16(1),
      size: u32(2),
      qeReportCertificationData: message(3, QE_REPORT_CERTIFICATION_DATA),
    }),
  }),
  extraBytes: blob(5),
} as const;

export type QuoteV4 = MessageOf<typeof QUOTE_V4>;
export type QuoteHeader = MessageOf<typeof HEADER>;
export type TdQuoteBody = MessageOf<typeof TD_QUOTE_BODY>;
export type EnclaveReport = MessageOf<typeof ENCLAVE_REPORT>;

/** A quote with its chain has about 5 KB; the collateral that Contrast adds in `extra_bytes` 70 to 86 KB, and it grows. */
const MAX_MESSAGE_BYTES = 1024 * 1024;

/**
 * Reads the message. Throws evidence_malformed when it is not one: a byte field of another length than listed, not
 * exactly four RTMRs, a missing sub-message, a number too large for its place in the quote, a singular field twice.
 */
export function decodeQuoteV4(bytes: Uint8Array): QuoteV4 {
  if (bytes.length > MAX_MESSAGE_BYTES) throw malformed('the TDX message is too large');
  return decode(QUOTE_V4, readWireFields(bytes));
}

function decode<S extends Schema>(schema: S, wire: WireFields): MessageOf<S> {
  const entries = Object.entries(schema).map(([name, field]) => [name, decodeField(name, field, wire)]);
  return Object.fromEntries(entries) as MessageOf<S>;
}

function decodeField(name: string, field: Field, wire: WireFields): unknown {
  switch (field.kind) {
    case 'uint': {
      const value = Number(uintField(wire, field.no, 32));
      if (value >= 2 ** (8 * field.width)) throw malformed(`${name} exceeds ${field.width} bytes`);
      return value;
    }
    case 'bytes':
      return bytesField(wire, field.no, field.length);
    case 'list': {
      const list = repeatedBytesField(wire, field.no);
      if (list.length !== field.count || list.some(({ length }) => length !== field.length)) {
        throw malformed(`${name} must be ${field.count} byte strings of ${field.length} bytes`);
      }
      return list;
    }
    case 'message': {
      const inner = messageField(wire, field.no);
      if (inner === undefined) throw malformed(`the TDX message has no ${name}`);
      return decode(field.fields, inner);
    }
  }
}

/** Writes the message, leaving out zeros and empty byte strings as proto3 does. */
export function encodeQuoteV4(quote: QuoteV4): Uint8Array {
  const writer = new BinaryWriter();
  encode(writer, QUOTE_V4, quote);
  return writer.finish();
}

function encode<S extends Schema>(writer: BinaryWriter, schema: S, value: MessageOf<S>): void {
  for (const [name, field] of Object.entries(schema)) encodeField(writer, field, value[name]);
}

function encodeField(writer: BinaryWriter, field: Field, value: unknown): void {
  if (field.kind === 'uint') {
    if (value !== 0) writer.tag(field.no, WireType.Varint).uint32(value as number);
  } else if (field.kind === 'message') {
    writer.tag(field.no, WireType.LengthDelimited).fork();
    encode(writer, field.fields, value as MessageOf<Schema>);
    writer.join();
  } else {
    const parts = field.kind === 'list' ? (value as readonly Uint8Array[]) : [value as Uint8Array];
    for (const part of parts) {
      if (part.length > 0) writer.tag(field.no, WireType.LengthDelimited).bytes(part);
    }
  }
}
