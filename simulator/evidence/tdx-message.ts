/**
 * Writes the protobuf message that carries a TDX quote (docs/protocol/attestation.md 9.1), from the same
 * table with which lib reads it.
 */
import { BinaryWriter, WireType } from '@bufbuild/protobuf/wire';
import {
  type Field,
  type MessageOf,
  QUOTE_V4,
  type QuoteV4,
  type Schema,
} from '../../lib/attestation/tdx/quote.ts';

/** The bytes of the message. As in proto3, zeros and empty byte strings are left out. */
export function encodeQuoteV4(quote: QuoteV4): Uint8Array {
  const writer = new BinaryWriter();
  encode(writer, QUOTE_V4, quote);
  return writer.finish();
}

function encode<S extends Schema>(writer: BinaryWriter, schema: S, value: MessageOf<S>): void {
  const byNumber = Object.entries(schema).sort(([, a], [, b]) => a.no - b.no);
  for (const [name, field] of byNumber) encodeField(writer, field, value[name]);
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
