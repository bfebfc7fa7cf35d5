/**
 * Which image URLs the server accepts (docs/protocol/inference.md 5.6): follows step by step how Go 1.26's
 * net/url parses a whole string. Written separately from the product's check, because it tests that check.
 */
import { isIPv6 } from 'node:net';

const LETTERS = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789';
const HOST_CHARACTERS = new Set(`${LETTERS}!"$&'()*+,-.:;<=>[]_~`);
const USER_CHARACTERS = new Set(`${LETTERS}-._:~!$&'()*+,;=%@`);

const isAscii = (character: string): boolean => character < '\x80';
const isControl = (character: string): boolean => character < ' ' || character === '\x7f';
const isPort = (text: string): boolean => /^(:[0-9]*)?$/.test(text);

/**
 * The text before the first separator, and the text after it; the latter is empty if there is no separator.
 */
function cut(text: string, separator: string): [before: string, after: string] {
  const at = text.indexOf(separator);
  return at < 0 ? [text, ''] : [text.slice(0, at), text.slice(at + 1)];
}

/** The codes of all percent escapes; undefined if a `%` is not followed by two hex digits. */
function escapesOf(text: string): number[] | undefined {
  const codes: number[] = [];
  for (let at = text.indexOf('%'); at >= 0; at = text.indexOf('%', at + 3)) {
    const digits = text.slice(at + 1, at + 3);
    if (!/^[0-9a-fA-F]{2}$/.test(digits)) return undefined;
    codes.push(Number.parseInt(digits, 16));
  }
  return codes;
}

const hasWholeEscapes = (text: string): boolean => escapesOf(text) !== undefined;

/**
 * Whether a text may be part of a host: only characters of the set, and only escapes that `mayEscape` allows.
 * An escaped percent sign is always allowed.
 */
function isHostText(text: string, mayEscape: (code: number) => boolean): boolean {
  const escapes = escapesOf(text);
  if (escapes === undefined) return false;
  const plain = text.replace(/%../g, '');
  return (
    [...plain].every((character) => !isAscii(character) || HOST_CHARACTERS.has(character)) &&
    escapes.every((code) => code === 0x25 || mayEscape(code))
  );
}

const isName = (text: string): boolean => isHostText(text, (code) => code >= 0x80);
const isZone = (text: string): boolean =>
  text !== '' && isHostText(text, (code) => code === 0x20 || HOST_CHARACTERS.has(String.fromCharCode(code)));

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
  const user = at < 0 ? '' : authority.slice(0, at);
  const valid = [...user].every((character) => USER_CHARACTERS.has(character)) && hasWholeEscapes(user);
  return valid && isHost(authority.slice(at + 1), scheme);
}

/**
 * Whether the server accepts the URL of an image. Go's parser would accept control characters after a `#`;
 * the server does not.
 */
export function isAcceptedImageUrl(url: string): boolean {
  const [scheme, rest] = [url.slice(0, url.indexOf(':') + 1).toLowerCase(), url.slice(url.indexOf(':') + 1)];
  if (scheme !== 'https:' && scheme !== 'data:') return false;
  for (const character of url) if (isControl(character)) return false;
  const [beforeFragment, fragment] = cut(rest, '#');
  const [beforeQuery] = cut(beforeFragment, '?');
  if (!hasWholeEscapes(fragment)) return false;
  if (!beforeQuery.startsWith('/')) return true;
  if (!beforeQuery.startsWith('//')) return hasWholeEscapes(beforeQuery);
  const [authority, path] = cut(beforeQuery.slice(2), '/');
  return hasWholeEscapes(path) && isAuthority(authority, scheme.slice(0, -1));
}
