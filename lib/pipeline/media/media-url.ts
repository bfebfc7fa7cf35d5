/**
 * Judges an image URL as the service does: the scheme is https or data, and Go 1.26's net/url parses it (inference.md
 * 5.6). Works while the URL arrives, since images come as data URLs of many megabytes.
 */
import { isAuthority } from './url-authority.ts';

/** Characters: no DNS name is longer than 253, and no user name or zone needs the rest. */
const MAX_AUTHORITY = 8192;

const SCHEMES = ['https:', 'data:'];

// Where in the URL the scan stands. A question mark begins the query in the states before QUERY; what follows the scheme
// without a slash is as free as a query, so that it counts as one.
const SCHEME = 0;
const REFUSED = 1;
const START = 2; // after the colon of the scheme
const SLASH = 3; // after the first slash
const AUTHORITY = 4;
const PATH = 5;
const QUERY = 6;
const FRAGMENT = 7;

const HASH = 0x23;
const PERCENT = 0x25;
const COLON = 0x3a;
const QUESTION_MARK = 0x3f;
const BACKSLASH = 0x5c;
const DEL = 0x7f;
const SOLIDUS = 0x2f;

/** The bytes of JSON text that change anything, by state; in the other states, all do. */
const STOPS: ReadonlyMap<number, readonly number[]> = new Map([
  [PATH, [BACKSLASH, HASH, QUESTION_MARK, PERCENT, DEL]],
  [QUERY, [BACKSLASH, HASH, DEL]],
  [FRAGMENT, [BACKSLASH, PERCENT, DEL]],
]);
const IS_STOP = new Uint8Array(256); // in any of these states
for (const stop of [...STOPS.values()].flat()) IS_STOP[stop] = 1;

/** Bytes looked at one by one before native searches, of about 0.2 us each, take over. */
const SHORT = 256;

const isHexDigit = (byte: number): boolean =>
  (byte >= 0x30 && byte <= 0x39) || ((byte | 0x20) >= 0x61 && (byte | 0x20) <= 0x66);

/** The bytes before the first one of that value. */
function before(bytes: Uint8Array, byte: number): Uint8Array {
  const at = bytes.indexOf(byte);
  return at < 0 ? bytes : bytes.subarray(0, at);
}

export interface ImageUrlCheck {
  /** A URL begins. */
  reset(): void;
  /** Takes the next byte of the URL; any byte above 0x7f stands for a character beyond ASCII. False once it is refused. */
  feed(byte: number): boolean;
  /**
   * The position in `bytes` (JSON text, outside of an escape) from which they have to be fed one by one. Those before,
   * from `start` on, can be left out, since they change nothing.
   */
  skip(bytes: Uint8Array, start: number, end: number): number;
  /** Whether the service accepts the URL, all of which was fed. */
  accepted(): boolean;
}

export function createImageUrlCheck(): ImageUrlCheck {
  let state = SCHEME;
  let text = ''; // of the scheme, then of the authority
  let https = false;
  let digits = 0; // of a percent escape, that must still come

  /** Whether the part of the URL that ends here is complete. */
  const complete = (): boolean => {
    if (state === AUTHORITY) return isAuthority(text, https);
    return state !== SCHEME && state !== REFUSED && digits === 0;
  };

  const begin = (next: number): void => {
    state = complete() ? next : REFUSED;
  };

  const schemeByte = (byte: number): void => {
    text += String.fromCharCode(byte).toLowerCase();
    if (!SCHEMES.some((scheme) => scheme.startsWith(text))) state = REFUSED;
    else if (byte === COLON) {
      https = text === 'https:';
      state = START;
    }
  };

  /** Percent escapes must be whole; nothing else matters in a path or a fragment. */
  const escapeByte = (byte: number): void => {
    if (digits === 0) digits = byte === PERCENT ? 2 : 0;
    else if (isHexDigit(byte)) digits -= 1;
    else state = REFUSED;
  };

  const authorityByte = (byte: number): void => {
    if (text.length === MAX_AUTHORITY) state = REFUSED;
    else text += String.fromCharCode(byte);
  };

  return {
    reset() {
      state = SCHEME;
      text = '';
      digits = 0;
    },
    feed(byte) {
      if (byte < 0x20 || byte === DEL) state = REFUSED;
      else if (state === SCHEME) schemeByte(byte);
      else if (byte === HASH && state !== FRAGMENT) begin(FRAGMENT);
      else if (byte === QUESTION_MARK && state < QUERY) begin(QUERY);
      else if (state === START) state = byte === SOLIDUS ? SLASH : QUERY;
      else if (state === SLASH && byte === SOLIDUS) {
        state = AUTHORITY;
        text = '';
      } else if (state === AUTHORITY && byte === SOLIDUS) begin(PATH);
      else if (state === AUTHORITY) authorityByte(byte);
      else if (state === SLASH || state === PATH) {
        state = PATH;
        escapeByte(byte);
      } else if (state === FRAGMENT) escapeByte(byte);
      return state !== REFUSED;
    },
    skip(bytes, start, end) {
      const stops = STOPS.get(state);
      if (stops === undefined || digits > 0) return start;
      const short = Math.min(end, start + SHORT);
      for (let i = start; i < short; i++) if (IS_STOP[bytes[i]!] === 1) return i;
      if (short === end) return end;
      // Each search ends where the one before did: no byte is searched for anything after the first that matters.
      return short + stops.reduce(before, bytes.subarray(short, end)).length;
    },
    accepted: complete,
  };
}
