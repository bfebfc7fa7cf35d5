/**
 * Intel's signed JSON bodies (docs/protocol/attestation.md 10), and strict access to what they say. Everything here throws
 * PrivatemodeError('collateral_unavailable').
 */
import { PrivatemodeError } from '../../errors.ts';

/** Real bodies have 1 to 10 KB and nest seven deep. */
const MAX_BODY_CHARACTERS = 64 * 1024;
const MAX_DEPTH = 16;

/**
 * Cuts the value of `name` and the signature out of a body `{"<name>": {…}, "signature": "<hex>"}`. The signature covers
 * the bytes of the value as they were received, so they are cut out of the text, never serialised again. Refuses a
 * member that appears twice.
 */
export function readSignedJson(body: string, name: string) {
  if (body.length > MAX_BODY_CHARACTERS) throw unusable('the answer is too large');
  const texts = memberTexts(body);
  parseObject(body);
  const members = new Map(texts.map(([quotedKey, text]) => [JSON.parse(quotedKey) as string, text]));
  if (members.size < texts.length) throw unusable('the answer has a member twice');
  const value = members.get(name);
  if (value === undefined) throw unusable(`the answer has no member "${name}"`);
  const signature = /^"([0-9a-fA-F]{128})"$/.exec(members.get('signature') ?? '')?.[1];
  if (signature === undefined) throw unusable('the answer has no signature of 64 bytes in hex');
  return {
    /** The bytes that were signed. */
    signed: new TextEncoder().encode(value),
    /** r || s, 64 bytes. */
    signature: new Uint8Array(Buffer.from(signature, 'hex')),
    content: new JsonObject(parseObject(value), name),
  };
}

function parseObject(text: string): Readonly<Record<string, unknown>> {
  try {
    return asRecord(JSON.parse(text), 'the answer');
  } catch (error) {
    throw error instanceof PrivatemodeError ? error : unusable('the answer is not JSON');
  }
}

/** A string, or a character of the structure. */
const TOKEN = /"[^"\\]*(?:\\.[^"\\]*)*"|[{}[\]:,]/gs;

/**
 * Finds names (still quoted) and source texts of the top-level members in one pass. The result is valid only if the text
 * is JSON. Refuses a nesting that would be slow to parse.
 */
function memberTexts(text: string): readonly (readonly [quotedKey: string, text: string])[] {
  const members: (readonly [string, string])[] = [];
  let depth = 0;
  let key = '';
  let start = 0;
  for (const { 0: token, index } of text.matchAll(TOKEN)) {
    if (token === '{' || token === '[') {
      if (++depth > MAX_DEPTH) throw unusable('the answer is nested too deeply');
    } else if (depth === 1 && key === '' && token.startsWith('"')) {
      key = token;
    } else if (depth === 1 && token === ':') {
      start = index + 1;
    } else if (token === '}' || token === ']' || (depth === 1 && token === ',')) {
      if (depth === 1 && key !== '') {
        members.push([key, text.slice(start, index).trim()]);
        key = '';
      }
      if (token !== ',') depth--;
    }
  }
  return members;
}

/** The error of collateral that was fetched and cannot be used. */
export function unusable(message: string): PrivatemodeError {
  return new PrivatemodeError('collateral_unavailable', message);
}

function asRecord(value: unknown, where: string): Readonly<Record<string, unknown>> {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    throw unusable(`${where} is not a JSON object`);
  }
  return value as Readonly<Record<string, unknown>>;
}

/** A JSON object; `path` names it in errors. Every method throws collateral_unavailable. */
export class JsonObject {
  readonly #members: Readonly<Record<string, unknown>>;
  readonly #path: string;

  constructor(value: unknown, path: string) {
    this.#members = asRecord(value, path);
    this.#path = path;
  }

  #get(name: string): unknown {
    return Object.hasOwn(this.#members, name) ? this.#members[name] : undefined;
  }

  #wrong(name: string, wanted: string): PrivatemodeError {
    return unusable(`${this.#path}.${name} is not ${wanted}`);
  }

  string(name: string): string {
    const value = this.#get(name);
    if (typeof value !== 'string') throw this.#wrong(name, 'a string');
    return value;
  }

  /** An integer from 0 to `max`. */
  integer(name: string, max: number): number {
    const value = this.#get(name);
    if (typeof value !== 'number' || !Number.isInteger(value) || value < 0 || value > max) {
      throw this.#wrong(name, `an integer from 0 to ${max}`);
    }
    return value;
  }

  /** Exactly `length` bytes from hex of either case. */
  hex(name: string, length: number): Uint8Array {
    const value = this.#get(name);
    if (typeof value !== 'string' || value.length !== 2 * length || !/^[0-9a-fA-F]*$/.test(value)) {
      throw this.#wrong(name, `hex of ${length} bytes`);
    }
    return new Uint8Array(Buffer.from(value, 'hex'));
  }

  /** A moment as `2026-11-01T00:00:00Z`. */
  date(name: string): Date {
    const value = this.#get(name);
    const date = new Date(typeof value === 'string' ? value : Number.NaN);
    const exact = Number.isNaN(date.getTime()) ? '' : `${date.toISOString().slice(0, 19)}Z`;
    if (exact !== value) throw this.#wrong(name, 'a UTC time in seconds');
    return date;
  }

  object(name: string): JsonObject {
    return new JsonObject(this.#get(name), `${this.#path}.${name}`);
  }

  has(name: string): boolean {
    return this.#get(name) !== undefined;
  }

  /** A list of objects, `size` of them where that is given. */
  list(name: string, size?: number): JsonObject[] {
    const value = this.#get(name);
    if (!Array.isArray(value)) throw this.#wrong(name, 'a list');
    if (size !== undefined && value.length !== size) throw this.#wrong(name, `a list of ${size}`);
    return value.map((item, i) => new JsonObject(item, `${this.#path}.${name}[${i}]`));
  }
}
