/** Intel's signed JSON bodies (docs/protocol/attestation.md 10). Everything throws collateral_unavailable. */
import { PrivatemodeError } from '../../errors.ts';
import {
  type JsonDefect,
  JsonObject,
  type JsonValue,
  type Path,
  parseStrictJson,
  pathText,
} from '../../strict-json.ts';
import { JsonMembers, OBJECT } from '../json-members.ts';

/** Real bodies have 1 to 10 KB and nest seven deep. */
const MAX_BODY_CHARACTERS = 64 * 1024;
const LIMITS = { depth: 16, values: MAX_BODY_CHARACTERS };

/**
 * Reads a body `{"<name>": {…}, "signature": "<hex>"}`. The signature covers the bytes of the value as
 * received, so they are cut out of the text and never written anew.
 */
export function readSignedJson(body: string, name: string) {
  if (body.length > MAX_BODY_CHARACTERS) throw unusable('the body is too large');
  const members = asObject(parseStrictJson(Buffer.from(body), LIMITS, notJson));
  if (!members.has(name)) throw unusable(`the body has no member "${name}"`);
  const signature = members.get('signature');
  if (typeof signature !== 'string' || !/^[0-9a-fA-F]{128}$/.test(signature)) {
    throw unusable('the body has no signature of 64 bytes in hex');
  }
  const value = asObject(members.get(name));
  return {
    /** The bytes that were signed. */
    signed: new TextEncoder().encode(value.source),
    /** r || s, 64 bytes. */
    signature: new Uint8Array(Buffer.from(signature, 'hex')),
    content: new JsonMembers(value, [name], misplaced),
  };
}

function asObject(value: JsonValue | undefined): JsonObject {
  if (value instanceof JsonObject) return value;
  throw unusable('the body is not a JSON object');
}

const DEFECTS: Readonly<Partial<Record<JsonDefect['kind'], string>>> = {
  depth: 'is nested too deeply',
  repeated: 'has a member twice',
};

/** Names the defect of a body, without its position, which helps nobody. */
const notJson = (_reason: string, { kind }: JsonDefect): PrivatemodeError =>
  unusable(`the body ${DEFECTS[kind] ?? 'is not JSON'}`);

/** The error for a value of another kind. */
export function misplaced(
  _value: JsonValue | undefined,
  path: Path,
  kind: { readonly expected: string },
): PrivatemodeError {
  return unusable(`${pathText(path)} is not ${kind === OBJECT ? 'a JSON object' : kind.expected}`);
}

/** The error for collateral that was fetched but cannot be used. */
export function unusable(message: string): PrivatemodeError {
  return new PrivatemodeError('collateral_unavailable', message);
}
