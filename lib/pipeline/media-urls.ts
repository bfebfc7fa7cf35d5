/**
 * Looks in the messages of a request for media URLs that the service refuses. The service's refusal quotes
 * the URL, in clear, to the gateway (docs/protocol/inference.md 5.6 and 14.22). So the proxy refuses these
 * URLs before it sends anything.
 */
import { PrivatemodeError } from '../errors.ts';
import { isParsable, type Member, scanInTurns } from '../json/scan.ts';

const refused = (message: string) => new PrivatemodeError('media_url_refused', message);

/** What stands behind the key of a URL, or of an object that holds one. */
const WORDS = ['_url"', '"source"'];
/**
 * ASCII letters and the underscore, escaped. A name may be written with them; no encoder writes text so, and
 * escapes of other characters are no reason to look.
 */
const ESCAPED_LETTERS = String.raw`\\u00[4-7]`;
/** Bytes that are searched before other exchanges have their turn. */
const PIECE = 512 * 1024;
/** Longer than each word: one may begin in a piece and end in the next. */
const OVERLAP = 32;
/** Bytes of the longest element that is parsed. */
const LONGEST = 32 * 1024 * 1024;

function* holds(bytes: Buffer, wanted: RegExp): Generator<undefined, boolean> {
  for (let at = 0; at < bytes.length; at += PIECE) {
    if (at > 0) yield;
    if (wanted.test(bytes.toString('latin1', at, Math.min(bytes.length, at + PIECE + OVERLAP)))) return true;
  }
  return false;
}

/**
 * Parses those elements of a list of a request that hold one of the words, or an escaped letter, and gives
 * each to `check` at once: nothing of it is kept. Each byte becomes one character (latin1). Yields as the
 * scan does. A member that is no list has no elements. Throws body_too_large if such an element holds too
 * much to be parsed in one go (isParsable, 32 MiB), and what `check` throws.
 */
export function* checkElements(
  body: Buffer,
  { kind, start, end }: Member,
  words: readonly string[],
  check: (element: unknown) => void,
): Generator<undefined, void> {
  const list = body.subarray(start, end);
  const wanted = new RegExp([...words, ESCAPED_LETTERS].join('|'));
  if (kind !== 'array' || !(yield* holds(list, wanted))) return;
  for (const member of (yield* scanInTurns(list, { array: true })).members) {
    const element = list.subarray(member.start, member.end);
    if (!(yield* holds(element, wanted))) continue;
    if (!isParsable(member) || element.length > LONGEST) {
      throw new PrivatemodeError('body_too_large', 'an element of a list of the request holds too much');
    }
    check(JSON.parse(element.toString('latin1')));
    yield;
  }
}

/**
 * Throws media_url_refused, without the URL, if a content part of the messages has a URL that the service
 * refuses. The types of parts and sources do not count, since the service does not read them. Of a key that
 * is repeated the last value counts: only the sender of the URL could write it. Throws and yields as
 * checkElements does.
 */
export const checkMediaUrls = (body: Buffer, messages: Member): Generator<undefined, void> =>
  checkElements(body, messages, WORDS, checkPart);

/** A content part, or a message, which holds such parts as some parts do. */
function checkPart(part: unknown): void {
  if (typeof part !== 'object' || part === null || Array.isArray(part)) return;
  const { image_url: image, source, audio_url: audio, video_url: video, content } = part as Held;
  for (const url of [image, urlOf(image), urlOf(source)]) {
    if (typeof url === 'string' && !isAcceptedImage(url)) {
      throw refused('an image URL is neither https nor data, or cannot be parsed');
    }
  }
  for (const url of [audio, urlOf(audio), video, urlOf(video)]) {
    if (typeof url === 'string') throw refused('the service takes no audio or video URLs');
  }
  if (Array.isArray(content)) for (const each of content) checkPart(each);
}

type Held = Readonly<Record<string, unknown>>;

const urlOf = (holder: unknown): unknown =>
  typeof holder === 'object' && holder !== null ? (holder as Held)['url'] : undefined;

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

/** A control character, which no URL may have. */
const CONTROL = /[\x00-\x1f\x7f]/;
/** A percent sign without two hex digits behind it. */
const CUT_ESCAPE = /%(?![\dA-Fa-f]{2})/;
const BEYOND_LATIN1 = /[^\x00-\xff]/g;

/**
 * Judges an image URL as the service does: the scheme must be https or data, and Go 1.26's net/url must parse
 * the URL (docs/protocol/inference.md 5.6). In a path and in a fragment, percent escapes must be whole; in a
 * query, and behind a scheme without a slash, anything may stand.
 */
function isAcceptedImage(url: string): boolean {
  const scheme = /^(?:https|data):/i.exec(url)?.[0];
  if (scheme === undefined || CONTROL.test(url)) return false;
  const hash = url.indexOf('#');
  if (hash >= 0 && CUT_ESCAPE.test(url.slice(hash))) return false;
  const rest = url.slice(scheme.length, hash < 0 ? undefined : hash);
  if (!rest.startsWith('/')) return true;
  const query = rest.indexOf('?');
  const place = query < 0 ? rest : rest.slice(0, query);
  if (!place.startsWith('//')) return !CUT_ESCAPE.test(place);
  const slash = place.indexOf('/', 2);
  const authority = place.slice(2, slash < 0 ? undefined : slash).replace(BEYOND_LATIN1, '\xff');
  const path = slash < 0 ? '' : place.slice(slash);
  const isHttps = scheme.toLowerCase() === 'https:';
  return authority.length <= MAX_AUTHORITY && isAuthority(authority, isHttps) && !CUT_ESCAPE.test(path);
}
