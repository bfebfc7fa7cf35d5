/** Strict access to what Intel answers as JSON (attestation.md 10): each member with its type, length and range. */
import { PrivatemodeError } from '../../errors.ts';

/** The error of everything that was fetched and cannot be used. */
export function unusable(words: string): PrivatemodeError {
  return new PrivatemodeError('collateral_unavailable', words);
}

/** The value as the members of an object. Throws collateral_unavailable, naming `where`. */
export function asRecord(value: unknown, where: string): Readonly<Record<string, unknown>> {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    throw unusable(`${where} is not a JSON object`);
  }
  return value as Readonly<Record<string, unknown>>;
}

/** A JSON object; `path` names it in errors. Every method throws collateral_unavailable. */
export class JsonObject {
  readonly #members: Readonly<Record<string, unknown>>;
  readonly #path: string;

  constructor(members: Readonly<Record<string, unknown>>, path: string) {
    this.#members = members;
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
    return new JsonObject(asRecord(this.#get(name), `${this.#path}.${name}`), `${this.#path}.${name}`);
  }

  has(name: string): boolean {
    return this.#get(name) !== undefined;
  }

  /** A list of objects, `size` of them where that is given. */
  list(name: string, size?: number): JsonObject[] {
    const value = this.#get(name);
    const path = `${this.#path}.${name}`;
    if (!Array.isArray(value)) throw this.#wrong(name, 'a list');
    if (size !== undefined && value.length !== size) throw this.#wrong(name, `a list of ${size}`);
    return value.map((item, i) => new JsonObject(asRecord(item, `${path}[${i}]`), `${path}[${i}]`));
  }
}
