import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import { type Counts, isParsable, scanInTurns, scanJson } from '../../lib/json/scan.ts';
import { hex } from '../support/remote/exchange-fixture.ts';

const scan = (text: string, options = {}) => scanJson(Buffer.from(text), options);

const decoder = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });

/** What JSON.parse says of the bytes: the value, or undefined where it refuses them. */
function parsed(bytes: Uint8Array): { readonly value: unknown } | undefined {
  try {
    return { value: JSON.parse(decoder.decode(bytes)) as unknown };
  } catch {
    return undefined;
  }
}

/** Whether JSON.parse finds an object in the bytes. */
function isObject(bytes: Uint8Array): boolean {
  const value = parsed(bytes)?.value;
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function accepts(bytes: Buffer): boolean {
  try {
    scanJson(bytes);
    return true;
  } catch (error) {
    assert.equal((error as { name: string }).name, 'PrivatemodeError');
    return false;
  }
}

const wrap = (bytes: Uint8Array): Buffer => Buffer.concat([Buffer.from('{"x":'), bytes, Buffer.from('}')]);

describe('JSON scan, members', () => {
  const members = (text: string, options = {}) =>
    scan(text, options).members.map(({ name, kind, start, end }) => [
      name,
      kind,
      Buffer.from(text).subarray(start, end).toString(),
    ]);

  it('gives name, kind and raw text of each, in order', () => {
    assert.deepEqual(
      members('{"a":"x\\"y","b":[1, {"a":2}],"c":{"d":{}},"e":1.50e+10,"f":true,"g":false ,"h":null,"i":-0}'),
      [
        ['a', 'string', '"x\\"y"'],
        ['b', 'array', '[1, {"a":2}]'],
        ['c', 'object', '{"d":{}}'],
        ['e', 'number', '1.50e+10'],
        ['f', 'true', 'true'],
        ['g', 'false', 'false'],
        ['h', 'null', 'null'],
        ['i', 'number', '-0'],
      ],
    );
  });

  it('decodes names: escapes, UTF-8, astral characters', () => {
    const names = members('{"mo\\u0064el":1,"h\u00e9":2,"\\ud83d\\ude00":3,"\u{1f601}":4,"\\n":5}').map(
      ([name]) => name,
    );
    assert.deepEqual(names, ['model', 'hé', '😀', '😁', '\n']);
  });

  it('accepts an array only if an option says so, whose elements have no names', () => {
    assert.throws(() => members('["a"]'), { code: 'invalid_json' });
    assert.deepEqual(members('[ "a","" ,"c"]', { array: true }), [
      ['', 'string', '"a"'],
      ['', 'string', '""'],
      ['', 'string', '"c"'],
    ]);
    assert.deepEqual(members('[]', { array: true }), []);
    assert.throws(() => members('1', { array: true }), { code: 'invalid_json' });
  });

  it('gives those that are complete of a text that may end too early, and refuses what can be no JSON', () => {
    const complete = (text: string) => scan(text, { array: true, partial: true }).members.length;
    assert.deepEqual(['[', '[{"a":1', '["x"', '["x",{}', '[1,2'].map(complete), [0, 0, 1, 2, 1]);
    assert.throws(() => complete('[{"a":1]'), { code: 'invalid_json' });
  });
});

it('JSON scan gives numbers that a double may not hold, with an exponent or of more than 15 bytes, by member', () => {
  const text =
    '{"a":[1,18446744073709551615,{"b":1e400}],"c":-0.5E-7,"d":123456789012345,"e":0.12345678901234}';
  const numbers = scan(text, { numbers: true }).members.map((member) =>
    Array.from({ length: member.numbers.length / 2 }, (_, i) =>
      text.slice(member.numbers[2 * i], member.numbers[2 * i + 1]),
    ),
  );
  assert.deepEqual(numbers, [['18446744073709551615', '1e400'], ['-0.5E-7'], [], ['0.12345678901234']]);
  assert.ok(scan(text).members.every((member) => member.numbers.length === 0)); // they cost memory
});

describe('JSON scan, counts', () => {
  const countsOf = ({ values, objectMembers, depth }: Counts) => [values, objectMembers, depth];

  it('says how much is in each member and in the whole', () => {
    const text = scan('{"a":1,"b":[[],{"c":{"d":"x"}},2],"e":{},"f":[]}');
    assert.deepEqual(countsOf(text), [10, 6, 4]);
    assert.deepEqual(
      text.members.map((member) => [member.name, ...countsOf(member)].join(' ')),
      ['a 1 0 0', 'b 6 2 3', 'e 1 0 1', 'f 1 0 1'],
    );
    assert.deepEqual(countsOf(scan('{}')), [1, 0, 1]);
  });

  it('lets JSON.parse see 200,000 values, 20,000 members of objects and 64 levels, and no more', () => {
    const counts = { values: 200_000, objectMembers: 20_000, depth: 64 };
    assert.equal(isParsable(counts), true);
    for (const [name, most] of Object.entries(counts)) {
      assert.equal(isParsable({ ...counts, [name]: most + 1 }), false, name);
    }
  });
});

describe('JSON scan, what the service cannot take (docs/protocol/inference.md 5.4)', () => {
  const modifiers = 'pretty ugly reverse this flatten join valid keys values tostr fromstr group dig'.split(
    ' ',
  );
  const names = ['', 'a|b', 'a\\b', '{x', '[x', ':', ':1', ':x', '!', '!x', '!true'];
  const refused: Record<string, readonly string[]> = {
    duplicate_member: [
      '{"a":1,"a":2}',
      '{"ab":1,"a\\u0062":2}',
      '{"é":1,"\\u00e9":2}',
      '{"\\ud800":1,"\\udc00":2}',
    ],
    unsupported_member_name: [
      '{"a\\u005cb":1}',
      '{"\\u003ax":1}',
      '{"\\u0021x":1}',
      ...[...names, ...modifiers.flatMap((name) => [`@${name}`, `@${name}:x`])].map((name) =>
        JSON.stringify({ [name]: 1 }),
      ),
    ],
  };
  for (const [code, texts] of Object.entries(refused)) {
    for (const text of texts) {
      it(`refuses as ${code}: ${text}`, () => assert.throws(() => scan(text), { code }));
    }
  }

  it('accepts unusual names that the service can take', () => {
    for (const name of [...'#%=<>~(&, ', 'x!', '@x', 'a:b', '-1', '1', 'a{b', '@thistle']) {
      assert.equal(scan(JSON.stringify({ [name]: 1 })).members[0]?.name, name);
    }
  });

  it('allows a repeated name in a nested object', () => {
    assert.equal(scan('{"a":{"b":1,"b":2},"c":[{"b":1,"b":2}]}').members.length, 2);
  });

  it('refuses a repeated name in any object if an option says so, and then takes any name', () => {
    const options = { unique: true };
    assert.equal(scan('{"":{"b":1},"a|b":[{"b":1},{"b":2}]}', options).members.length, 2);
    for (const text of ['{"a":1,"\\u0061":2}', '{"a":[{"b":1},{"c":{"b":1,"b":2}}]}']) {
      assert.throws(() => scan(text, options), { code: 'duplicate_member' });
    }
  });

  it('accepts a name of 4,096 bytes, and refuses a longer one', () => {
    assert.equal(scan(`{"${'n'.repeat(4096)}":1}`).members.length, 1);
    assert.throws(() => scan(`{"${'n'.repeat(4097)}":1}`), { code: 'invalid_json', message: /too long/ });
  });

  it('quotes no name and no value in its error messages', () => {
    for (const text of ['{"geheim|1":1}', '{"geheim":1,"geheim":2}', '{"geheim":geheim}', '{"geheim":1']) {
      assert.throws(
        () => scan(text),
        (error: Error) => !error.message.includes('geheim'),
      );
    }
  });
});

describe('JSON scan, what is wrong with a text', () => {
  for (const [text, words] of [
    ['[{}]', 'no object at offset 0'],
    ['\ufeff{}', 'no object at offset 0'],
    ['{"a":1', 'unexpected end at offset 6'],
    ['{"a":1} x', 'text after the object at offset 8'],
    ['{"a":01}', 'unexpected byte at offset 6'],
    ['{"a":"\\x"}', 'unknown escape at offset 7'],
    ['{"a":"\n"}', 'control character in a string at offset 6'],
  ] as const) {
    it(`is said for ${JSON.stringify(text)}: ${words}`, () =>
      assert.throws(() => scan(text), {
        code: 'invalid_json',
        message: `the body is not valid JSON: ${words}`,
      }));
  }

  it('is said for bytes that are no UTF-8, anywhere in the text', () => {
    const text = Buffer.from(`{"a":"${'é'.repeat(600_000)}"}`);
    assert.equal(scanJson(text).members.length, 1);
    for (const at of [7, 600_001, 1_000_001, text.length - 2]) {
      const broken = Buffer.from(text);
      broken[at] = 0xff;
      assert.throws(() => scanJson(broken), { code: 'invalid_json', message: /not UTF-8/ });
    }
  });
});

const object = (count: number) =>
  `{${Array.from({ length: count }, (_, i) => `"k${i}":{"a":0,"b":0}`).join(',')}}`;
const array = (count: number) => `[${Array(count).fill('""').join(',')}]`;
const arrays = (depth: number) => `{"a":${'['.repeat(depth - 1)}${']'.repeat(depth - 1)}}`;
const objects = (depth: number) => `${'{"a":'.repeat(depth - 1)}{}${'}'.repeat(depth - 1)}`;

it('JSON scan accepts 1,000 members, 100,000 elements and 10,000 levels, and refuses one more', () => {
  for (const [text, most, message] of [
    [object, 1_000, /too many members/],
    [array, 100_000, /too many elements/],
    [arrays, 10_000, /too deep/],
    [objects, 10_000, /too deep/],
  ] as const) {
    scan(text(most), { array: true });
    assert.throws(() => scan(text(most + 1), { array: true }), { code: 'invalid_json', message });
  }
});

describe('JSON scan, turns', () => {
  function turnsOf(text: string): number {
    const turns = scanInTurns(Buffer.from(text));
    let count = 1;
    while (!turns.next().done) count += 1;
    return count;
  }

  it('are one for each 512 KiB, of whatever', () => {
    for (const unit of ['x', '\\n'])
      assert.equal(turnsOf(`{"a":"${unit.repeat(4_194_304 / unit.length)}"}`), 9);
    assert.equal(turnsOf(`{"a":[${'{},'.repeat(1_398_101)}{}]}`), 9);
  });

  it('change nothing of what is found', () => {
    const part = '"é\\u00e9\\n":[-1.5e3,true,{}],';
    const text = `{"a":{${part.repeat(30_000)}"z":0},"b":1}`;
    const bytes = Buffer.from(text);
    const { members } = scanJson(bytes);
    assert.equal(bytes.length > 512 * 1024, true);
    assert.deepEqual(
      members.map(({ name, start, end }) => [name, JSON.parse(bytes.subarray(start, end).toString())]),
      Object.entries(JSON.parse(text) as object),
    );
    assert.equal(members[0]?.values, 1 + 30_000 * 4 + 1);
  });
});

describe('JSON scan, compared with JSON.parse', () => {
  const folder = join(import.meta.dirname, '../vectors/foreign/json-test-suite/test_parsing');
  const files = readdirSync(folder).filter((name) => name.endsWith('.json'));
  // What only the rules of 5.4 refuse.
  const stricter = new Set([
    'y_object_duplicated_key.json',
    'y_object_duplicated_key_and_value.json',
    'y_object_empty_key.json',
  ]);

  it('agrees on the JSONTestSuite, with each text as the value of a member and on its own', () => {
    const seen = { y: 0, n: 0, i: 0 };
    for (const file of files) {
      const bytes = readFileSync(join(folder, file));
      const kind = file[0] as 'y' | 'n' | 'i';
      seen[kind] += 1;
      for (const text of [bytes, wrap(bytes)]) {
        const expected = isObject(text) && !(stricter.has(file) && text === bytes);
        assert.equal(accepts(text), expected, `${file} ${text.length}`);
      }
      if (kind === 'y') assert.equal(accepts(wrap(bytes)), true, file);
      if (kind === 'n') assert.equal(accepts(bytes), false, file);
    }
    assert.deepEqual(seen, { y: 95, n: 188, i: 35 });
  });

  // Mostly valid text, damaged here and there: a byte changed, removed or put in.
  const damage = fc.record({
    at: fc.nat(),
    remove: fc.nat(1),
    insert: fc.constantFrom(
      ...[...'"\\{}[]:,0-+.eEu \n\ttfn'].map((char) => Buffer.from(char)),
      ...['', '00', '1f', '80', 'c0', 'c3', 'e2', 'ed', 'a0', 'f0', 'f5', 'ff', 'ef'].map(hex),
    ),
  });
  const object = fc.dictionary(
    fc.string({ unit: 'grapheme', minLength: 1 }).map((name) => `k${name.replace(/[|\\]/g, '')}`),
    fc.jsonValue({ maxDepth: 4, stringUnit: 'grapheme' }),
    { maxKeys: 5 },
  );

  it('agrees on generated text, valid and damaged', () => {
    let valid = 0;
    let invalid = 0;
    fc.assert(
      fc.property(
        object,
        fc.constantFrom(undefined, 1, '\t'),
        fc.array(damage, { maxLength: 2 }),
        (value, indent, damages) => {
          let bytes = Buffer.from(JSON.stringify(value, null, indent));
          for (const { at, remove, insert } of damages) {
            const i = at % bytes.length;
            bytes = Buffer.concat([bytes.subarray(0, i), insert, bytes.subarray(i + remove)]);
            if (bytes.length === 0) return;
          }
          let found: ReturnType<typeof scanJson>;
          try {
            found = scanJson(bytes);
          } catch (error) {
            if ((error as { code: string }).code !== 'invalid_json') return;
            invalid += 1;
            assert.equal(isObject(bytes), false, 'refused what JSON.parse accepts');
            return;
          }
          valid += 1;
          const read = found.members.map(({ name, start, end }) => [
            name,
            JSON.parse(bytes.toString('utf8', start, end)) as unknown,
          ]);
          assert.deepEqual(Object.fromEntries(read), parsed(bytes)?.value);
        },
      ),
      { seed: 20261121, numRuns: 3000 },
    );
    assert.ok(valid > 300 && invalid > 300, `${valid} valid, ${invalid} invalid`);
  });

  it('agrees on long strings, which are scanned in words, at every alignment', () => {
    fc.assert(
      fc.property(
        fc.nat({ max: 7 }),
        fc.integer({ min: 50, max: 400 }),
        fc.array(fc.tuple(fc.nat(), fc.oneof(fc.constant(0x5c), fc.integer({ min: 0, max: 255 }))), {
          minLength: 1,
          maxLength: 3,
        }),
        (offset, length, changes) => {
          const backing = Buffer.alloc(length + 64, 'n');
          const text = backing.subarray(offset, offset + length);
          text.write('{"a":"', 0);
          text.write('"}', length - 2);
          for (const [at, byte] of changes) text[6 + (at % (length - 8))] = byte;
          assert.equal(accepts(text), parsed(text) !== undefined);
        },
      ),
      { seed: 20261121, numRuns: 3000 },
    );
  });
});
