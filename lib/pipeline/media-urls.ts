/** Refuses media URLs as the service would, which quotes them in clear (docs/protocol/inference.md 5.6). */
import { PrivatemodeError } from '../errors.ts';
import { isParsable, type Member, scanInTurns } from '../json/scan.ts';

const LONGEST = 32 * 1024 * 1024; // bytes of an element that is parsed
const MAX_AUTHORITY = 8192; // characters; a DNS name has 253, and no user name or zone needs the rest

/**
 * Parses those elements of a list that may hold what is `wanted`, each byte as one character (latin1), for
 * `check`. Throws what that throws, duplicate_member for a name that one object in them has twice, and
 * body_too_large if one holds too much to be parsed in one go.
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
 * Throws media_url_refused, without the URL. A message holds parts as some parts do, of whose types the
 * service reads none.
 */
export function checkMediaUrls(part: unknown): void {
  const members = (part ?? {}) as Readonly<Record<string, unknown>>; // what is no object has none of these
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

// Scheme, authority, path, fragment.
const PARTS = /^(https|data):(?:\/\/([^/?#]*))?([^?#]*)(?:\?[^#]*)?(#.*)?$/is;
const CONTROL = /[\x00-\x1f\x7f]/;
const CUT_ESCAPE = /%(?![\dA-Fa-f]{2})/;

/** As Go 1.26's net/url. In a query, and behind a scheme without a slash, escapes may be cut. */
function isAcceptedImage(url: string): boolean {
  const [, scheme, authority, path = '', fragment = ''] = PARTS.exec(url) ?? [];
  // A lone surrogate is read by some parsers together with the escape behind it.
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
// Only the last colon begins a port: Go tolerates the others unless the scheme is http or https.
const WITH_COLONS = authorityOf(String.raw`(?:${NAME}|:)*:\d*`);
// In a zone, the characters that a name may contain may be escaped, and so may blanks.
const ZONE_ESCAPES = String.raw`%(?:2[0-24-9A-Ea-e]|3[\dA-Ea-e]|[46][1-9A-Fa-f]|5[\dABDFabdf]|7[\dAEae])`;
const ZONE = String.raw`(?:[\w!"$&'()*+,\-.:;<=>\]~\x80-\xff]|${ZONE_ESCAPES})+`;
const IP_LITERAL = authorityOf(String.raw`\[([\dA-Fa-f:.]*)(?:%25${ZONE})?\](?::\d*)?`);

/** `text`: `userinfo@host:port`. */
function isAuthority(text: string, https: boolean): boolean {
  if (text.length > MAX_AUTHORITY) return false;
  const authority = text.replace(/[^\x00-\xff]/g, '\xff'); // any byte beyond ASCII stands for another
  const literal = IP_LITERAL.exec(authority);
  if (literal !== null) return URL.canParse(`http://[${literal[1]}]`);
  return NAMED.test(authority) || (!https && WITH_COLONS.test(authority));
}
