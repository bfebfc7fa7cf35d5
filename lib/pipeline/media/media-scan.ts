/**
 * Looks for media URLs that the service refuses in a list of messages, without parsing it. The service's refusal quotes
 * the URL, in clear, to the gateway (docs/protocol/inference.md 5.6 and 14.22): so they are refused here, before anything is sent.
 */
import { PrivatemodeError } from '../../errors.ts';
import { createJsonCharacters, NONE } from '../json/json-characters.ts';
import type { JsonVisitor } from '../json/json-index.ts';
import { createImageUrlCheck } from './media-url.ts';

// What a value is, by its key: bits, since a list of them may have been found.
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
/** Characters; longer keys are none of them. */
const LONGEST_KEY = 9;

const REFUSALS = [
  [IMAGE, 'an image URL is neither https nor data, or cannot be parsed'],
  [MEDIA, 'the service takes no audio or video URLs'],
] as const;

// Which container the scan stands in: content parts hold lists of parts, and objects that hold a URL.
const PART = 0;
const PARTS = 1;
const URL_HOLDER = 2;

export interface MediaScan extends JsonVisitor {
  /** Throws media_url_refused, without the URL, where one was found. To be called after the last byte. */
  check(): void;
}

/**
 * Looks for refused URLs in the content parts of the messages while the index scans them, in fixed memory. Where a key is
 * repeated, every value counts: the service reads the first, others the last. The types of parts and sources do not
 * count, since the service does not read them.
 */
export function createMediaScan(): MediaScan {
  const characters = createJsonCharacters();
  const url = createImageUrlCheck();
  let where = PART; // the request holds messages as a part holds content
  let value = CONTENT; // what the value is that comes next, or is under way
  let holder = NOTHING; // what the URL of the open URL holder is
  let skipped = 0; // open containers that do not matter
  let key = '';
  let inKey = false;
  let found = NOTHING;

  /** Takes a decoded byte; false where no more of them matter. */
  const take = (byte: number): boolean => {
    if (!inKey) return url.feed(byte);
    key += String.fromCharCode(byte);
    return key.length <= LONGEST_KEY;
  };

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
      characters.reset();
      if (isKey) key = '';
      else if (value === IMAGE) url.reset();
      else if (value === MEDIA) found |= MEDIA;
      return isKey || value === IMAGE;
    },
    stringBytes(bytes, start, end) {
      for (let i = start; i < end; i++) {
        if (!inKey && characters.plain()) i = url.skip(bytes, i, end);
        if (i === end) break;
        const byte = characters.feed(bytes[i]!);
        if (byte !== NONE && !take(byte)) return false;
      }
      return true;
    },
    stringEnded(isKey) {
      if (skipped > 0) return;
      if (isKey)
        value = where === URL_HOLDER ? (key === 'url' ? holder : NOTHING) : (PART_KEYS.get(key) ?? NOTHING);
      else if (value === IMAGE && !url.accepted()) found |= IMAGE;
    },
    check() {
      for (const [kind, message] of REFUSALS) {
        if ((found & kind) !== 0) throw new PrivatemodeError('media_url_refused', message);
      }
    },
  };
}
