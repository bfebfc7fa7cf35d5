/** Looks for media URLs in a list of messages, without parsing it. */
import type { JsonVisitor } from './json-index.ts';
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

export interface MediaScan extends JsonVisitor {
  /** NESTED_IMAGE, NESTED_MEDIA or both where something is refused; final after the last byte. */
  verdict(): number;
}

/**
 * Looks for refused URLs in the content parts of the messages while the index scans them, in memory that grows with the
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

  const keyEnded = (): void => {
    const key = KEYS[where]!.find(({ name }) => string.equals(name));
    decides = where === URL && key !== undefined ? owner : (key?.decides ?? NOTHING);
    parts[depth]! &= ~decides;
  };

  return {
    member: 'messages',
    opened(isObject) {
      if (skipped > 0) skipped += 1;
      else if (isObject && where === PARTS) push();
      else if (!isObject && where === PART && decides === CONTENT) where = PARTS;
      else if (isObject && where === PART && (decides & URLS) !== 0) {
        where = URL;
        owner = decides;
      } else if (isObject && where === PART && decides === SOURCE) where = URL_SOURCE;
      else skipped = 1;
      decides = NOTHING;
    },
    closed() {
      if (skipped > 0) skipped -= 1;
      else if (where === PART) pop();
      else where = PART;
      decides = NOTHING;
    },
    stringBegan(isKey) {
      if (skipped > 0 || !(isKey || decides !== NOTHING)) return false;
      string.reset();
      return true;
    },
    stringBytes(bytes, start, end) {
      for (let i = start; i < end && !string.full(); i++) string.feed(bytes[i]!);
      return !string.full();
    },
    stringEnded(isKey) {
      if (skipped > 0 || where === PARTS) return;
      if (isKey) keyEnded();
      else if (setsBit(decides, string)) parts[depth]! |= decides;
    },
    verdict: () => parts[0]!,
  };
}
