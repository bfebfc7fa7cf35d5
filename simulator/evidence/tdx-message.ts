/**
 * Writes the protobuf message that carries a TDX quote (docs/protocol/attestation.md 9.1), from the same
 * table with which lib reads it.
 */
import type { Field, MessageOf, Schema } from '../../lib/attestation/protobuf.ts';
import { QUOTE_V4, type QuoteV4 } from '../../lib/attestation/tdx/quote.ts';
import { bytesField, messageField, uintField } from './wire-fields.ts';

export const encodeQuoteV4 = (quote: QuoteV4): Uint8Array => new Uint8Array(encode(QUOTE_V4, quote));

function encode<S extends Schema>(schema: S, value: MessageOf<S>): Uint8Array {
  const byNumber = Object.entries(schema).sort(([, [a]], [, [b]]) => a - b);
  return Buffer.concat(byNumber.flatMap(([name, field]) => encodeField(field, value[name])));
}

function encodeField([no, shape]: Field, value: unknown): Uint8Array[] {
  if (typeof value === 'number') return [uintField(no, value)];
  if (typeof shape === 'object') return [messageField(no, encode(shape, value as MessageOf<Schema>))];
  const parts = shape === 'rtmrs' ? (value as readonly Uint8Array[]) : [value as Uint8Array];
  return parts.map((part) => bytesField(no, part));
}
