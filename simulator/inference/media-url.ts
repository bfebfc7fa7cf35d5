/**
 * Which image URLs the server accepts (docs/protocol/inference.md 5.6): follows step by step how Go 1.26's
 * net/url parses a whole string. Written separately from the product's check, because it tests that check.
 */
import { isIPv6 } from 'node:net';

const HOST_TEXT = /^[\w!"$&'()*+,\-.:;<=>[\]~\u0080-\u{10ffff}]*$/u;
const USER = /^(?:[\w\-.:~!$&'()*+,;=@]|%[0-9a-f]{2})*$/i;
const CONTROL = /[\0-\x1f\x7f]/;

const isPort = (text: string): boolean => /^(:[0-9]*)?$/.test(text);
/** Whether each `%` is followed by two hex digits. */
const hasWholeEscapes = (text: string): boolean => !/%(?![0-9a-f]{2})/i.test(text);

/** The text before the first separator, and the text after it, empty without a separator. */
function cut(text: string, separator: string): [before: string, after: string] {
  const at = text.indexOf(separator);
  return at < 0 ? [text, ''] : [text.slice(0, at), text.slice(at + 1)];
}

/** Whether a text may be part of a host, with escapes of what `mayEscape` allows, and of percent signs. */
const isHostText = (text: string, mayEscape: (character: string) => boolean): boolean =>
  HOST_TEXT.test(
    text.replace(/%([0-9a-f]{2})/gi, (whole, digits: string) => {
      const character = String.fromCharCode(Number.parseInt(digits, 16));
      return character === '%' || mayEscape(character) ? '' : whole;
    }),
  );

const isName = (text: string): boolean => isHostText(text, (character) => character >= '\x80');
const isZone = (text: string): boolean =>
  text !== '' &&
  isHostText(text, (character) => character === ' ' || (character < '\x80' && HOST_TEXT.test(character)));

/** `[address]`, `[address%25zone]`, each with an optional port. */
function isBracketed(host: string): boolean {
  const close = host.lastIndexOf(']');
  if (close < 0 || !isPort(host.slice(close + 1))) return false;
  const inside = host.slice(1, close);
  const zone = inside.indexOf('%25');
  const address = zone < 0 ? inside : inside.slice(0, zone);
  return !address.includes('%') && isIPv6(address) && (zone < 0 || isZone(inside.slice(zone + 3)));
}

function isHost(host: string, scheme: string): boolean {
  const bracket = host.lastIndexOf('[');
  if (bracket >= 0) return bracket === 0 && isBracketed(host);
  const colon = scheme === 'https' ? host.indexOf(':') : host.lastIndexOf(':');
  return isName(host) && (colon < 0 || isPort(host.slice(colon)));
}

function isAuthority(authority: string, scheme: string): boolean {
  const at = authority.lastIndexOf('@');
  return USER.test(authority.slice(0, Math.max(at, 0))) && isHost(authority.slice(at + 1), scheme);
}

/** After a `#`, Go accepts control characters; the server does not. */
export function isAcceptedImageUrl(url: string): boolean {
  const [scheme, rest] = [url.slice(0, url.indexOf(':') + 1).toLowerCase(), url.slice(url.indexOf(':') + 1)];
  if (scheme !== 'https:' && scheme !== 'data:') return false;
  if (CONTROL.test(url)) return false;
  const [beforeFragment, fragment] = cut(rest, '#');
  const [beforeQuery] = cut(beforeFragment, '?');
  if (!hasWholeEscapes(fragment)) return false;
  if (!beforeQuery.startsWith('/')) return true;
  if (!beforeQuery.startsWith('//')) return hasWholeEscapes(beforeQuery);
  const [authority, path] = cut(beforeQuery.slice(2), '/');
  return hasWholeEscapes(path) && isAuthority(authority, scheme.slice(0, -1));
}
