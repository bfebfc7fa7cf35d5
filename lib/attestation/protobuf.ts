/**
 * Reads the protobuf messages of evidence, more strictly than proto3 requires (docs/protocol/attestation.md
 * 13.13). A varint must have its shortest form. No singular field may appear twice. Groups are refused,
 * because no evidence has a group. Like the reference proxy, this reader ignores all unknown fields but
 * groups (docs/protocol/attestation.md 6.1). Every function throws evidence_malformed only.
 */
import { malformed } from '../crypto/der.ts';

/** A varint, the bytes of a length-delimited field, or false: values of fixed width are never used. */
type WireValue = bigint | Uint8Array | false;

/** The values of each field by field number, in the order in which they appear in the message. */
export type WireFields = ReadonlyMap<number, readonly WireValue[]>;

const MAX_FIELDS = 1000;

export function readWireFields(message: Uint8Array): WireFields {
  const fields = new Map<number, WireValue[]>();
  let offset = 0;
  const take = (length: number): Uint8Array => {
    if (length > message.length - offset) throw malformed('a protobuf message ends inside a field');
    offset += length;
    return message.subarray(offset - length, offset);
  };
  const takeVarint = (): bigint => {
    let value = 0n;
    for (let shift = 0n; shift < 64n; shift += 7n) {
      const [byte = 0] = take(1);
      value |= BigInt(byte & 0x7f) << shift;
      if (byte >= 0x80) continue;
      if ((byte === 0 && shift > 0n) || value >> 64n > 0n) break;
      return value;
    }
    throw malformed('a protobuf number is not in its shortest form, or has more than 64 bits');
  };
  /** Functions that read a value, by wire type. Wire types without a function mark groups or do not exist. */
  const values: Readonly<Record<number, () => WireValue>> = {
    0: takeVarint,
    1: () => take(8) && false,
    2: () => take(Number(takeVarint())),
    5: () => take(4) && false,
  };
  for (let count = 0; offset < message.length; count++) {
    if (count === MAX_FIELDS) throw malformed(`a protobuf message has more than ${MAX_FIELDS} fields`);
    const tag = Number(takeVarint());
    const [number, takeValue] = [Math.floor(tag / 8), values[tag % 8]];
    if (number < 1 || number > 0x1fffffff) throw malformed('a protobuf field number is out of range');
    if (takeValue === undefined) throw malformed(`protobuf field ${number} has wire type ${tag % 8}`);
    const value = takeValue();
    if (!fields.get(number)?.push(value)) fields.set(number, [value]);
  }
  return fields;
}

function single<T>(values: readonly T[], number: number): T | undefined {
  if (values.length > 1) throw malformed(`protobuf field ${number} appears twice`);
  return values[0];
}

/** Reads an unsigned integer of at most `bits` bits. The value of an absent field is 0. */
export function uintField(fields: WireFields, number: number, bits: 8 | 16 | 32 | 64): bigint {
  const value = single(fields.get(number) ?? [], number) ?? 0n;
  if (typeof value !== 'bigint') throw malformed(`protobuf field ${number} is not a number`);
  if (value >> BigInt(bits) !== 0n) throw malformed(`protobuf field ${number} exceeds ${bits} bits`);
  return value;
}

/** Reads all values of a repeated field of bytes or messages. */
export const repeatedBytesField = (fields: WireFields, number: number): readonly Uint8Array[] =>
  (fields.get(number) ?? []).map((value) => {
    if (value instanceof Uint8Array) return value;
    throw malformed(`protobuf field ${number} is not a byte string`);
  });

/** Reads a byte string, which is empty if the field is absent. `length` demands an exact number of bytes. */
export function bytesField(fields: WireFields, number: number, length?: number): Uint8Array {
  const value = single(repeatedBytesField(fields, number), number) ?? new Uint8Array(0);
  if (length !== undefined && value.length !== length)
    throw malformed(`protobuf field ${number} has ${value.length} bytes instead of ${length}`);
  return value;
}

/** Reads a sub-message. Returns undefined if the field is absent. */
export const messageField = (fields: WireFields, number: number): WireFields | undefined =>
  fields.has(number) ? readWireFields(bytesField(fields, number)) : undefined;

/** The type of a field: an integer, bytes (a number gives their length), four RTMRs, or a message. */
type Shape = keyof typeof BITS | number | 'bytes' | 'rtmrs' | Schema;
const BITS = { u8: 8, u16: 16, u32: 32, u64: 64 } as const;

/** The number of a field in the message, its type, and its offset if the binary form has gaps. */
export type Field = readonly [no: number, shape: Shape, offset?: number];

export interface Schema {
  readonly [name: string]: Field;
}

type ValueOf<S extends Shape> = S extends keyof typeof BITS
  ? S extends 'u64'
    ? bigint
    : number
  : S extends number | 'bytes'
    ? Uint8Array
    : S extends Schema
      ? MessageOf<S>
      : readonly Uint8Array[];

export type MessageOf<S extends Schema> = { readonly [Name in keyof S]: ValueOf<S[Name][1]> };

/** Decodes a message by its schema. Sub-messages and byte strings of fixed length must be present. */
export function decode<S extends Schema>(schema: S, wire: WireFields): MessageOf<S> {
  const entries = Object.entries(schema).map(([name, field]) => [name, decodeField(name, field, wire)]);
  return Object.fromEntries(entries) as MessageOf<S>;
}

function decodeField(name: string, [no, shape]: Field, wire: WireFields): unknown {
  if (shape === 'u64') return uintField(wire, no, 64);
  if (shape === 'u8' || shape === 'u16' || shape === 'u32') return Number(uintField(wire, no, BITS[shape]));
  if (shape === 'bytes') return bytesField(wire, no);
  if (typeof shape === 'number') return bytesField(wire, no, shape);
  if (shape === 'rtmrs') {
    const list = repeatedBytesField(wire, no);
    if (list.length === 4 && list.every(({ length }) => length === 48)) return list;
    throw malformed(`${name} must be 4 byte strings of 48 bytes`);
  }
  const inner = messageField(wire, no);
  if (inner !== undefined) return decode(shape, inner);
  throw malformed(`the message has no ${name}`);
}

/** The bytes of a value in the binary form that the hardware signs, with integers in little-endian. */
export function binary([, shape]: Field, value: unknown): Uint8Array {
  if (value instanceof Uint8Array) return value;
  if (Array.isArray(value)) return Buffer.concat(value);
  return littleEndian(value as number | bigint, BITS[shape as keyof typeof BITS] / 8);
}

/** The number as `length` bytes in little-endian order. */
export const littleEndian = (value: number | bigint, length: number): Uint8Array =>
  Uint8Array.from({ length }, (_, index) => Number((BigInt(value) >> BigInt(8 * index)) & 0xffn));
