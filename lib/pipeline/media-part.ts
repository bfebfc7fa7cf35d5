/** What a content part says about media, as bits, and which keys say it (inference.md 5.6). */
import type { StringPrefix } from './string-prefix.ts';

const IMAGE = 1; // its image URL is refused
const AUDIO = 2; // it has an audio URL
const VIDEO = 4;
const TYPE = 8; // its type is "image"
const SOURCE_TYPE = 16; // the type of its source is "url"
const SOURCE_URL = 32; // the URL of its source is refused
export const NESTED_IMAGE = 64; // a part of its own content has the one or the other
export const NESTED_MEDIA = 128;

export const NOTHING = 0;
export const SOURCE = SOURCE_TYPE | SOURCE_URL;
export const CONTENT = NESTED_IMAGE | NESTED_MEDIA;
export const URLS = IMAGE | AUDIO | VIDEO;

// Where the scan stands.
export const PART = 0;
export const PARTS = 1;
export const URL = 2;
export const URL_SOURCE = 3;

const word = (text: string): Buffer => Buffer.from(text, 'latin1');

interface Key {
  readonly name: Uint8Array;
  /** The bits its value decides; a repeated key starts anew, since the last one counts. */
  readonly decides: number;
}
const URL_KEY = word('url');
/** By where the key stands. */
export const KEYS: readonly (readonly Key[])[] = [
  [
    { name: word('type'), decides: TYPE },
    { name: word('content'), decides: CONTENT },
    { name: word('image_url'), decides: IMAGE },
    { name: word('audio_url'), decides: AUDIO },
    { name: word('video_url'), decides: VIDEO },
    { name: word('source'), decides: SOURCE },
  ],
  [],
  [{ name: URL_KEY, decides: URLS }], // of these, the one whose object it is
  [
    { name: word('type'), decides: SOURCE_TYPE },
    { name: URL_KEY, decides: SOURCE_URL },
  ],
];

const IMAGE_TYPE = word('image');
const ACCEPTED_SCHEMES = [word('https:'), word('data:')];

/** Whether the string value sets the one bit it decides. */
export function setsBit(bit: number, value: StringPrefix): boolean {
  if (bit === TYPE) return value.equals(IMAGE_TYPE);
  if (bit === SOURCE_TYPE) return value.equals(URL_KEY);
  if (bit === AUDIO || bit === VIDEO) return true;
  if (bit === IMAGE || bit === SOURCE_URL) {
    return !ACCEPTED_SCHEMES.some((scheme) => value.startsWith(scheme));
  }
  return false;
}

/** What a complete part means to the one around it. */
export function nestedIn(part: number): number {
  const image = (part & (IMAGE | NESTED_IMAGE)) !== 0 || (part & (TYPE | SOURCE)) === (TYPE | SOURCE);
  const media = (part & (AUDIO | VIDEO | NESTED_MEDIA)) !== 0;
  return (image ? NESTED_IMAGE : NOTHING) | (media ? NESTED_MEDIA : NOTHING);
}
