/**
 * Typed access to the objects of a manifest, with two kinds of refusal (attestation.md 19.12): `manifest_invalid` for
 * what would be wrong in every generation, `manifest_unsupported` for what a newer verifier may understand.
 */
import { PrivatemodeError } from '../errors.ts';
import { printable } from './printable.ts';
import { JsonNumber, type JsonObject, type JsonValue, pathText } from './strict-json.ts';

export type Path = readonly (string | number)[];

export function manifestInvalid(path: Path, words: string): PrivatemodeError {
  const where = pathText(path) || 'top level';
  return new PrivatemodeError('manifest_invalid', printable(`invalid manifest: ${where}: ${words}`));
}

/** Names the path and the value that was not understood; the word "unmarshaling" is part of the interface. */
export function manifestUnsupported(path: Path, value: string): PrivatemodeError {
  const what = `${pathText(path)}: ${value} is not understood by this version`;
  return new PrivatemodeError(
    'manifest_unsupported',
    printable(`unmarshaling manifest: ${what}; update privatemode-proxy`),
  );
}

/** A value as text for an error message, cut at 60 characters. */
export function valueText(value: JsonValue | undefined): string {
  const text =
    value instanceof JsonNumber
      ? value.text
      : value instanceof Map
        ? 'an object'
        : Array.isArray(value)
          ? 'a list'
          : (JSON.stringify(value) ?? 'nothing');
  return text.length > 60 ? `${text.slice(0, 60)}…` : text;
}

/** Letter case as Go's decoder ignores it: also where folding leaves ASCII (ſ, K). */
const fold = (key: string): string => key.toUpperCase().toLowerCase();

const HEX = /^(?:[0-9a-fA-F]{2})*$/;
const INTEGER = /^-?(?:0|[1-9][0-9]*)$/;

/** One object of the manifest: its known keys and where it stands. */
export class ManifestObject {
  readonly path: Path;
  readonly #members: JsonObject;

  /**
   * `known` = undefined admits every key. Throws manifest_invalid where the value is no object or a key differs from
   * a known one only in case, manifest_unsupported for an unknown key.
   */
  constructor(value: JsonValue | undefined, path: Path, known: readonly string[] | undefined) {
    if (!(value instanceof Map)) throw manifestInvalid(path, `${valueText(value)} where an object belongs`);
    this.path = path;
    this.#members = value;
    if (known === undefined) return;
    for (const [key, member] of this.#members) {
      if (known.includes(key)) continue;
      const meant = known.find((name) => fold(name) === fold(key));
      if (meant !== undefined) throw manifestInvalid([...path, key], `the key must be spelled ${meant}`);
      throw manifestUnsupported([...path, key], valueText(member));
    }
  }

  keys(): string[] {
    return [...this.#members.keys()];
  }

  has(key: string): boolean {
    return this.#members.has(key);
  }

  at(key: string): Path {
    return [...this.path, key];
  }

  object(key: string, known: readonly string[] | undefined): ManifestObject {
    return new ManifestObject(this.#members.get(key), this.at(key), known);
  }

  objects(key: string, known: readonly string[]): ManifestObject[] {
    return this.#list(key).map((item, index) => new ManifestObject(item, [...this.at(key), index], known));
  }

  /** Undefined where absent. */
  text(key: string): string | undefined {
    const value = this.#members.get(key);
    if (value === undefined) return undefined;
    if (typeof value !== 'string') throw this.#wrong(key, 'a string');
    return value;
  }

  texts(key: string): string[] {
    return this.#list(key).map((item, index) => {
      if (typeof item === 'string') return item;
      throw manifestInvalid([...this.at(key), index], `${valueText(item)} where a string belongs`);
    });
  }

  /** False where absent. */
  flag(key: string): boolean {
    const value = this.#members.get(key);
    if (value === undefined) return false;
    if (typeof value !== 'boolean') throw this.#wrong(key, 'true or false');
    return value;
  }

  /** An integer from 0 to `max` as it was written, without fraction or exponent. `absent` where there is none. */
  bigInteger(key: string, max: bigint, absent: bigint | undefined): bigint {
    const value = this.#members.get(key);
    if (value === undefined && absent !== undefined) return absent;
    const expected = `an integer from 0 to ${max}`;
    if (!(value instanceof JsonNumber) || !INTEGER.test(value.text)) throw this.#wrong(key, expected);
    const integer = BigInt(value.text);
    if (integer < 0n || integer > max) throw this.#wrong(key, expected);
    return integer;
  }

  integer(key: string, max: number, absent?: number): number {
    return Number(this.bigInteger(key, BigInt(max), absent === undefined ? undefined : BigInt(absent)));
  }

  /** Hex of either case, exactly `length` bytes, mandatory. */
  bytes(key: string, length: number): Uint8Array {
    return hexBytes(this.#members.get(key), this.at(key), length);
  }

  /** A list of hex strings; `length` undefined = any. Empty where absent. */
  byteLists(key: string, length: number | undefined): Uint8Array[] {
    return this.#list(key).map((item, index) => hexBytes(item, [...this.at(key), index], length));
  }

  /** Go writes an empty list as null. */
  #list(key: string): readonly JsonValue[] {
    const value = this.#members.get(key) ?? [];
    if (!Array.isArray(value)) throw this.#wrong(key, 'a list');
    return value;
  }

  #wrong(key: string, expected: string): PrivatemodeError {
    return manifestInvalid(this.at(key), `${valueText(this.#members.get(key))} where ${expected} belongs`);
  }
}

/** The bytes of a hex string. Throws manifest_invalid. */
export function hexBytes(value: JsonValue | undefined, path: Path, length: number | undefined): Uint8Array {
  const expected = length === undefined ? 'hex' : `hex of ${length} bytes`;
  if (
    typeof value !== 'string' ||
    !HEX.test(value) ||
    (length !== undefined && value.length !== 2 * length)
  ) {
    throw manifestInvalid(path, `${valueText(value)} where ${expected} belongs`);
  }
  return new Uint8Array(Buffer.from(value, 'hex'));
}
