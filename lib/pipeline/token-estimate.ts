/** How many tokens a request has, estimated from the length of its text. */
import { createByteChain } from './json/byte-chain.ts';
import { createJsonIndex, type JsonVisitor } from './json/json-index.ts';
import { modelIn } from './json/unencrypted-members.ts';
import type { RequestBody } from './request-body.ts';

/**
 * With o200k_base, program text and prose in Latin script have 3.9 to 4.8 bytes per token, other scripts up
 * to 7.9, JSON 2.5, digits and hex 1.7. The value is lower than most of these: an estimate that is too high
 * compacts early, but one that is too low overruns the context.
 */
const BYTES_PER_TOKEN = 3.5;
/** The most that Anthropic's rule (width × height ÷ 750, after scaling down) gives for one image. */
const TOKENS_PER_MEDIUM = 1_600;
/** Members with text for the model. */
const READ_BY_MODEL = ['system', 'messages', 'tools'] as const;

/** Characters of the longest key or type that is compared here. */
const LONGEST_WORD = 6;
const MEDIA_SOURCES: ReadonlySet<string> = new Set(['base64', 'url', 'file']);

/** UTF-8 bytes of an escaped code unit; each half of a surrogate pair is half of four. */
function utf8Length(code: number): number {
  if (code < 0x80) return 1;
  return code < 0x800 || (code >= 0xd800 && code <= 0xdfff) ? 2 : 3;
}

/**
 * Counts in one member and adds to `count`. `text`: the UTF-8 bytes of all strings, keys included, with their
 * escapes resolved. `media`: the images and documents, whose bytes are not text.
 */
function createTextCount(member: string, count: { text: number; media: number }): JsonVisitor {
  let depth = 0;
  let sourceDepth = 0; // of the open `source` object; 0: none is open
  let sourceData = 0; // bytes of its `data`, which is a text or an image
  let sourceType = '';
  let key = '';
  let word = ''; // the beginning of the string that is being read
  let length = 0; // bytes of that string so far

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
        if (MEDIA_SOURCES.has(sourceType)) count.media += 1;
        else count.text += sourceData;
      }
      depth -= 1;
      key = '';
    },
    stringBegan() {
      word = '';
      length = 0;
      return true;
    },
    stringBytes(bytes, start, end) {
      length += end - start;
      for (let i = start; i < end && word.length <= LONGEST_WORD; i++) word += String.fromCharCode(bytes[i]!);
      return true;
    },
    escaped(code) {
      length += utf8Length(code);
      if (word.length <= LONGEST_WORD) word += String.fromCharCode(code);
      return true;
    },
    stringEnded(isKey) {
      const inSource = depth === sourceDepth && depth > 0 && !isKey;
      if (inSource && key === 'type') sourceType = word;
      if (inSource && key === 'data') sourceData += length;
      else count.text += length;
      key = isKey ? word : '';
    },
  };
}

/**
 * Takes in a request of the Messages API and estimates its tokens: the bytes of all strings in `system`,
 * `messages` and `tools` ÷ 3.5, rounded up, and 1600 for each image or document. Throws invalid_json,
 * duplicate_member and unsupported_member_name from `feed` or `finish`; missing_model and invalid_model from
 * `finish`.
 */
export function createTokenEstimate(): RequestBody<{ readonly tokens: number }> {
  const chain = createByteChain();
  const count = { text: 0, media: 0 };
  const index = createJsonIndex({ visitors: READ_BY_MODEL.map((member) => createTextCount(member, count)) });
  return {
    feed(chunk) {
      chain.push(chunk);
      index.feed(chunk);
    },
    finish() {
      modelIn(chain, index.finish());
      return { tokens: Math.ceil(count.text / BYTES_PER_TOKEN) + TOKENS_PER_MEDIUM * count.media };
    },
  };
}
