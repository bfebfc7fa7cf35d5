/** How many tokens a request has, estimated from the length of its text. */
import { createByteChain } from './json/byte-chain.ts';
import { createJsonIndex, type JsonVisitor } from './json/json-index.ts';
import { modelIn } from './json/plain-values.ts';
import type { RequestBody } from './request-body.ts';

/**
 * With o200k_base, program text and prose in Latin script have 3.9 to 4.8 bytes per token, other scripts up to 7.9, JSON 2.5,
 * digits and hex 1.7. Lower than most: an estimate that is too high compacts early, one that is too low overruns the context.
 */
const BYTES_PER_TOKEN = 3.5;
/** The most that Anthropic's rule (width × height ÷ 750, after scaling down) gives for one image. */
const TOKENS_PER_MEDIUM = 1_600;
/** Members with text for the model. */
const READ_BY_MODEL = ['system', 'messages', 'tools'] as const;

const BACKSLASH = 0x5c;
const LOWER_U = 0x75;
/** Characters of the longest key or type that is compared here. */
const LONGEST_WORD = 6;
const MEDIA_SOURCES: ReadonlySet<string> = new Set(['base64', 'url', 'file']);

/** UTF-8 bytes of an escaped code unit; each half of a surrogate pair is half of four. */
function utf8Length(code: number): number {
  if (code < 0x80) return 1;
  return code < 0x800 || (code >= 0xd800 && code <= 0xdfff) ? 2 : 3;
}

const hexDigit = (byte: number): number => (byte <= 0x39 ? byte & 0xf : (byte & 0xf) + 9);

/**
 * Counts in one member: `text`, the UTF-8 bytes of all strings, keys included, with their escapes resolved; `media`, the
 * images and documents, whose bytes are no text.
 */
function createTextCount(member: string) {
  let text = 0;
  let media = 0;
  let depth = 0;
  let sourceDepth = 0; // of the open `source` object; 0: none is open
  let sourceData = 0; // bytes of its `data`: a text, or an image
  let sourceType = '';
  let key = '';
  let word = ''; // the beginning of the string that is being read
  let length = 0; // its bytes so far
  let escaped = false;
  let digits = 0; // of \uXXXX, still to come
  let code = 0;

  return {
    member,
    opened(isObject) {
      depth += 1;
      if (isObject && key === 'source' && sourceDepth === 0) {
        sourceDepth = depth;
        sourceData = 0;
        sourceType = '';
      }
      key = '';
    },
    closed() {
      if (depth === sourceDepth) {
        sourceDepth = 0;
        if (MEDIA_SOURCES.has(sourceType)) media += 1;
        else text += sourceData;
      }
      depth -= 1;
      key = '';
    },
    stringBegan() {
      word = '';
      length = 0;
      escaped = false;
      digits = 0;
      return true;
    },
    stringBytes(bytes, start, end) {
      for (let i = start; i < end; i++) {
        const byte = bytes[i]!;
        if (digits > 0) {
          code = (code << 4) | hexDigit(byte);
          digits -= 1;
          if (digits === 0) length += utf8Length(code);
        } else if (escaped) {
          escaped = false;
          if (byte === LOWER_U) {
            digits = 4;
            code = 0;
          } else length += 1;
        } else if (byte === BACKSLASH) escaped = true;
        else {
          length += 1;
          if (length <= LONGEST_WORD + 1) word += String.fromCharCode(byte);
        }
      }
      return true;
    },
    stringEnded(isKey) {
      const inSource = depth === sourceDepth && depth > 0 && !isKey;
      if (inSource && key === 'type') sourceType = word;
      if (inSource && key === 'data') sourceData += length;
      else text += length;
      key = isKey ? word : '';
    },
    text: () => text,
    media: () => media,
  } satisfies JsonVisitor & Record<'text' | 'media', () => number>;
}

/**
 * Takes in a request of the Messages API and estimates its tokens: the bytes of all strings in `system`, `messages` and `tools`
 * ÷ 3.5, rounded up, and 1600 for each image or document. Throws invalid_json, duplicate_member and unsupported_member_name
 * from `feed` or `finish`; missing_model and invalid_model from `finish`.
 */
export function createTokenEstimate(): RequestBody<{ readonly tokens: number }> {
  const chain = createByteChain();
  const counts = READ_BY_MODEL.map(createTextCount);
  const index = createJsonIndex({ visitors: counts });
  return {
    feed(chunk) {
      chain.push(chunk);
      index.feed(chunk);
    },
    finish() {
      modelIn(chain, index.finish());
      let text = 0;
      let media = 0;
      for (const count of counts) {
        text += count.text();
        media += count.media();
      }
      return { tokens: Math.ceil(text / BYTES_PER_TOKEN) + TOKENS_PER_MEDIUM * media };
    },
  };
}
