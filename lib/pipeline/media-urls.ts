/**
 * The service refuses image URLs that are neither https nor data, and every audio or video URL, and its
 * refusal quotes the URL, in clear, to the gateway (inference.md 5.6 and 14.22). So they are refused here.
 */
import { PrivatemodeError } from '../errors.ts';
import type { ByteChain } from './byte-chain.ts';
import type { JsonMember } from './json-index.ts';

/**
 * As key or as type, a URL part bears one of these. (Inside a longer text the quote would be escaped; a key
 * written with needless escapes is not found, and is then refused by the service alone.)
 */
const MARKERS = ['_url"', '"url"'].map((marker) => Buffer.from(marker));
const OVERLAP = Math.max(...MARKERS.map(({ length }) => length)) - 1;

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
/** Enough of a string to tell a key, a type or the scheme of a URL. */
const KEPT = 64;

function hasMarker(chain: ByteChain, { start, end }: JsonMember): boolean {
  const found = (bytes: Buffer): boolean => MARKERS.some((marker) => bytes.includes(marker));
  let position = start;
  for (const slice of chain.slices(start, end)) {
    if (found(Buffer.from(slice.buffer, slice.byteOffset, slice.byteLength))) return true;
    const from = Math.max(start, position - OVERLAP);
    if (found(chain.bytes(from, Math.min(end, position + OVERLAP)))) return true;
    position += slice.length;
  }
  return false;
}

/** Valid JSON as latin1 text in which every long string is cut off: megabytes of base64 become a line. */
function outline(slices: readonly Uint8Array[]): string {
  let text = '';
  let string = '';
  let inString = false;
  let escaped = false; // the string so far ends in an odd run of backslashes
  for (const bytes of slices) {
    const slice = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    for (let i = 0; i < slice.length; ) {
      const quote = slice.indexOf(QUOTE, i);
      const end = quote < 0 ? slice.length : quote;
      if (!inString) {
        text += slice.toString('latin1', i, end);
      } else {
        if (string.length < KEPT) string += slice.toString('latin1', i, Math.min(end, i + KEPT));
        let run = end;
        while (run > i && slice[run - 1] === BACKSLASH) run -= 1;
        const odd = (end - run) % 2 === 1;
        escaped = run === i ? escaped !== odd : odd;
      }
      i = end;
      if (quote < 0) break;
      i += 1;
      if (inString && escaped) {
        if (string.length < KEPT) string += '"';
        escaped = false;
        continue;
      }
      if (inString) text += `"${closed(string)}"`;
      inString = !inString;
      string = '';
      escaped = false;
    }
  }
  return text;
}

/** A string that was perhaps cut off, without half an escape at its end. */
function closed(string: string): string {
  if (string.length < KEPT) return string;
  return string.slice(0, KEPT).replace(/(?<!\\)((?:\\\\)*)\\(?:u[0-9a-fA-F]{0,3})?$/, '$1');
}

const property = (value: unknown, key: string): unknown =>
  typeof value === 'object' && value !== null ? (value as Record<string, unknown>)[key] : undefined;

const ACCEPTED_IMAGE = /^(?:https|data):/i;

function checkPart(part: unknown): void {
  const url = (key: string): unknown => {
    const value = property(part, key);
    return typeof value === 'string' ? value : property(value, 'url');
  };
  const source = property(part, 'source');
  const images = [
    url('image_url'),
    property(part, 'type') === 'image' && property(source, 'type') === 'url'
      ? property(source, 'url')
      : undefined,
  ];
  if (images.some((image) => typeof image === 'string' && !ACCEPTED_IMAGE.test(image))) {
    throw new PrivatemodeError('media_url_refused', 'an image URL is neither https nor data');
  }
  if ([url('audio_url'), url('video_url')].some((media) => typeof media === 'string')) {
    throw new PrivatemodeError('media_url_refused', 'the service takes no audio or video URLs');
  }
}

/**
 * Checks the content parts of the `messages` member, those of tool results included. Parses nothing where
 * no part can have a URL. Throws media_url_refused, without the URL.
 */
export function checkMediaUrls(chain: ByteChain, messages: JsonMember): void {
  if (messages.kind !== 'array' || !hasMarker(chain, messages)) return;
  const pending: unknown[] = [JSON.parse(outline(chain.slices(messages.start, messages.end)))];
  for (let parts = pending.pop(); parts !== undefined; parts = pending.pop()) {
    if (!Array.isArray(parts)) continue;
    for (const part of parts as readonly unknown[]) {
      checkPart(part);
      const content = property(part, 'content');
      if (content !== undefined) pending.push(content);
    }
  }
}
