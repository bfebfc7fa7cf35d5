/**
 * Writes the fields of a protobuf message. As in proto3, zeros and empty byte strings are left out. A message
 * is the concatenation of its fields.
 */

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

export const bytesField = (number: number, value: Uint8Array | undefined): Uint8Array =>
  value === undefined || value.length === 0 ? new Uint8Array(0) : messageField(number, value);

export const uintField = (number: number, value: bigint | number): Uint8Array =>
  Uint8Array.from(BigInt(value) === 0n ? [] : [...varint(BigInt(number * 8)), ...varint(BigInt(value))]);
