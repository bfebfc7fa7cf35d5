import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import {
  type JsonDefect,
  JsonNumber,
  type JsonValue,
  parseStrictJson,
  pathText,
} from '../lib/strict-json.ts';

class Refused extends Error {}
const LIMITS = { depth: 600, values: 100_000 };
const parse = (bytes: Uint8Array, limits = LIMITS): JsonValue =>
  parseStrictJson(bytes, limits, (words) => new Refused(words));
const text = (json: string): Uint8Array => Buffer.from(json);
const refused = (error: unknown): boolean => error instanceof Refused;

/** The plain value, numbers as JSON.parse would give them. */
function plain(value: JsonValue): unknown {
  if (value instanceof JsonNumber) return Number(value.text);
  if (value instanceof Map) {
    const object: Record<string, unknown> = Object.create(null);
    for (const [key, member] of value as ReadonlyMap<string, JsonValue>) object[key] = plain(member);
    return { ...object };
  }
  return Array.isArray(value) ? value.map(plain) : value;
}

describe('strict JSON', () => {
  const folder = join(import.meta.dirname, 'vectors/foreign/json-test-suite/test_parsing');
  const read = (name: string): Buffer => readFileSync(join(folder, name));
  const files = readdirSync(folder);

  it('accepts what JSONTestSuite says must be accepted, except repeated members', () => {
    const accepted = files.filter((name) => name.startsWith('y_'));
    assert.ok(accepted.length >= 90, `${accepted.length} files`);
    for (const name of accepted) {
      const bytes = read(name);
      if (/^y_object_duplicated_key/.test(name)) assert.throws(() => parse(bytes), refused, name);
      else assert.deepEqual(plain(parse(bytes)), JSON.parse(bytes.toString('utf8')), name);
    }
  });

  it('refuses what JSONTestSuite says must be refused, with its own error', () => {
    const bad = files.filter((name) => name.startsWith('n_'));
    assert.ok(bad.length >= 180, `${bad.length} files`);
    for (const name of bad) assert.throws(() => parse(read(name)), refused, name);
  });

  it('follows JSON.parse if JSONTestSuite leaves the result open, but insists on UTF-8', () => {
    for (const name of files.filter((each) => each.startsWith('i_'))) {
      const bytes = read(name);
      let expected: unknown;
      try {
        expected = JSON.parse(new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes));
      } catch {
        assert.throws(() => parse(bytes), refused, name);
        continue;
      }
      assert.deepEqual(plain(parse(bytes)), expected, name);
    }
  });

  it('agrees with JSON.parse on every value that has no repeated members', () => {
    fc.assert(
      fc.property(fc.jsonValue(), fc.nat(4), (value, indent) => {
        const json = JSON.stringify(value, undefined, indent);
        assert.deepEqual(plain(parse(text(json))), JSON.parse(json));
      }),
      { seed: 20261201, numRuns: 300 },
    );
  });

  it('refuses repeated members also where they are spelled differently, and says where', () => {
    for (const json of ['{"a":1,"a":1}', '{"a":1,"\\u0061":2}', '[{"b":{"a":{},"a":{}}}]']) {
      assert.throws(() => parse(text(json)), /"a" appears twice/, json);
    }
    assert.throws(() => parse(text('{"x":[0,{"y":1,"y":2}]}')), /^Error: x\[1\]: member "y" appears twice$/);
  });

  it('writes the path of a value as in a.b[0].c or [0].a, and cuts names off after 100 characters', () => {
    for (const [path, text] of [
      [[], ''],
      [['a'], 'a'],
      [['a', 'b', 0, 'c'], 'a.b[0].c'],
      [[0], '[0]'],
      [[0, 'a', 1, 'b'], '[0].a[1].b'],
      [['n'.repeat(100)], 'n'.repeat(100)],
      [['n'.repeat(101)], `${'n'.repeat(100)}…`],
    ] as const) {
      assert.equal(pathText(path), text);
    }
  });

  it('reports each defect to its caller by kind and position', () => {
    for (const [bytes, kind, position] of [
      [Buffer.from('22ff22', 'hex'), 'encoding', 0],
      [text('{"a":x}'), 'syntax', 5],
      [text('{} {}'), 'trailing', 3],
      [text('[[[1]]]'), 'depth', 2],
      [text('[1,2,3,4]'), 'values', 7],
      [text('{"a":1,"a":2}'), 'repeated', 10],
    ] as const) {
      const defects: JsonDefect[] = [];
      const refuse = (reason: string, defect: JsonDefect): Error => {
        defects.push(defect);
        return new Refused(reason);
      };
      assert.throws(() => parseStrictJson(bytes, { depth: 2, values: 4 }, refuse), refused);
      assert.deepEqual(defects, [{ kind, position }]);
    }
  });

  it('keeps numbers as they were written', () => {
    for (const number of ['18446744073709551615', '1.0', '-0', '1e400']) {
      const value = parse(text(number));
      assert.ok(value instanceof JsonNumber);
      assert.equal(value.text, number);
    }
  });

  it('accepts __proto__ and constructor as names of members', () => {
    const value = parse(text('{"__proto__":{"a":1},"constructor":2}'));
    assert.ok(value instanceof Map);
    assert.deepEqual([...value.keys()], ['__proto__', 'constructor']);
  });

  it('limits the depth and the number of values', () => {
    const nested = (depth: number): Uint8Array => text('['.repeat(depth) + ']'.repeat(depth));
    assert.doesNotThrow(() => parse(nested(8), { depth: 8, values: 100 }));
    assert.throws(() => parse(nested(9), { depth: 8, values: 100 }), /nested too deeply/);
    assert.throws(() => parse(nested(500_000)), refused);
    assert.doesNotThrow(() => parse(text('[1,2,3]'), { depth: 2, values: 4 }));
    assert.throws(() => parse(text('[1,2,3,4]'), { depth: 2, values: 4 }), /too many values/);
  });

  it('reads strings of megabytes, with or without escapes, and refuses strings without an end', () => {
    const size = 12_000_000;
    const long = 'a'.repeat(size);
    for (const [json, expected] of [
      [`"${long}"`, long],
      [`"\\n${long}"`, `\n${long}`],
      [`"${'\\\\'.repeat(size / 2)}"`, '\\'.repeat(size / 2)],
      [`"${'\\"'.repeat(size / 2)}"`, '"'.repeat(size / 2)],
    ] as const) {
      assert.ok(parse(text(json)) === expected, json.slice(0, 10));
    }
    for (const json of [`"${long}`, `"\\n${long}`, `"${'\\"'.repeat(size / 2)}`, `"${'\\'.repeat(size)}`]) {
      assert.throws(() => parse(text(json)), /not JSON at character 0/, json.slice(0, 10));
    }
  });

  it('refuses megabytes of nested arrays and objects without a stack overflow', () => {
    for (const step of ['[', '{"a":', '[[],', '{"":[]  ,"a":[']) {
      const json = text(step.repeat(12_000_000 / step.length));
      assert.throws(() => parse(json, { depth: 8, values: 10_000 }), /nested too deeply/, step);
    }
  });

  it('quotes only the beginning of a name that it refuses', () => {
    const name = 'n'.repeat(1_000_000);
    for (const json of [`{"${name}":1,"${name}":2}`, `{"${name}":x}`]) {
      assert.throws(
        () => parse(text(json)),
        ({ message }: Error) => message.includes('nnn') && message.length < 200,
      );
    }
  });

  it('refuses a byte order mark, and bytes that are not UTF-8', () => {
    assert.throws(() => parse(Buffer.from('efbbbf7b7d', 'hex')), refused);
    assert.throws(() => parse(Buffer.from('22ff22', 'hex')), /not UTF-8/);
  });
});
