/**
 * Intel's signed JSON bodies, `{"<name>": {...}, "signature": "<hex>"}` (attestation.md 10). The signature covers the
 * bytes of the value exactly as they were received, so the value is cut out of the text and never written anew.
 * Everything throws PrivatemodeError('collateral_unavailable'): what Intel answered is not usable.
 */
import { asRecord, JsonObject, unusable } from './json-object.ts';

export interface SignedJson {
  /** The bytes that were signed. */
  readonly signed: Uint8Array;
  /** r || s, 64 bytes. */
  readonly signature: Uint8Array;
  readonly content: JsonObject;
}

/** Real bodies have 1 to 10 KB, and objects seven deep. */
const MAX_BODY_CHARACTERS = 64 * 1024;
const MAX_DEPTH = 16;

/** Cuts the value of `name` and the signature out of a body. A member that appears twice is refused. */
export function readSignedJson(body: string, name: string): SignedJson {
  if (body.length > MAX_BODY_CHARACTERS) throw unusable('the answer is too large');
  const texts = memberTexts(body);
  parseObject(body);
  const members = new Map<string, string>();
  for (const [quotedKey, text] of texts) {
    const key: unknown = JSON.parse(quotedKey);
    if (typeof key !== 'string' || members.has(key)) throw unusable('the answer has a member twice');
    members.set(key, text);
  }
  const value = members.get(name);
  if (value === undefined) throw unusable(`the answer has no member "${name}"`);
  const signature = /^"([0-9a-fA-F]{128})"$/.exec(members.get('signature') ?? '')?.[1];
  if (signature === undefined) throw unusable('the answer has no signature of 64 bytes in hex');
  return {
    signed: new TextEncoder().encode(value),
    signature: new Uint8Array(Buffer.from(signature, 'hex')),
    content: new JsonObject(parseObject(value), name),
  };
}

function parseObject(text: string): Readonly<Record<string, unknown>> {
  let parsed: unknown;
  try {
    parsed = JSON.parse(text);
  } catch {
    throw unusable('the answer is not JSON');
  }
  return asRecord(parsed, 'the answer');
}

/**
 * Names (still quoted) and source texts of the top-level members, in one pass over the nesting. What it finds means
 * something only if the text is JSON. Throws for a nesting that would be slow to parse.
 */
function memberTexts(text: string): readonly (readonly [quotedKey: string, text: string])[] {
  const members: (readonly [string, string])[] = [];
  let depth = 0;
  let key = '';
  let start = 0;
  for (let i = 0; i < text.length; i++) {
    const character = text[i];
    if (character === '"') {
      const end = endOfString(text, i);
      if (depth === 1 && key === '') key = text.slice(i, end + 1);
      i = end;
    } else if (character === '{' || character === '[') {
      if (++depth > MAX_DEPTH) throw unusable('the answer is nested too deeply');
    } else if (depth === 1 && character === ':') {
      start = i + 1;
    } else if (character === '}' || character === ']' || (depth === 1 && character === ',')) {
      if (depth === 1 && key !== '') {
        members.push([key, text.slice(start, i).trim()]);
        key = '';
      }
      if (character !== ',') depth--;
    }
  }
  return members;
}

/** The index of the quote that ends the string which starts at `start`; the end of the text where there is none. */
function endOfString(text: string, start: number): number {
  for (let i = start + 1; i < text.length; i++) {
    if (text[i] === '\\') i++;
    else if (text[i] === '"') return i;
  }
  return text.length;
}
