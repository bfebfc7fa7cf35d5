/**
 * Judges an image URL as the service does: the scheme is https or data, and Go 1.26's net/url parses it
 * (docs/protocol/inference.md 5.6). Works while the URL arrives, since images come as data URLs of many megabytes.
 */
import { isHexDigit } from '../json/json-text.ts';

const USERINFO = /^(?:[\w\-.:~!$&'()*+,;=@]|%[\dA-Fa-f]{2})*$/;

// Names may be escaped only beyond ASCII, the percent sign itself aside.
const NAME = String.raw`[\w!"$&'()*+,\-.;<=>\]~\x80-\xff]|%25|%[89A-Fa-f][\dA-Fa-f]`;
const HOST = new RegExp(String.raw`^(?:${NAME})*(?::\d*)?$`);
/** Only the last colon begins a port: Go tolerates the others unless the scheme is http or https. */
const HOST_WITH_COLONS = new RegExp(String.raw`^(?:${NAME}|:)*:\d*$`);

// Of a zone, what a name may contain can be escaped too, and so can blanks.
const ZONE_ESCAPES = String.raw`%(?:2[0-24-9A-Ea-e]|3[\dA-Ea-e]|[46][1-9A-Fa-f]|5[\dABDFabdf]|7[\dAEae])`;
const ZONE = String.raw`(?:[\w!"$&'()*+,\-.:;<=>\]~\x80-\xff]|${ZONE_ESCAPES})+`;
const IP_LITERAL = new RegExp(String.raw`^\[([\dA-Fa-f:.]*)(?:%25${ZONE})?\](?::\d*)?$`);

const GROUP = /^[\dA-Fa-f]{1,4}$/;
const OCTET = String.raw`(?:\d|[1-9]\d|1\d\d|2[0-4]\d|25[0-5])`;
const IPV4 = new RegExp(String.raw`^(?:${OCTET}\.){3}${OCTET}$`);
const IPV6_GROUPS = 8;

/** An IPv6 address without a zone (RFC 4291 section 2.2). */
function isIpv6(text: string): boolean {
  const halves = text.split('::');
  if (halves.length > 2) return false;
  const groups = halves.flatMap((half) => (half === '' ? [] : half.split(':')));
  // An IPv4 address stands for the last two groups.
  const ipv4 = IPV4.test(groups.at(-1) ?? '') && !text.endsWith(':');
  const plain = ipv4 ? groups.slice(0, -1) : groups;
  const count = groups.length + (ipv4 ? 1 : 0);
  return (
    plain.every((group) => GROUP.test(group)) &&
    (halves.length === 2 ? count < IPV6_GROUPS : count === IPV6_GROUPS)
  );
}

function isHost(host: string, https: boolean): boolean {
  const literal = IP_LITERAL.exec(host);
  if (literal !== null) return isIpv6(literal[1]!);
  return HOST.test(host) || (!https && HOST_WITH_COLONS.test(host));
}

/** Whether Go accepts `userinfo@host:port`, of an https URL or of another one. Characters beyond ASCII: any of 0x80 to 0xff. */
function isAuthority(authority: string, https: boolean): boolean {
  const at = authority.lastIndexOf('@');
  return USERINFO.test(authority.slice(0, Math.max(at, 0))) && isHost(authority.slice(at + 1), https);
}

/** Characters: no DNS name is longer than 253, and no user name or zone needs the rest. */
const MAX_AUTHORITY = 8192;

const SCHEMES = ['https:', 'data:'];

// Where in the URL the scan stands.
const SCHEME = 0;
const REFUSED = 1;
const START = 2; // after the colon of the scheme
const SLASH = 3; // after the first slash
const AUTHORITY = 4;
const PATH = 5;
const QUERY = 6; // or what follows the scheme without a slash, which is as free
const FRAGMENT = 7;

const HASH = 0x23;
const PERCENT = 0x25;
const SOLIDUS = 0x2f;
const COLON = 0x3a;
const QUESTION_MARK = 0x3f;
const BACKSLASH = 0x5c;
const DEL = 0x7f;

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

  /** Whether the URL is accepted if it ends here. */
  const accepted = (): boolean => {
    if (state === AUTHORITY) return isAuthority(text, https);
    return state !== SCHEME && state !== REFUSED && digits === 0;
  };

  /** In a path or a fragment, percent escapes must be whole, and nothing else matters. */
  const escaped = (byte: number, part: number): number => {
    if (digits > 0 && !isHexDigit(byte)) return REFUSED;
    if (digits > 0) digits -= 1;
    else if (byte === PERCENT) digits = 2;
    return part;
  };

  const scheme = (byte: number): number => {
    text += String.fromCharCode(byte).toLowerCase();
    if (!SCHEMES.some((each) => each.startsWith(text))) return REFUSED;
    https = text === 'https:';
    return byte === COLON ? START : SCHEME;
  };

  const authority = (byte: number): number => {
    text += String.fromCharCode(byte);
    return text.length > MAX_AUTHORITY ? REFUSED : AUTHORITY;
  };

  const next = (byte: number): number => {
    if (state === REFUSED || byte < 0x20 || byte === DEL) return REFUSED;
    if (state === SCHEME) return scheme(byte);
    if (state === QUERY) return byte === HASH ? FRAGMENT : QUERY;
    if (state === FRAGMENT) return escaped(byte, FRAGMENT);
    if (byte === HASH) return accepted() ? FRAGMENT : REFUSED;
    if (byte === QUESTION_MARK) return accepted() ? QUERY : REFUSED;
    if (state === PATH) return escaped(byte, PATH);
    if (state === AUTHORITY && byte !== SOLIDUS) return authority(byte);
    if (state === AUTHORITY) return accepted() ? PATH : REFUSED;
    if (state === START) return byte === SOLIDUS ? SLASH : QUERY;
    if (byte !== SOLIDUS) return escaped(byte, PATH);
    text = '';
    return AUTHORITY;
  };

  return {
    reset() {
      state = SCHEME;
      text = '';
      digits = 0;
    },
    feed(byte) {
      state = next(byte);
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
    accepted,
  };
}
