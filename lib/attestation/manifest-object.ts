/**
 * Typed access to the objects of a manifest, with two kinds of refusal (docs/protocol/attestation.md 19.12): `manifest_invalid` for
 * what would be wrong in every generation, `manifest_unsupported` for what a newer verifier may understand.
 */
import { PrivatemodeError } from '../errors.ts';
import { printable } from './check.ts';
import { JsonNumber, type JsonObject, type JsonValue, pathText } from './strict-json.ts';

export type Path = readonly (string | number)[];

export function manifestInvalid(path: Path, reason: string): PrivatemodeError {
  const where = pathText(path) || 'top level';
  return new PrivatemodeError('manifest_invalid', printable(`invalid manifest: ${where}: ${reason}`));
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
function valueText(value: JsonValue | undefined): string {
  if (value instanceof Map) return 'an object';
  if (Array.isArray(value)) return 'a list';
  const text = value instanceof JsonNumber ? value.text : (JSON.stringify(value) ?? 'nothing');
  return text.length > 60 ? `${text.slice(0, 60)}…` : text;
}

const misplaced = (value: JsonValue | undefined, path: Path, expected: string): PrivatemodeError =>
  manifestInvalid(path, `${valueText(value)} where ${expected} belongs`);

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
    if (!(value instanceof Map)) throw misplaced(value, path, 'an object');
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

  at(key: string): Path {
    return [...this.path, key];
  }

  object(key: string, known: readonly string[] | undefined): ManifestObject {
    return new ManifestObject(this.#members.get(key), this.at(key), known);
  }

  /** An object without members where absent. */
  optionalObject(key: string, known: readonly string[]): ManifestObject {
    const value = this.#members.has(key) ? this.#members.get(key) : new Map();
    return new ManifestObject(value, this.at(key), known);
  }

  objects(key: string, known: readonly string[]): ManifestObject[] {
    return this.#items(key, (item, path) => new ManifestObject(item, path, known));
  }

  /** Undefined where absent. */
  text(key: string): string | undefined {
    return this.#members.has(key) ? readText(this.#members.get(key), this.at(key)) : undefined;
  }

  texts(key: string): string[] {
    return this.#items(key, readText);
  }

  /** False where absent. */
  flag(key: string): boolean {
    const value = this.#members.has(key) ? this.#members.get(key) : false;
    if (typeof value !== 'boolean') throw misplaced(value, this.at(key), 'true or false');
    return value;
  }

  /** An integer from 0 to `max` as it was written, without fraction or exponent. `absent` where there is none. */
  bigInteger(key: string, max: bigint, absent: bigint | undefined): bigint {
    const value = this.#members.get(key);
    if (value === undefined && absent !== undefined) return absent;
    const integer = value instanceof JsonNumber && INTEGER.test(value.text) ? BigInt(value.text) : -1n;
    if (integer >= 0n && integer <= max) return integer;
    throw misplaced(value, this.at(key), `an integer from 0 to ${max}`);
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
    return this.#items(key, (item, path) => hexBytes(item, path, length));
  }

  /** Go writes an empty list as null. */
  #items<T>(key: string, read: (item: JsonValue, path: Path) => T): T[] {
    const value = this.#members.get(key) ?? [];
    if (!Array.isArray(value)) throw misplaced(value, this.at(key), 'a list');
    return value.map((item, index) => read(item, [...this.at(key), index]));
  }
}

function readText(value: JsonValue | undefined, path: Path): string {
  if (typeof value === 'string') return value;
  throw misplaced(value, path, 'a string');
}

/** The bytes of a hex string. Throws manifest_invalid. */
export function hexBytes(value: JsonValue | undefined, path: Path, length: number | undefined): Uint8Array {
  const isHex = typeof value === 'string' && HEX.test(value);
  if (!isHex || (length !== undefined && value.length !== 2 * length)) {
    throw misplaced(value, path, length === undefined ? 'hex' : `hex of ${length} bytes`);
  }
  return new Uint8Array(Buffer.from(value, 'hex'));
}
