/** Refuses media URLs that the service would refuse and quote in clear (docs/protocol/inference.md 5.6). */
import { PrivatemodeError } from '../errors.ts';
import { isParsable, type Member, scanInTurns } from '../json/scan.ts';

export const LONGEST = 32 * 1024 * 1024; // bytes; a longer element is refused and not parsed
const MAX_AUTHORITY = 8192; // in characters; DNS names have at most 253; user names and zones are short

/**
 * Parses the elements of a list for which `wanted` is true, and calls `check` with each. In a parsed element
 * each byte is one character (latin1). Throws what `check` throws, duplicate_member if an object in an
 * element has a name twice, and body_too_large if an element holds too much to be parsed in one go.
 */
export function* checkElements(
  body: Buffer,
  list: Member,
  wanted: (member: Member, bytes: Buffer) => boolean,
  check: (element: unknown) => void,
): Generator<undefined, void> {
  const bytes = body.subarray(list.start, list.end);
  if (list.kind !== 'array' || !wanted(list, bytes)) return;
  for (const member of (yield* scanInTurns(bytes, { array: true })).members) {
    const element = bytes.subarray(member.start, member.end);
    if (!wanted(member, element)) continue;
    if (!isParsable(member) || element.length > LONGEST) {
      throw new PrivatemodeError('body_too_large', 'an element of a list of the request holds too much');
    }
    const value: unknown = JSON.parse(element.toString('latin1'));
    check(value);
    if (namesIn(value) !== member.objectMembers) {
      const message = 'a member is repeated, of which the service reads the first and others the last';
      throw new PrivatemodeError('duplicate_member', message);
    }
    yield;
  }
}

const namesIn = (value: unknown): number =>
  typeof value !== 'object' || value === null
    ? 0
    : Object.values(value).reduce<number>(
        (sum, each) => sum + namesIn(each),
        Array.isArray(value) ? 0 : Object.keys(value).length,
      );

const urlOf = (holder: unknown): unknown => (holder as { readonly url?: unknown } | null | undefined)?.url;
const refused = (message: string) => new PrivatemodeError('media_url_refused', message);

/**
 * Checks a message, or a part of a message. Throws media_url_refused, and does not quote the URL. Messages
 * and some parts hold parts in `content`. The type of a part is ignored: the service does not read it either.
 */
export function checkMediaUrls(part: unknown): void {
  const members = (part ?? {}) as Readonly<Record<string, unknown>>; // strings and numbers have no members
  const { image_url: image, source, audio_url: audio, video_url: video, content } = members;
  for (const url of [image, urlOf(image), urlOf(source)]) {
    if (typeof url === 'string' && !isAcceptedImage(url)) {
      throw refused('an image URL is neither https nor data, or cannot be parsed');
    }
  }
  for (const url of [audio, urlOf(audio), video, urlOf(video)]) {
    if (typeof url === 'string') throw refused('the service takes no audio or video URLs');
  }
  if (Array.isArray(content)) for (const each of content) checkMediaUrls(each);
}

const PARTS = /^(https|data):(?:\/\/([^/?#]*))?([^?#]*)(?:\?[^#]*)?(#.*)?$/is;
const CONTROL = /[\x00-\x1f\x7f]/;
const CUT_ESCAPE = /%(?![\dA-Fa-f]{2})/;

/** Parses a URL as Go 1.26 does, which allows cut-off escapes in queries and in paths without leading `/`. */
function isAcceptedImage(url: string): boolean {
  const [, scheme, authority, path = '', fragment = ''] = PARTS.exec(url) ?? [];
  // A lone surrogate is refused, because some parsers read it together with the escape behind it.
  if (scheme === undefined || CONTROL.test(url) || CUT_ESCAPE.test(fragment) || !url.isWellFormed())
    return false;
  if (authority === undefined) return !path.startsWith('/') || !CUT_ESCAPE.test(path);
  return isAuthority(authority, scheme.toLowerCase() === 'https') && !CUT_ESCAPE.test(path);
}

const USERINFO = String.raw`(?:(?:[\w\-.:~!$&'()*+,;=@]|%[\dA-Fa-f]{2})*@)?`;
const authorityOf = (host: string): RegExp => new RegExp(`^${USERINFO}${host}$`);
// Go accepts escapes in a host name only for bytes beyond ASCII and for the percent sign itself.
const NAME = String.raw`[\w!"$&'()*+,\-.;<=>\]~\x80-\xff]|%25|%[89A-Fa-f][\dA-Fa-f]`;
const NAMED = authorityOf(String.raw`(?:${NAME})*(?::\d*)?`);
// Only the last colon begins a port. Go tolerates other colons unless the scheme is http or https.
const WITH_COLONS = authorityOf(String.raw`(?:${NAME}|:)*:\d*`);
// In the zone of an IPv6 address, blanks and the characters that a name may contain may be escaped.
const ZONE_ESCAPES = String.raw`%(?:2[0-24-9A-Ea-e]|3[\dA-Ea-e]|[46][1-9A-Fa-f]|5[\dABDFabdf]|7[\dAEae])`;
const ZONE = String.raw`(?:[\w!"$&'()*+,\-.:;<=>\]~\x80-\xff]|${ZONE_ESCAPES})+`;
const IP_LITERAL = authorityOf(String.raw`\[([\dA-Fa-f:.]*)(?:%25${ZONE})?\](?::\d*)?`);

/** Whether Go accepts `text` as an authority, `userinfo@host:port`. */
function isAuthority(text: string, https: boolean): boolean {
  if (text.length > MAX_AUTHORITY) return false;
  const authority = text.replace(/[^\x00-\xff]/g, '\xff'); // Go treats all bytes beyond ASCII alike
  const literal = IP_LITERAL.exec(authority);
  if (literal !== null) return URL.canParse(`http://[${literal[1]}]`);
  return NAMED.test(authority) || (!https && WITH_COLONS.test(authority));
}
