/**
 * Reads protobuf evidence messages, more strictly than proto3 demands (docs/protocol/attestation.md 13.13):
 * varints must have their shortest form, and no singular field may appear twice. Ignores unknown fields, as
 * upstream does (docs/protocol/attestation.md 6.1). Throws PrivatemodeError('evidence_malformed') only.
 */
import { BinaryReader, WireType } from '@bufbuild/protobuf/wire';
import { malformed } from '../crypto/der.ts';
import { PrivatemodeError } from '../errors.ts';

/**
 * A varint, the bytes of a length-delimited field, or false for other wire types, which no known field has.
 */
type WireValue = bigint | Uint8Array | false;

/** The values of each field number, in order of appearance. */
export type WireFields = ReadonlyMap<number, readonly WireValue[]>;

/** In one message, those inside of groups among them. */
const MAX_FIELDS = 1000;

export function readWireFields(message: Uint8Array): WireFields {
  const fields = new Map<number, WireValue[]>();
  const reader = new BinaryReader(message);
  /** The numbers of the groups that have begun. No known field is one, so what is inside is left out. */
  const groups: number[] = [];
  try {
    for (let count = 0; reader.pos < reader.len; count++) {
      if (count === MAX_FIELDS) throw malformed(`a protobuf message has more than ${MAX_FIELDS} fields`);
      const tag = Number(readVarint(reader, message));
      const [number, wireType] = [Math.floor(tag / 8), tag % 8];
      if (number < 1 || number > 0x1fffffff) throw malformed('a protobuf field number is out of range');
      if (wireType === WireType.EndGroup) {
        if (groups.pop() !== number) throw malformed('a protobuf group ends that did not begin');
        continue;
      }
      const isGroup = wireType === WireType.StartGroup;
      const value = !isGroup && readValue(reader, message, wireType, number);
      if (groups.length === 0 && !fields.get(number)?.push(value)) fields.set(number, [value]);
      if (isGroup) groups.push(number);
    }
    if (groups.length > 0) throw malformed('a protobuf message ends inside a group');
  } catch (cause) {
    throw cause instanceof PrivatemodeError ? cause : malformed('the bytes are not a protobuf message');
  }
  return fields;
}

function readValue(reader: BinaryReader, message: Uint8Array, wireType: WireType, number: number): WireValue {
  if (wireType === WireType.Varint) return readVarint(reader, message);
  if (wireType === WireType.LengthDelimited) return readDelimited(reader, message);
  reader.skip(wireType, number);
  return false;
}

function readVarint(reader: BinaryReader, message: Uint8Array): bigint {
  const start = reader.pos;
  const value = BigInt(reader.uint64());
  const length = reader.pos - start;
  const last = message[reader.pos - 1] ?? 0;
  if ((length > 1 && last === 0) || (length === 10 && last > 1)) {
    throw malformed('a protobuf number is not in its shortest form');
  }
  return value;
}

function readDelimited(reader: BinaryReader, message: Uint8Array): Uint8Array {
  const length = readVarint(reader, message);
  if (length > BigInt(reader.len - reader.pos)) throw malformed('a protobuf message ends inside a field');
  const bytes = message.subarray(reader.pos, reader.pos + Number(length));
  reader.pos += Number(length);
  return bytes;
}

function single(fields: WireFields, number: number): WireValue | undefined {
  const values = fields.get(number);
  if (values !== undefined && values.length > 1) throw malformed(`protobuf field ${number} appears twice`);
  return values?.[0];
}

/** An unsigned integer of at most `bits` bits; 0 where the field is absent. */
export function uintField(fields: WireFields, number: number, bits: 8 | 32 | 64): bigint {
  const value = single(fields, number) ?? 0n;
  if (typeof value !== 'bigint') throw malformed(`protobuf field ${number} is not a number`);
  if (value >> BigInt(bits) !== 0n) throw malformed(`protobuf field ${number} exceeds ${bits} bits`);
  return value;
}

function asBytes(value: WireValue, number: number): Uint8Array {
  if (!(value instanceof Uint8Array)) throw malformed(`protobuf field ${number} is not a byte string`);
  return value;
}

/** Bytes, empty where the field is absent; with `length`, exactly that many. */
export function bytesField(fields: WireFields, number: number, length?: number): Uint8Array {
  const value = asBytes(single(fields, number) ?? new Uint8Array(0), number);
  if (length !== undefined && value.length !== length) {
    throw malformed(`protobuf field ${number} has ${value.length} bytes instead of ${length}`);
  }
  return value;
}

/** A sub-message; undefined where the field is absent. */
export function messageField(fields: WireFields, number: number): WireFields | undefined {
  return fields.has(number) ? readWireFields(bytesField(fields, number)) : undefined;
}

/** All occurrences of a repeated bytes (or message) field. */
export function repeatedBytesField(fields: WireFields, number: number): readonly Uint8Array[] {
  return (fields.get(number) ?? []).map((value) => asBytes(value, number));
}
