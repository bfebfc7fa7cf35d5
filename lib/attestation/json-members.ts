/** Reads the members of a JSON object and checks the type of each member. */
import { JsonNumber, JsonObject, type JsonValue, parseStrictJson, pathText } from '../strict-json.ts';

type Path = Parameters<typeof pathText>[0];

/** A type of JSON value. `expected` names the type in errors. `read` returns undefined for other types. */
interface Kind<T> {
  readonly expected: string;
  readonly read: (value: JsonValue | undefined) => T | undefined;
}

const kind = <T>(expected: string, read: Kind<T>['read']): Kind<T> => ({ expected, read });

export const OBJECT = kind('an object', (value) => (value instanceof JsonObject ? value : undefined));
const LIST = kind<readonly JsonValue[]>('a list', (value) => (Array.isArray(value) ? value : undefined));
export const TEXT = kind('a string', (value) => (typeof value === 'string' ? value : undefined));
export const FLAG = kind('true or false', (value) => (typeof value === 'boolean' ? value : undefined));

/** A time in UTC, written as `2026-11-01T00:00:00Z`. */
export const DATE = kind('a UTC time in seconds', (value) => {
  const date = new Date(typeof value === 'string' ? value : Number.NaN);
  const exact = Number.isNaN(date.getTime()) ? '' : `${date.toISOString().slice(0, 19)}Z`;
  return exact === value ? date : undefined;
});

/** An integer from 0 to `max`, written without a fraction or an exponent. */
const whole = <T>(max: number | bigint, read: (digits: string) => T): Kind<T> =>
  kind(`an integer from 0 to ${max}`, (value) => {
    const digits = value instanceof JsonNumber && /^(?:0|[1-9][0-9]*)$/.test(value.text) ? value.text : '';
    return digits !== '' && BigInt(digits) <= max ? read(digits) : undefined;
  });
export const integer = (max: number): Kind<number> => whole(max, Number);
export const bigInteger = (max: bigint): Kind<bigint> => whole(max, BigInt);

/** Bytes in hex of either letter case. If `length` is given, there must be exactly `length` bytes. */
export const hex = (length?: number): Kind<Uint8Array> =>
  kind(length === undefined ? 'hex' : `hex of ${length} bytes`, (value) => {
    const isHex = typeof value === 'string' && /^(?:[0-9a-fA-F]{2})*$/.test(value);
    if (!isHex || (length !== undefined && value.length !== 2 * length)) return undefined;
    return new Uint8Array(Buffer.from(value, 'hex'));
  });

/** Between `least` and `most` bytes in canonical base64 with padding (RFC 4648 section 4). */
export const base64 = (least: number, most = Number.POSITIVE_INFINITY): Kind<Uint8Array> =>
  kind('base64 with padding', (value) => {
    const bytes = new Uint8Array(Buffer.from(String(value), 'base64'));
    const isCanonical = Buffer.from(bytes).toString('base64') === value;
    return isCanonical && bytes.length >= least && bytes.length <= most ? bytes : undefined;
  });

type Misplaced = (value: JsonValue | undefined, path: Path, kind: Kind<unknown>) => Error;

/** The members of one JSON object. `misplaced` makes the error for a value of the wrong type. */
export class JsonMembers {
  readonly members: JsonObject;
  readonly path: Path;
  readonly #misplaced: Misplaced;

  constructor(value: JsonValue | undefined, path: Path, misplaced: Misplaced) {
    this.path = path;
    this.#misplaced = misplaced;
    this.members = this.#read(value, path, OBJECT);
  }

  at(key: string): Path {
    return [...this.path, key];
  }

  /** Reads a member. If the member is missing, returns `absent`, or throws if `absent` is undefined. */
  get<T>(key: string, kind: Kind<T>, absent?: T): T {
    const value = this.members.get(key);
    return value === undefined && absent !== undefined ? absent : this.#read(value, this.at(key), kind);
  }

  /** Reads the items of a list. Go writes an empty list as null, so null counts as a missing list. */
  list<T>(key: string, kind: Kind<T>, absent?: readonly []): T[] {
    const items = this.#read(this.members.get(key) ?? absent, this.at(key), LIST);
    return items.map((item, index) => this.#read(item, [...this.at(key), index], kind));
  }

  object(key: string, absent?: 'empty'): JsonMembers {
    const members = this.get(key, OBJECT, absent && new JsonObject());
    return new JsonMembers(members, this.at(key), this.#misplaced);
  }

  objects(key: string, absent?: readonly []): JsonMembers[] {
    const open = (item: JsonObject, index: number): JsonMembers =>
      new JsonMembers(item, [...this.at(key), index], this.#misplaced);
    return this.list(key, OBJECT, absent).map(open);
  }

  #read<T>(value: JsonValue | undefined, path: Path, kind: Kind<T>): T {
    const result = kind.read(value);
    if (result === undefined) throw this.#misplaced(value, path, kind);
    return result;
  }
}

/** Parses strict JSON and returns the members of its object. `refuse` makes the error for invalid JSON. */
export function readMembers(
  bytes: Uint8Array,
  limits: Parameters<typeof parseStrictJson>[1],
  refuse: (defect: string) => Error,
): JsonMembers {
  return new JsonMembers(parseStrictJson(bytes, limits, refuse), [], (_, path, { expected }) =>
    refuse(`${pathText(path) || 'the text'} is not ${expected}`),
  );
}
