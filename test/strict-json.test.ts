/** What the reader of JSON without ambiguities adds to the scan (test/json/scan.test.ts). */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import {
  type JsonDefect,
  JsonNumber,
  JsonObject,
  type JsonValue,
  parseStrictJson,
  pathText,
} from '../lib/strict-json.ts';

const parse = (json: string, limits = { depth: 64, values: 100_000 }): JsonValue =>
  parseStrictJson(Buffer.from(json), limits, (reason) => new SyntaxError(reason));

/** The plain value, numbers as JSON.parse would give them. */
function plain(value: JsonValue): unknown {
  if (value instanceof JsonNumber) return Number(value.text);
  if (value instanceof JsonObject) return Object.fromEntries([...value].map(([k, v]) => [k, plain(v)]));
  return Array.isArray(value) ? value.map(plain) : value;
}

describe('strict JSON', () => {
  it('is read as JSON.parse reads it, if no member is repeated', () => {
    fc.assert(
      fc.property(fc.jsonValue(), fc.nat(4), (value, indent) => {
        const json = JSON.stringify([value], undefined, indent);
        assert.deepEqual(plain(parse(json)), JSON.parse(json));
      }),
      { seed: 20261201, numRuns: 300 },
    );
  });

  it('keeps numbers as they were written', () => {
    for (const number of ['18446744073709551615', '1.0', '-0', '1e400']) {
      const [value] = parse(`[${number}]`) as readonly JsonValue[];
      assert.ok(value instanceof JsonNumber);
      assert.equal(value.text, number);
    }
  });

  it('has the text of an object at the top, which a signature may cover', () => {
    const signed = '{ "é" : [1.0] }';
    const value = parse(`{"signature":"x","tcbInfo": ${signed} }`) as JsonObject;
    assert.equal((value.get('tcbInfo') as JsonObject).source, signed);
  });

  it('may have members called __proto__ and constructor', () => {
    const value = parse('{"__proto__":{"a":1},"constructor":2}');
    assert.ok(value instanceof JsonObject);
    assert.deepEqual([...value.keys()], ['__proto__', 'constructor']);
  });

  it('is refused with the kind of the defect, its position in characters, and a reason', () => {
    for (const [text, kind, position, words] of [
      ['{"é":x}', 'syntax', 5, 'not JSON at character 5'],
      ['{} {}', 'syntax', 3, 'not JSON at character 3'],
      ['"x"', 'syntax', 0, 'not JSON at character 0'],
      ['\ufeff{}', 'syntax', 0, 'not JSON at character 0'],
      [Buffer.from('5b22ff225d', 'hex'), 'syntax', 0, 'not JSON at character 0'],
      ['', 'syntax', 0, 'not JSON at character 0'],
      ['{"a":[{"b":1,"\\u0062":2}]}', 'repeated', 20, 'a member appears twice at character 20'],
      ['[[[1]]]', 'depth', 0, 'nested too deeply'],
      ['[1,2,3,4]', 'values', 0, 'too many values'],
    ] as const) {
      const seen: [JsonDefect, string][] = [];
      const refuse = (reason: string, defect: JsonDefect): Error => {
        seen.push([defect, reason]);
        return new SyntaxError();
      };
      const reading = () => parseStrictJson(Buffer.from(text), { depth: 2, values: 4 }, refuse);
      assert.throws(reading, SyntaxError);
      assert.deepEqual(seen, [[{ kind, position }, words]]);
    }
    parse('[[1,2]]', { depth: 2, values: 4 });
  });

  it('is refused, and fills no stack, if it is megabytes of nested arrays or objects', () => {
    for (const step of ['[', '{"a":', '[[],', '{"":[]  ,"a":[']) {
      assert.throws(() => parse(step.repeat(4_000_000 / step.length)), SyntaxError, step);
    }
  });

  it('gives paths as in a.b[0].c or [0].a, and cuts names off after 100 characters', () => {
    for (const [path, text] of [
      [[], ''],
      [['a', 'b', 0, 'c'], 'a.b[0].c'],
      [[0, 'a', 1, 'b'], '[0].a[1].b'],
      [['n'.repeat(101)], `${'n'.repeat(100)}…`],
    ] as const) {
      assert.equal(pathText(path), text);
    }
  });
});
