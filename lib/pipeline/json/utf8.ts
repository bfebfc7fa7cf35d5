import { isUtf8 } from 'node:buffer';

/** Bytes of the UTF-8 sequence that this lead byte begins; 4 for bytes that begin none, which then fail. */
const sequenceLength = (lead: number): number => (lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2);

export interface Utf8Check {
  /**
   * False once the bytes so far cannot be UTF-8 any more (RFC 3629). A sequence that is not complete at the
   * very end is not noticed: the last byte of a JSON text is ASCII.
   */
  feed(chunk: Uint8Array): boolean;
}

/** Validates UTF-8 that arrives in chunks, at the speed of the native check; sequences may cross chunks. */
export function createUtf8Check(): Utf8Check {
  let carry: Uint8Array = new Uint8Array(0);

  return {
    feed(chunk) {
      let rest = chunk;
      if (carry.length > 0) {
        const missing = sequenceLength(carry[0]!) - carry.length;
        const joined = Buffer.concat([carry, rest.subarray(0, missing)]);
        if (rest.length < missing) {
          carry = joined;
          return true;
        }
        if (!isUtf8(joined)) return false;
        rest = rest.subarray(missing);
      }
      // A sequence that continues in the next chunk starts in the last three bytes.
      let end = rest.length;
      for (let back = 1; back <= 3 && back <= rest.length; back++) {
        const byte = rest[rest.length - back]!;
        if (byte < 0x80) break;
        if (byte >= 0xc0) {
          if (sequenceLength(byte) > back) end = rest.length - back;
          break;
        }
      }
      carry = rest.subarray(end);
      return isUtf8(end === rest.length ? rest : rest.subarray(0, end));
    },
  };
}
