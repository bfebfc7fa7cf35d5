import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import { createByteChain } from '../../../lib/pipeline/json/byte-chain.ts';
import { createJsonIndex, type JsonMember, type JsonVisitor } from '../../../lib/pipeline/json/json-index.ts';
import { byteByByte, cutAnywhere, everyChunking } from '../../support/remote/chunkings.ts';

function index(chunks: Iterable<Uint8Array>, options = {}): readonly JsonMember[] {
  const scan = createJsonIndex(options);
  for (const chunk of chunks) scan.feed(chunk);
  return scan.finish();
}

const accepts = (chunks: Iterable<Uint8Array>): boolean => {
  try {
    index(chunks);
    return true;
  } catch (error) {
    assert.equal((error as { name: string }).name, 'PrivatemodeError');
    return false;
  }
};

const decoder = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });

/** What JSON.parse says of the bytes: the value, or undefined where it refuses them. */
function parsed(bytes: Uint8Array): { readonly value: unknown } | undefined {
  try {
    return { value: JSON.parse(decoder.decode(bytes)) as unknown };
  } catch {
    return undefined;
  }
}

const wrap = (bytes: Uint8Array): Buffer => Buffer.concat([Buffer.from('{"x":'), bytes, Buffer.from('}')]);

describe('JSON index, members', () => {
  const members = (text: string, options = {}) =>
    index([Buffer.from(text)], options).map(({ name, kind, start, end }) => [
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

  it('accepts an array only if an option says so, with indices as names', () => {
    assert.throws(() => members('["a"]'), { code: 'invalid_json' });
    assert.deepEqual(members('[ "a","" ,"c"]', { arrays: 'sealed' }), [
      ['0', 'string', '"a"'],
      ['1', 'string', '""'],
      ['2', 'string', '"c"'],
    ]);
    assert.deepEqual(members('[]', { arrays: 'sealed' }), []);
  });

  it('gives the same members for every chunking', () => {
    const text =
      '\t{ "a\\u00e9\u00e9\u{1f600}" : "str\\\\ing \u20ac" ,\r\n"num":-12.5e-3,"n":[null,true,{"k":"v"}], "":0}'.replace(
        ', "":0',
        ', "z" : 0',
      );
    const bytes = Buffer.from(text);
    const whole = index([bytes]);
    assert.equal(whole.length, 4);
    for (const chunks of everyChunking(bytes)) assert.deepEqual(index(chunks), whole);
  });

  it('gives name, kind and start of a member while it arrives, and does not list it meanwhile', () => {
    const scan = createJsonIndex();
    scan.feed(Buffer.from('{"a":1, "messages": [{"role"'));
    assert.deepEqual(scan.current, { name: 'messages', kind: 'array', start: 20 });
    assert.deepEqual(
      scan.members.map(({ name }) => name),
      ['a'],
    );
    scan.feed(Buffer.from(':1}]'));
    assert.equal(scan.current, undefined);
  });
});

describe('JSON index, what the service cannot take (docs/protocol/inference.md 5.4)', () => {
  const refused: Record<string, readonly string[]> = {
    duplicate_member: [
      '{"a":1,"a":2}',
      '{"model":"m","model":"n"}',
      '{"ab":1,"a\\u0062":2}',
      '{"é":1,"\\u00e9":2}',
      '{"\\ud800":1,"\\udc00":2}',
    ],
    unsupported_member_name: [
      '{"":1}',
      '{"a|b":1}',
      '{"a\\\\b":1}',
      '{"a\\u005cb":1}',
      '{"{x":1}',
      '{"[x":1}',
      '{":1":1}',
      '{":":1}',
      '{":x":1}',
      '{":stream":1}',
      '{"\\u003ax":1}',
      '{"!":1}',
      '{"!x":1}',
      '{"!true":1}',
      '{"\\u0021x":1}',
      ...'pretty ugly reverse this flatten join valid keys values tostr fromstr group dig'
        .split(' ')
        .flatMap((name) => [`{"@${name}":1}`, `{"@${name}:x":1}`]),
    ],
    invalid_json: [
      '{"a":[1}}',
      '{"a":{"b":1]}',
      '{"a":[1}',
      '{"a":1]',
      '',
      ' ',
      '"x"',
      'null',
      '1',
      '{',
      '{"a":1} x',
      '{"a":1}{',
      '\ufeff{}',
      '{"a":1,}',
      "{'a':1}",
      '{"a":"\\x"}',
      '{"a":"\\x{}}',
      '{"a":"\\u00g0"}',
    ],
  };
  for (const [code, texts] of Object.entries(refused)) {
    for (const text of texts) {
      it(`refuses as ${code}: ${text}`, () => {
        for (const chunks of everyChunking(Buffer.from(text))) assert.throws(() => index(chunks), { code });
      });
    }
  }

  const said: readonly (readonly [text: string, words: string])[] = [
    ["{'a':1}", 'the body is not valid JSON: a single quote, where JSON has double quotes, at offset 1'],
    ['{"a":\'b\'}', 'the body is not valid JSON: a single quote, where JSON has double quotes, at offset 5'],
    [
      `{"a":1,'b':2}`,
      'the body is not valid JSON: a single quote, where JSON has double quotes, at offset 7',
    ],
    [`'{"a":1}'`, 'the body is not valid JSON: a single quote, where JSON has double quotes, at offset 0'],
    ['[{}]', 'the body is not valid JSON: an array in place of one object at offset 0'],
    ['{[', 'the body is not valid JSON: unexpected byte at offset 1'],
    [
      '\ufeff{}',
      'the body is not valid JSON: a byte order mark, or another character that begins no JSON, at offset 0',
    ],
    ['x', 'the body is not valid JSON: no object at offset 0'],
    ['', 'the body is empty'],
    [' ', 'the body is not valid JSON: unexpected end at offset 1'],
  ];
  for (const [text, message] of said) {
    it(`says what is wrong with ${JSON.stringify(text)}: ${message}`, () =>
      assert.throws(() => index([Buffer.from(text)]), { message }));
  }

  it('accepts unusual names that the service can take', () => {
    const names = [
      '#',
      'x!',
      '@x',
      '%',
      '=',
      '<',
      '>',
      '~',
      '(',
      '&',
      ',',
      ' ',
      'a:b',
      '-1',
      '1',
      'a{b',
      '@thistle',
    ];
    const text = JSON.stringify(Object.fromEntries(names.map((name) => [name, 1])));
    assert.deepEqual(
      index([Buffer.from(text)])
        .map(({ name }) => name)
        .sort(),
      names.sort(),
    );
  });

  it('allows a repeated name in a nested object', () => {
    assert.equal(index([Buffer.from('{"a":{"b":1,"b":2},"c":[{"b":1,"b":2}]}')]).length, 2);
  });

  it('quotes no name and no value in its error messages', () => {
    for (const text of ['{"geheim|1":1}', '{"geheim":1,"geheim":2}', '{"geheim":geheim}', '{"geheim":1']) {
      assert.throws(
        () => index([Buffer.from(text)]),
        (error: Error) => !error.message.includes('geheim'),
      );
    }
  });
});

describe('JSON index, visitors', () => {
  /** Writes down what it hears. */
  function recorder(member: string) {
    const record = { text: '' };
    const heard = (what: string): true => {
      record.text += what;
      return true;
    };
    const visitor: JsonVisitor = {
      member,
      opened: (isObject) => void heard(isObject ? '{' : '['),
      closed: (empty) => void heard(empty ? 'empty)' : ')'),
      stringBegan: (isKey) => heard(isKey ? ' key ' : ' text '),
      stringBytes: (bytes, start, end) => heard(Buffer.from(bytes.subarray(start, end)).toString()),
      escaped: (code) => heard(`\\${code}`),
      stringEnded: () => void heard('.'),
    };
    return { visitor, record };
  }

  it('each receive the value of their own member, and nothing else', () => {
    const text = '{"x":["no"],"b":"two","c":"no","a":{"k":[ ],"l":[1]},"y":{"a":"no","b":"no"}}';
    for (const chunks of everyChunking(Buffer.from(text))) {
      const [a, b, z] = [recorder('a'), recorder('b'), recorder('z')];
      index(chunks, { visitors: [a.visitor, b.visitor, z.visitor] });
      assert.equal(a.record.text, '{ key k.[empty) key l.[))');
      assert.equal(b.record.text, ' text two.');
      assert.equal(z.record.text, '');
    }
  });
});

describe('JSON index, numbers of members', () => {
  const object = (count: number) =>
    Buffer.from(`{${Array.from({ length: count }, (_, i) => `"k${i}":{"a":0,"b":0}`).join(',')}}`);
  const array = (count: number) => Buffer.from(`[${Array(count).fill('""').join(',')}]`);

  it('accepts 1000 members, and refuses one more before it reads the rest', () => {
    assert.equal(index([object(1000)]).length, 1000);
    assert.throws(() => index([object(1001)]), { code: 'invalid_json' });
    const more = createJsonIndex();
    assert.throws(() => more.feed(object(1050)), { code: 'invalid_json', message: /too many members/ });
    assert.equal(more.members.length, 1000);
  });

  it('accepts 100 000 elements, and refuses one more before it reads the rest', () => {
    const arrays = { arrays: 'sealed' };
    assert.equal(index([array(100_000)], arrays).length, 100_000);
    assert.throws(() => index([array(100_001)], arrays), { code: 'invalid_json' });
    const more = createJsonIndex({ arrays: 'sealed' });
    assert.throws(() => more.feed(array(100_050)), { code: 'invalid_json', message: /too many elements/ });
    assert.equal(more.members.length, 100_000);
  });

  for (const element of ['0', 'null', '{"a":1}', '[]', 'true']) {
    it(`refuses the unsealed element ${element} at once`, () => {
      const scan = createJsonIndex({ arrays: 'sealed' });
      assert.throws(() => scan.feed(Buffer.from(`["a",${element},`)), { code: 'response_not_authentic' });
    });
  }
});

describe('JSON index, depth', () => {
  const nested = (depth: number) => Buffer.from(`{"a":${'['.repeat(depth - 1)}${']'.repeat(depth - 1)}}`);

  it('accepts 10 000 levels and refuses one more, of arrays and of objects', () => {
    const objects = (depth: number) => Buffer.from(`${'{"a":'.repeat(depth - 1)}{}${'}'.repeat(depth - 1)}`);
    for (const levels of [nested, objects]) {
      assert.equal(index([levels(10_000)]).length, 1);
      assert.throws(() => index([levels(10_001)]), { code: 'invalid_json', message: /too deep/ });
    }
  });

  it('refuses 100 000 nested brackets, open or closed, with invalid_json', () => {
    const open = Buffer.from(`{"a":${'['.repeat(100_000)}`);
    for (const text of [open, nested(100_000)]) assert.throws(() => index([text]), { code: 'invalid_json' });
  });
});

describe('JSON index, compared with JSON.parse', () => {
  const folder = join(import.meta.dirname, '../../vectors/foreign/json-test-suite/test_parsing');
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
        const verdict = parsed(text);
        const object =
          typeof verdict?.value === 'object' && verdict.value !== null && !Array.isArray(verdict.value);
        const expected = object && !(stricter.has(file) && text === bytes);
        const chunkings = text.length > 2000 ? [[text]] : [[text], byteByByte(text)];
        for (const chunks of chunkings) assert.equal(accepts(chunks), expected, `${file} ${text.length}`);
      }
      if (kind === 'y') assert.equal(accepts([wrap(bytes)]), true, file);
      if (kind === 'n') assert.equal(accepts([bytes]), false, file);
    }
    assert.deepEqual(seen, { y: 95, n: 188, i: 35 });
  });

  // Mostly valid text, damaged here and there: a byte changed, removed or put in.
  const damage = fc.record({
    at: fc.nat(),
    how: fc.constantFrom('change', 'remove', 'insert'),
    byte: fc.oneof(
      fc.constantFrom(...Buffer.from('"\\{}[]:,0-+.eEu \n\ttfn')),
      fc.constantFrom(0, 0x1f, 0x80, 0xc0, 0xc3, 0xe2, 0xed, 0xa0, 0xf0, 0xf5, 0xff, 0xef),
    ),
  });
  const object = fc.dictionary(
    fc.string({ unit: 'grapheme', minLength: 1 }).map((name) => `k${name.replace(/[|\\]/g, '')}`),
    fc.jsonValue({ maxDepth: 4, stringUnit: 'grapheme' }),
    { maxKeys: 5 },
  );

  it('agrees on generated text, valid and damaged, in any chunks', () => {
    let valid = 0;
    let invalid = 0;
    fc.assert(
      fc.property(
        object,
        fc.constantFrom(undefined, 1, '\t'),
        fc.array(damage, { maxLength: 2 }),
        fc.array(fc.nat(), { maxLength: 4 }),
        (value, indent, damages, cuts) => {
          let bytes = Buffer.from(JSON.stringify(value, null, indent));
          for (const { at, how, byte } of damages) {
            const i = at % bytes.length;
            const tail = bytes.subarray(how === 'insert' ? i : i + 1);
            bytes = Buffer.concat([bytes.subarray(0, i), Buffer.from(how === 'remove' ? [] : [byte]), tail]);
            if (bytes.length === 0) return;
          }
          const chunks = cutAnywhere(bytes, cuts);
          const verdict = parsed(bytes);
          let found: readonly JsonMember[];
          try {
            found = index(chunks);
          } catch (error) {
            const { code } = error as { code: string };
            if (code === 'invalid_json') {
              invalid += 1;
              const value = verdict?.value;
              assert.ok(typeof value !== 'object' || value === null || Array.isArray(value));
            }
            return;
          }
          valid += 1;
          assert.ok(verdict, 'accepted what JSON.parse refuses');
          const chain = createByteChain();
          for (const chunk of chunks) chain.push(chunk);
          const read = found.map(({ name, start, end }) => [
            name,
            JSON.parse(chain.bytes(start, end).toString()) as unknown,
          ]);
          assert.deepEqual(Object.fromEntries(read), verdict.value);
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
        fc.nat(),
        fc.integer({ min: 0, max: 255 }),
        (offset, length, at, byte) => {
          const backing = Buffer.alloc(length + 64, 'x');
          const text = backing.subarray(offset, offset + length);
          text.write('{"a":"', 0);
          text.write('"}', length - 2);
          text[6 + (at % (length - 8))] = byte;
          assert.equal(accepts([text]), parsed(text) !== undefined);
        },
      ),
      { seed: 20261121, numRuns: 3000 },
    );
  });
});
