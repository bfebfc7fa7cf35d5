/** Failures of properties as files: where the property stands, and the value it failed for. */
import { createHash } from 'node:crypto';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import fc from 'fast-check';

interface Place {
  /** Path of the test file, from the root of the repository. */
  readonly file: string;
  /** Full name of the test. */
  readonly test: string;
  /** Which of its properties, from 0. */
  readonly ordinal: number;
}

export interface Regression extends Place {
  readonly seed: number;
  /** Of the counterexample below the seed, the number of the run first; null where there is none. */
  readonly path: string | null;
  /** For people. */
  readonly counterexample: string;
  /** The value, where it can be written as JSON. */
  readonly example?: unknown;
}

/**
 * A value as JSON: bytes as `{"$bytes": base64}`, a Buffer as `{"$buffer": …}`, undefined as `{"$undefined":
 * true}`, odd numbers as text.
 */
export function encode(value: unknown): unknown {
  if (value === undefined) return { $undefined: true };
  if (Buffer.isBuffer(value)) return { $buffer: value.toString('base64') };
  if (value instanceof Uint8Array) return { $bytes: Buffer.from(value).toString('base64') };
  if (typeof value === 'number' && (!Number.isFinite(value) || Object.is(value, -0))) {
    return { $number: Object.is(value, -0) ? '-0' : String(value) };
  }
  if (typeof value === 'bigint') return { $bigint: String(value) };
  if (Array.isArray(value)) return value.map(encode);
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([name, part]) => [name, encode(part)]));
}

/** The value that was encoded. */
export function decode(json: unknown): unknown {
  if (Array.isArray(json)) return json.map(decode);
  if (typeof json !== 'object' || json === null) return json;
  const { $undefined, $buffer, $bytes, $number, $bigint } = json as Record<string, unknown>;
  if ($undefined === true) return undefined;
  if (typeof $buffer === 'string') return Buffer.from($buffer, 'base64');
  if (typeof $bytes === 'string') return Uint8Array.from(Buffer.from($bytes, 'base64'));
  if (typeof $number === 'string') return Number($number);
  if (typeof $bigint === 'string') return BigInt($bigint);
  return Object.fromEntries(Object.entries(json).map(([name, part]) => [name, decode(part)]));
}

/** Writes the failure into a file of its own; the same failure again is the same file. Returns its path. */
export function saveRegression(
  directory: string,
  failure: Place & { readonly seed: number; readonly path: string | null; readonly counterexample: unknown },
): string {
  const { counterexample, ...rest } = failure;
  const encoded = encode(counterexample);
  const isWritable = isDeepStrictEqual(decode(JSON.parse(JSON.stringify(encoded))), counterexample);
  const regression: Regression = {
    ...rest,
    counterexample: fc.stringify(counterexample),
    ...(isWritable ? { example: encoded } : {}),
  };
  const text = `${JSON.stringify(regression, null, 2)}\n`;
  const digest = createHash('sha256')
    .update(`${rest.file} ${rest.test} ${regression.counterexample}`)
    .digest('hex');
  mkdirSync(directory, { recursive: true });
  const path = join(directory, `${digest.slice(0, 16)}.json`);
  writeFileSync(path, text);
  return path;
}

export const readRegression = (path: string): Regression =>
  JSON.parse(readFileSync(path, 'utf8')) as Regression;
