/** Scans a list of messages for media URLs, without parsing it. */
import {
  CONTENT,
  KEYS,
  NOTHING,
  nestedIn,
  PART,
  PARTS,
  SOURCE,
  setsBit,
  URL,
  URL_SOURCE,
  URLS,
} from './media-part.ts';
import { createStringPrefix } from './string-prefix.ts';
import { stringRunEnd, wordsOf } from './string-run.ts';

export interface MediaScan {
  /** Takes the next bytes of a value, valid JSON. */
  feed(bytes: Uint8Array): void;
  /** NESTED_IMAGE, NESTED_MEDIA or both where something is refused; final after the last byte. */
  verdict(): number;
}

/**
 * Looks for refused URLs in the content parts of a value while its bytes arrive, in memory that grows with the
 * nesting alone: no chunk takes longer than its own scan, however many strings and parts it has.
 */
export function createMediaScan(): MediaScan {
  const string = createStringPrefix();
  let parts = new Uint8Array(16); // of each open part what is known; the first stands for the request
  let depth = 0;
  let where = PART;
  let decides = CONTENT; // the value that comes next, or is under way, decides this of the part
  let owner = NOTHING; // what the URL of the open URL object decides
  let skipped = 0; // open containers that do not matter
  let isKey = false;
  let inString = false;
  let keeping = false; // the string is one that may matter, and not all of its prefix was seen
  let escaped = false; // after a backslash of a string that does not matter

  const push = (): void => {
    depth += 1;
    if (depth === parts.length) {
      const grown = new Uint8Array(2 * parts.length);
      grown.set(parts);
      parts = grown;
    }
    parts[depth] = NOTHING;
    where = PART;
  };

  const pop = (): void => {
    const part = parts[depth]!;
    depth -= 1;
    parts[depth]! |= nestedIn(part);
    where = PARTS;
  };

  const opened = (isObject: boolean): void => {
    if (skipped > 0) skipped += 1;
    else if (isObject && where === PARTS) push();
    else if (!isObject && where === PART && decides === CONTENT) where = PARTS;
    else if (isObject && where === PART && (decides & URLS) !== 0) {
      where = URL;
      owner = decides;
    } else if (isObject && where === PART && decides === SOURCE) where = URL_SOURCE;
    else skipped = 1;
    isKey = isObject;
    decides = NOTHING;
  };

  const closed = (): void => {
    if (skipped > 0) skipped -= 1;
    else if (where === PART) pop();
    else where = PART;
    decides = NOTHING;
    isKey = false;
  };

  const keyEnded = (): void => {
    const key = KEYS[where]!.find(({ name }) => string.equals(name));
    decides = where === URL && key !== undefined ? owner : (key?.decides ?? NOTHING);
    parts[depth]! &= ~decides;
    isKey = false;
  };

  const stringEnded = (): void => {
    inString = false;
    if (skipped > 0 || where === PARTS) return;
    if (isKey) keyEnded();
    else if (setsBit(decides, string)) parts[depth]! |= decides;
  };

  /** Position after what can be taken of the string that is open at `from`. */
  const takeString = (bytes: Uint8Array, words: Int32Array, from: number): number => {
    let i = from;
    while (keeping && i < bytes.length) {
      if (!string.feed(bytes[i++]!)) {
        stringEnded();
        return i;
      }
      keeping = !string.full();
    }
    while (i < bytes.length) {
      if (escaped) {
        escaped = false;
        i += 1;
        continue;
      }
      i = stringRunEnd(bytes, words, i);
      if (i === bytes.length) break;
      escaped = bytes[i] === 0x5c;
      i += 1;
      if (escaped) continue;
      stringEnded();
      break;
    }
    return i;
  };

  return {
    feed(bytes) {
      const words = wordsOf(bytes);
      for (let i = 0; i < bytes.length; ) {
        if (inString) {
          i = takeString(bytes, words, i);
          continue;
        }
        const byte = bytes[i++]!;
        if (byte === 0x22) {
          inString = true;
          keeping = skipped === 0 && (isKey || decides !== NOTHING);
          if (keeping) string.reset();
        } else if (byte === 0x7b || byte === 0x5b) opened(byte === 0x7b);
        else if (byte === 0x7d || byte === 0x5d) closed();
        else if (byte === 0x2c && skipped === 0) {
          isKey = where !== PARTS;
          decides = NOTHING;
        }
      }
    },
    verdict: () => parts[0]!,
  };
}
