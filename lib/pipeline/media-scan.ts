/**
 * Looks in a list of messages, without parsing it, for media URLs that the service refuses. The service's
 * refusal quotes the URL, in clear, to the gateway (docs/protocol/inference.md 5.6 and 14.22). So the proxy
 * refuses these URLs before it sends anything.
 */
import { PrivatemodeError } from '../errors.ts';
import type { JsonVisitor } from './json/json-index.ts';
import { isHexDigit } from './json/json-text.ts';

// What a value is, by its key. The kinds are bits, because `found` may hold several.
const NOTHING = 0;
const CONTENT = 1; // content parts, if it is a list
const IMAGE = 2; // the URL of an image, or an object that has it
const MEDIA = 4; // the URL of audio or video, or an object that has it
const SOURCE = 8; // an object that has the URL of an image

const PART_KEYS: ReadonlyMap<string, number> = new Map([
  ['content', CONTENT],
  ['image_url', IMAGE],
  ['audio_url', MEDIA],
  ['video_url', MEDIA],
  ['source', SOURCE],
]);
/** Bytes of the longest of these keys; a longer key is none of them. */
const LONGEST_KEY = 9;

const refused = (message: string) => new PrivatemodeError('media_url_refused', message);

// Which container the scan stands in: content parts hold lists of parts, and objects that hold a URL.
const PART = 0;
const PARTS = 1;
const URL_HOLDER = 2;

/**
 * Looks for refused URLs in the content parts of the messages while the index scans them, in fixed memory. If
 * a key is repeated, every value counts: the service reads the first, others the last. The types of parts and
 * sources do not count, since the service does not read them. Call `check` after the last byte: it throws
 * media_url_refused, without the URL, if one was found.
 */
export function createMediaScan(): JsonVisitor & { check(): void } {
  let url = new ImageUrl(); // the URL that is being read, if any
  let where = PART; // the request holds messages as a part holds its content
  let value = CONTENT; // what the next value is, or the one under way
  let holder = NOTHING; // what kind of URL the open URL holder holds
  let skipped = 0; // open containers that do not matter
  let inKey = false;
  let key = '';
  let found = NOTHING;

  return {
    member: 'messages',
    opened(isObject) {
      if (skipped > 0) skipped += 1;
      else if (isObject && where === PARTS) where = PART;
      else if (!isObject && where === PART && value === CONTENT) where = PARTS;
      else if (isObject && where === PART && (value & (IMAGE | MEDIA | SOURCE)) !== 0) {
        where = URL_HOLDER;
        holder = value === MEDIA ? MEDIA : IMAGE;
      } else skipped = 1;
      value = NOTHING;
    },
    closed() {
      if (skipped > 0) skipped -= 1;
      else where = where === PART ? PARTS : PART;
      value = NOTHING;
    },
    stringBegan(isKey) {
      if (skipped > 0) return false;
      inKey = isKey;
      if (isKey) key = '';
      else if (value === IMAGE) url = new ImageUrl();
      else if (value === MEDIA) found |= MEDIA;
      return isKey || value === IMAGE;
    },
    stringBytes(bytes, start, end) {
      if (!inKey) return url.take(bytes, start, end);
      for (let i = start; i < end && key.length <= LONGEST_KEY; i++) key += String.fromCharCode(bytes[i]!);
      return key.length <= LONGEST_KEY;
    },
    escaped(code, isUnicode) {
      if (!inKey) return url.escaped(code, isUnicode);
      key += String.fromCharCode(code);
      return key.length <= LONGEST_KEY;
    },
    stringEnded(isKey) {
      if (skipped > 0) return;
      if (isKey) {
        if (where !== URL_HOLDER) value = PART_KEYS.get(key) ?? NOTHING;
        else value = key === 'url' ? holder : NOTHING;
      } else if (value === IMAGE && !url.isAccepted()) found |= IMAGE;
    },
    check() {
      if ((found & IMAGE) !== 0) throw refused('an image URL is neither https nor data, or cannot be parsed');
      if ((found & MEDIA) !== 0) throw refused('the service takes no audio or video URLs');
    },
  };
}

const USERINFO = /^(?:[\w\-.:~!$&'()*+,;=@]|%[\dA-Fa-f]{2})*$/;

// Go accepts escapes in a host name only for bytes beyond ASCII and for the percent sign itself.
const NAME = String.raw`[\w!"$&'()*+,\-.;<=>\]~\x80-\xff]|%25|%[89A-Fa-f][\dA-Fa-f]`;
const HOST = new RegExp(String.raw`^(?:${NAME})*(?::\d*)?$`);
/** Only the last colon begins a port: Go tolerates the others unless the scheme is http or https. */
const HOST_WITH_COLONS = new RegExp(String.raw`^(?:${NAME}|:)*:\d*$`);

// In a zone, the characters that a name may contain may be escaped, and so may blanks.
const ZONE_ESCAPES = String.raw`%(?:2[0-24-9A-Ea-e]|3[\dA-Ea-e]|[46][1-9A-Fa-f]|5[\dABDFabdf]|7[\dAEae])`;
const ZONE = String.raw`(?:[\w!"$&'()*+,\-.:;<=>\]~\x80-\xff]|${ZONE_ESCAPES})+`;
const IP_LITERAL = new RegExp(String.raw`^\[([\dA-Fa-f:.]*)(?:%25${ZONE})?\](?::\d*)?$`);

/**
 * Whether Go accepts `userinfo@host:port` in an https URL, or in another one. Characters beyond ASCII come as
 * any bytes from 0x80 to 0xff.
 */
function isAuthority(authority: string, https: boolean): boolean {
  const at = authority.lastIndexOf('@');
  if (!USERINFO.test(authority.slice(0, Math.max(at, 0)))) return false;
  const host = authority.slice(at + 1);
  const literal = IP_LITERAL.exec(host);
  if (literal !== null) return URL.canParse(`http://[${literal[1]}]`);
  return HOST.test(host) || (!https && HOST_WITH_COLONS.test(host));
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
const QUERY = 6; // or what follows the scheme without a slash, under the same rules
const FRAGMENT = 7;

const HASH = 0x23;
const PERCENT = 0x25;
const SOLIDUS = 0x2f;
const COLON = 0x3a;
const QUESTION_MARK = 0x3f;
const DEL = 0x7f;
/** A byte of any character beyond ASCII. */
const BEYOND_ASCII = 0xff;

const isHighSurrogate = (code: number): boolean => code >= 0xd800 && code <= 0xdbff;
const isLowSurrogate = (code: number): boolean => code >= 0xdc00 && code <= 0xdfff;

/** The bytes that matter, by state. In the other states, every byte does. */
const STOPS: ReadonlyMap<number, readonly number[]> = new Map([
  [PATH, [HASH, QUESTION_MARK, PERCENT, DEL]],
  [QUERY, [HASH, DEL]],
  [FRAGMENT, [PERCENT, DEL]],
]);
const IS_STOP = new Uint8Array(256); // 1 for a byte that matters in any of these states
for (const stop of [...STOPS.values()].flat()) IS_STOP[stop] = 1;

/** Bytes looked at one by one before native searches, of about 0.2 us each, take over. */
const SHORT = 256;

/** The bytes before the first one of that value. */
function before(bytes: Uint8Array, byte: number): Uint8Array {
  const at = bytes.indexOf(byte);
  return at < 0 ? bytes : bytes.subarray(0, at);
}

/**
 * Judges an image URL as the service does: the scheme must be https or data, and Go 1.26's net/url must parse
 * the URL (docs/protocol/inference.md 5.6). The class works while the URL arrives, since images come as data
 * URLs of many megabytes.
 */
class ImageUrl {
  #state = SCHEME;
  #text = ''; // of the scheme, then of the authority
  #https = false;
  #digits = 0; // hex digits of a percent escape that must still come
  #surrogate = 0; // the escape just before, if it was a surrogate that is no half of a pair so far

  /** Takes the next bytes of the URL. False once it is refused. */
  take(bytes: Uint8Array, start: number, end: number): boolean {
    this.#surrogate = 0;
    for (let i = start; i < end && this.#state !== REFUSED; i++) {
      i = this.#skip(bytes, i, end);
      if (i < end) this.#state = this.#next(bytes[i]!);
    }
    return this.#state !== REFUSED;
  }

  /**
   * Takes an escaped code unit. Returns false once the URL is refused. A surrogate is refused if another
   * \uXXXX follows that forms no pair with it, since some parsers read both as one character, others as two.
   */
  escaped(code: number, isUnicode: boolean): boolean {
    const previous = isUnicode ? this.#surrogate : 0;
    const isPair = isHighSurrogate(previous) && isLowSurrogate(code);
    const isHalf = isUnicode && !isPair && (isHighSurrogate(code) || isLowSurrogate(code));
    this.#surrogate = isHalf ? code : 0;
    if (previous !== 0 && !isPair) this.#state = REFUSED;
    else this.#state = this.#next(code < 0x80 ? code : BEYOND_ASCII);
    return this.#state !== REFUSED;
  }

  /** Whether the service accepts the URL if it ends here. */
  isAccepted(): boolean {
    if (this.#state === AUTHORITY) return isAuthority(this.#text, this.#https);
    return this.#state !== SCHEME && this.#state !== REFUSED && this.#digits === 0;
  }

  /** The position of the first byte that matters, or `end` if none does. */
  #skip(bytes: Uint8Array, start: number, end: number): number {
    const stops = STOPS.get(this.#state);
    if (stops === undefined || this.#digits > 0) return start;
    const short = Math.min(end, start + SHORT);
    for (let i = start; i < short; i++) if (IS_STOP[bytes[i]!] === 1) return i;
    if (short === end) return end;
    // Each search covers only the bytes before the hit of the one before it.
    return short + stops.reduce(before, bytes.subarray(short, end)).length;
  }

  /** The state after a character. */
  #next(byte: number): number {
    if (byte < 0x20 || byte === DEL) return REFUSED;
    switch (this.#state) {
      case SCHEME:
        this.#text += String.fromCharCode(byte).toLowerCase();
        this.#https = this.#text === 'https:';
        if (!SCHEMES.some((each) => each.startsWith(this.#text))) return REFUSED;
        return byte === COLON ? START : SCHEME;
      case QUERY:
        return byte === HASH ? FRAGMENT : QUERY;
      case FRAGMENT:
        return this.#escaped(byte, FRAGMENT);
    }
    if (byte === HASH) return this.isAccepted() ? FRAGMENT : REFUSED;
    if (byte === QUESTION_MARK) return this.isAccepted() ? QUERY : REFUSED;
    if (this.#state === PATH) return this.#escaped(byte, PATH);
    if (this.#state === START) return byte === SOLIDUS ? SLASH : QUERY;
    if (this.#state === SLASH) {
      this.#text = '';
      return byte === SOLIDUS ? AUTHORITY : this.#escaped(byte, PATH);
    }
    if (byte === SOLIDUS) return this.isAccepted() ? PATH : REFUSED;
    this.#text += String.fromCharCode(byte);
    return this.#text.length > MAX_AUTHORITY ? REFUSED : AUTHORITY;
  }

  /** In a path or a fragment, percent escapes must be whole, and nothing else matters. */
  #escaped(byte: number, part: number): number {
    if (this.#digits > 0) {
      this.#digits -= 1;
      return isHexDigit(byte) ? part : REFUSED;
    }
    if (byte === PERCENT) this.#digits = 2;
    return part;
  }
}
