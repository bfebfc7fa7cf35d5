/**
 * The two ways to refuse a manifest (docs/protocol/attestation.md 19.12): `manifest_invalid` for a value that
 * is wrong in every generation of the format, `manifest_unsupported` for one that a newer verifier may
 * understand.
 */
import { PrivatemodeError } from '../errors.ts';
import { JsonNumber, type JsonValue, type Path, pathText } from '../strict-json.ts';
import { printable } from '../text.ts';
import type { JsonMembers } from './json-members.ts';

/** `reason` itself names the place. */
export const notValid = (reason: string): PrivatemodeError =>
  new PrivatemodeError('manifest_invalid', printable(`invalid manifest: ${reason}`));

export const manifestInvalid = (path: Path, reason: string): PrivatemodeError =>
  notValid(`${pathText(path) || 'top level'}: ${reason}`);

export const misplaced = (value: JsonValue | undefined, path: Path, { expected }: { expected: string }) =>
  manifestInvalid(path, `${valueText(value)} where ${expected} belongs`);

/** The word "unmarshaling" is part of the interface. */
export function manifestUnsupported(path: Path, value: string): PrivatemodeError {
  const what = `${pathText(path)}: ${value} is not understood by this version; update privatemode-proxy`;
  return new PrivatemodeError('manifest_unsupported', printable(`unmarshaling manifest: ${what}`));
}

/** A value as text for an error message, cut at 60 characters. */
function valueText(value: JsonValue | undefined): string {
  if (value instanceof Map) return 'an object';
  if (Array.isArray(value)) return 'a list';
  const text = value instanceof JsonNumber ? value.text : (JSON.stringify(value) ?? 'nothing');
  return text.length > 60 ? `${text.slice(0, 60)}…` : text;
}

/**
 * The object, if all its keys are known. Throws manifest_invalid for a key that differs from a known one only
 * in letter case, manifest_unsupported for any other.
 */
export function onlyKnown(object: JsonMembers, known: readonly string[]): JsonMembers {
  for (const [key, value] of object.members) {
    if (known.includes(key)) continue;
    const meant = known.find((name) => fold(name) === fold(key));
    if (meant !== undefined) throw manifestInvalid(object.at(key), `the key must be spelled ${meant}`);
    throw manifestUnsupported(object.at(key), valueText(value));
  }
  return object;
}

/** Folds letter case as Go's decoder does, which also maps some letters outside ASCII to ASCII (ſ, K). */
const fold = (key: string): string => key.toUpperCase().toLowerCase();
