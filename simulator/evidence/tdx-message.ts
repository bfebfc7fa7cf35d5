/**
 * Writes the protobuf message that carries a TDX quote (docs/protocol/attestation.md 9.1), from the same
 * table with which lib reads it.
 */
import {
  type Field,
  type MessageOf,
  QUOTE_V4,
  type QuoteV4,
  type Schema,
} from '../../lib/attestation/tdx/quote.ts';
import { bytesField, messageField, uintField } from './wire-fields.ts';

export const encodeQuoteV4 = (quote: QuoteV4): Uint8Array => new Uint8Array(encode(QUOTE_V4, quote));

function encode<S extends Schema>(schema: S, value: MessageOf<S>): Uint8Array {
  const byNumber = Object.entries(schema).sort(([, a], [, b]) => a.no - b.no);
  return Buffer.concat(byNumber.flatMap(([name, field]) => encodeField(field, value[name])));
}

function encodeField(field: Field, value: unknown): Uint8Array[] {
  if (field.kind === 'uint') return [uintField(field.no, value as number)];
  if (field.kind === 'message')
    return [messageField(field.no, encode(field.fields, value as MessageOf<Schema>))];
  const parts = field.kind === 'list' ? (value as readonly Uint8Array[]) : [value as Uint8Array];
  return parts.map((part) => bytesField(field.no, part));
}
