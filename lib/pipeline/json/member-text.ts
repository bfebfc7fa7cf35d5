/** What the service reads where it wants the text of a member (inference.md section 8, "text()"). */
import { PrivatemodeError } from '../../errors.ts';
import type { ByteChain } from './byte-chain.ts';
import type { JsonMember } from './json-index.ts';

/**
 * Bytes of JSON text beyond which a string or a number is not decoded, for that holds everybody up. No prompt that may be
 * hashed is longer: a million tokens of four bytes, each byte escaped with six.
 */
const MAX_TEXT_BYTES = 24 * 1024 * 1024;

/** The digits as written for integers, else the shortest plain decimal: `1.50` is `1.5`, `1e3` is `1000`. */
function numberText(written: string): string {
  if (/^-?[0-9]+$/.test(written)) return written;
  const value = Number(written);
  if (!Number.isFinite(value)) return value > 0 ? '+Inf' : '-Inf';
  const shortest = Object.is(value, -0) ? '-0' : String(value);
  const [mantissa = '', exponent] = shortest.split('e');
  if (exponent === undefined) return shortest;
  const sign = mantissa.startsWith('-') ? '-' : '';
  const [whole = '', fraction = ''] = mantissa.replace('-', '').split('.');
  const digits = whole + fraction;
  const point = whole.length + Number(exponent);
  if (point <= 0) return `${sign}0.${'0'.repeat(-point)}${digits}`;
  if (point >= digits.length) return sign + digits.padEnd(point, '0');
  return `${sign}${digits.slice(0, point)}.${digits.slice(point)}`;
}

/**
 * The text of a member as UTF-8, in pieces: a string decoded, arrays and objects raw, null empty. Throws context_too_large where
 * a string or a number is longer than 24 MiB.
 */
export function memberText(chain: ByteChain, member: JsonMember): readonly Uint8Array[] {
  const { kind, start, end } = member;
  if (kind === 'object' || kind === 'array') return chain.slices(start, end);
  if (kind === 'null') return [];
  if (end - start > MAX_TEXT_BYTES) {
    throw new PrivatemodeError(
      'context_too_large',
      `a text of the request is longer than ${MAX_TEXT_BYTES} bytes`,
    );
  }
  const raw = chain.bytes(start, end);
  if (kind === 'string') {
    if (raw.includes(0x5c)) return [Buffer.from(JSON.parse(raw.toString('utf8')) as string, 'utf8')];
    return [raw.subarray(1, -1)];
  }
  return [kind === 'number' ? Buffer.from(numberText(raw.toString('latin1')), 'latin1') : raw];
}
