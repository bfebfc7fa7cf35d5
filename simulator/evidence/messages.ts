/**
 * Writes the protobuf messages that carry evidence (docs/protocol/attestation.md 6.1, 9.1), from the same
 * tables with which lib reads them. As in proto3, zeros and empty byte strings are left out. A message is the
 * concatenation of its fields.
 */
import type { Field, MessageOf, Schema } from '../../lib/attestation/protobuf.ts';
import { REPORT_LAYOUT, SNP_EXTRA_CRL, type SnpReport } from '../../lib/attestation/snp/report.ts';
import { QUOTE_V4, type QuoteV4 } from '../../lib/attestation/tdx/quote.ts';

/** Least significant seven bits first; every byte but the last has its highest bit set. */
function varint(value: bigint): number[] {
  const low = Number(value & 0x7fn);
  return value < 0x80n ? [low] : [low | 0x80, ...varint(value >> 7n)];
}

/** A field of wire type 2, whatever its length. */
export function messageField(number: number, ...parts: readonly Uint8Array[]): Uint8Array {
  const content = Buffer.concat(parts);
  const head = [...varint(BigInt(number * 8 + 2)), ...varint(BigInt(content.length))];
  return Buffer.concat([Uint8Array.from(head), content]);
}

export const bytesField = (number: number, value: Uint8Array = new Uint8Array(0)): Uint8Array =>
  value.length === 0 ? value : messageField(number, value);

const uintField = (number: number, value: bigint | number): Uint8Array =>
  Uint8Array.from(BigInt(value) === 0n ? [] : [...varint(BigInt(number * 8)), ...varint(BigInt(value))]);

function encode<S extends Schema>(schema: S, value: MessageOf<S>): Uint8Array {
  const byNumber = Object.entries(schema).sort(([, [a]], [, [b]]) => a - b);
  return Buffer.concat(byNumber.flatMap(([name, field]) => encodeField(field, value[name])));
}

function encodeField([no, shape]: Field, value: unknown): Uint8Array[] {
  if (typeof value === 'number' || typeof value === 'bigint') return [uintField(no, value)];
  if (typeof shape === 'object') return [messageField(no, encode(shape, value as MessageOf<Schema>))];
  const parts = shape === 'rtmrs' ? (value as readonly Uint8Array[]) : [value as Uint8Array];
  return parts.map((part) => bytesField(no, part));
}

export const encodeQuoteV4 = (quote: QuoteV4): Uint8Array => new Uint8Array(encode(QUOTE_V4, quote));

/** A certificate that is absent or empty is left out, and so is the product without a stepping. */
export type SnpMessage = {
  readonly report: SnpReport;
  readonly machineStepping?: number | undefined;
} & Readonly<Partial<Record<'vcek' | 'ask' | 'ark' | 'arkCrl', Uint8Array | undefined>>>;

/** The number of Genoa among the names of products. */
const GENOA = 2;

export function encodeSnpAttestation(message: SnpMessage): Uint8Array {
  const { report, vcek, ask, ark, arkCrl, machineStepping } = message;
  const chain = [bytesField(1, vcek), bytesField(2, ask), bytesField(3, ark)];
  if (arkCrl) chain.push(messageField(7, bytesField(1, Buffer.from(SNP_EXTRA_CRL)), bytesField(2, arkCrl)));
  const parts = [messageField(1, encode(REPORT_LAYOUT, report)), messageField(2, ...chain)];
  if (machineStepping !== undefined) {
    const stepping = messageField(3, uintField(1, machineStepping));
    parts.push(messageField(3, uintField(1, GENOA), stepping));
  }
  return new Uint8Array(Buffer.concat(parts));
}
