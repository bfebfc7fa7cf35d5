/** Writes DER (ITU-T X.690). Each function returns one complete element. */
import { TAG } from '../../lib/crypto/der.ts';

/** Any element from its identifier octet and content. */
export function element(tag: number, ...content: readonly Uint8Array[]): Uint8Array {
  const body = Buffer.concat(content);
  if (body.length < 0x80) return Buffer.concat([Uint8Array.of(tag, body.length), body]);
  const length = unsignedBytes(BigInt(body.length));
  return Buffer.concat([Uint8Array.of(tag, 0x80 | length.length), length, body]);
}

/** The shortest big-endian bytes of a non-negative number; one zero byte for 0. */
function unsignedBytes(value: bigint): Buffer {
  const hex = value.toString(16);
  return Buffer.from(hex.length % 2 === 0 ? hex : `0${hex}`, 'hex');
}

export const sequence = (...parts: readonly Uint8Array[]): Uint8Array => element(TAG.sequence, ...parts);
export const set = (...parts: readonly Uint8Array[]): Uint8Array => element(TAG.set, ...parts);
export const octetString = (bytes: Uint8Array): Uint8Array => element(TAG.octetString, bytes);
export const bitString = (bytes: Uint8Array, unusedBits = 0): Uint8Array =>
  element(TAG.bitString, Uint8Array.of(unusedBits), bytes);
export const nothing = (): Uint8Array => element(TAG.null);
export const boolean = (value: boolean): Uint8Array =>
  element(TAG.boolean, Uint8Array.of(value ? 0xff : 0x00));
export const utf8String = (text: string): Uint8Array => element(TAG.utf8String, Buffer.from(text, 'utf8'));
export const printableString = (text: string): Uint8Array =>
  element(TAG.printableString, Buffer.from(text, 'latin1'));
export const ia5String = (text: string): Uint8Array => element(TAG.ia5String, Buffer.from(text, 'latin1'));

/** A non-negative INTEGER (or ENUMERATED). A leading zero byte keeps the sign bit clear. */
export function integer(value: number | bigint, tag: number = TAG.integer): Uint8Array {
  const bytes = unsignedBytes(BigInt(value));
  return (bytes[0] as number) >= 0x80 ? element(tag, Uint8Array.of(0), bytes) : element(tag, bytes);
}

export const enumerated = (value: number): Uint8Array => integer(value, TAG.enumerated);

/** An OBJECT IDENTIFIER from its dotted form. */
export function oid(dotted: string): Uint8Array {
  const [first = 0, second = 0, ...rest] = dotted.split('.').map(Number);
  return element(TAG.oid, Uint8Array.from([first * 40 + second, ...rest].flatMap(base128)));
}

function base128(value: number): number[] {
  const digits = [value % 128];
  for (let rest = Math.floor(value / 128); rest > 0; rest = Math.floor(rest / 128))
    digits.unshift((rest % 128) | 0x80);
  return digits;
}

/** UTCTime up to 2049, GeneralizedTime from then on (RFC 5280 4.1.2.5); whole seconds. */
export function time(date: Date): Uint8Array {
  const digits = date.toISOString().replace(/\.\d+Z$|[-:T]/g, '');
  return date.getUTCFullYear() < 2050
    ? element(TAG.utcTime, Buffer.from(`${digits.slice(2)}Z`, 'latin1'))
    : element(TAG.generalizedTime, Buffer.from(`${digits}Z`, 'latin1'));
}
