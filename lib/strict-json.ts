/** Parses JSON (RFC 8259) that all parsers read alike: names are unique, and numbers stay as written. */
import { PrivatemodeError } from './errors.ts';
import { scanJson } from './json/scan.ts';

export type JsonValue = null | boolean | string | JsonNumber | readonly JsonValue[] | JsonObject;

export class JsonObject extends Map<string, JsonValue> {
  source = ''; // source text of a member of the top-level object, which a signature may cover
}

/** A number as its source text, so that fractions and integers above 2^53 keep their exact value. */
export class JsonNumber {
  readonly text: string;
  constructor(text: string) {
    this.text = text;
  }
}

/** The path from a value to a part of the value: member names and list indices. */
export type Path = readonly (string | number)[];

/** The defect of a JSON text. `position`: where parsing ended, in UTF-16 units from the start of the text. */
export interface JsonDefect {
  readonly kind: 'syntax' | 'depth' | 'values' | 'repeated';
  readonly position: number;
}

type Limits = Readonly<Record<'depth' | 'values', number>>;
type Refuse = (reason: string, defect: JsonDefect) => Error;

/**
 * Parses a text that consists of one object or array. `limits` has the most nesting levels of objects and
 * arrays (`depth`) and the most `values`. Levels and values are counted before JSON.parse reads the text.
 * `refuse` makes the error to throw; its `reason` says what is wrong and where.
 */
export function parseStrictJson(bytes: Uint8Array, limits: Limits, refuse: Refuse): JsonValue {
  const text = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length);
  const { members, depth, values } = scanned(text, refuse);
  if (depth > limits.depth) throw refuse('nested too deeply', { kind: 'depth', position: 0 });
  if (values > limits.values) throw refuse('too many values', { kind: 'values', position: 0 });
  const value = JSON.parse(text.toString('utf8'), strictValue) as JsonValue;
  for (const { name, start, end } of members) {
    const member = value instanceof JsonObject ? value.get(name) : undefined;
    if (member instanceof JsonObject) member.source = text.toString('utf8', start, end);
  }
  return value;
}

function scanned(text: Buffer, refuse: Refuse) {
  try {
    return scanJson(text, { array: true, unique: true });
  } catch (thrown) {
    if (!(thrown instanceof PrivatemodeError)) throw thrown;
    const { position: at = 0 } = thrown as { readonly position?: number };
    const position = text.toString('utf8', 0, at).length;
    const isRepeated = thrown.code === 'duplicate_member';
    const words = isRepeated ? 'a member appears twice' : 'not JSON';
    throw refuse(`${words} at character ${position}`, { kind: isRepeated ? 'repeated' : 'syntax', position });
  }
}

/** The reviver for JSON.parse. A number of unknown source text becomes an empty text, which is refused. */
function strictValue(_name: string, value: unknown, context?: { readonly source?: string }): JsonValue {
  if (typeof value === 'number') return new JsonNumber(context?.source ?? '');
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return value as JsonValue;
  return new JsonObject(Object.entries(value));
}

/** The path as text: `ReferenceValues.snp[0].ProductName`. Long names are cut: strangers choose them. */
export function pathText(path: Path): string {
  const cut = (name: string): string => (name.length > 100 ? `${name.slice(0, 100)}…` : name);
  const steps = path.map((step) => (typeof step === 'number' ? `[${step}]` : `.${cut(step)}`));
  return steps.join('').replace(/^\./, '');
}
