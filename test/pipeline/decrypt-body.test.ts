import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import type { PrivatemodeError } from '../../lib/errors.ts';
import { decryptBody } from '../../lib/pipeline/decrypt-body.ts';
import type { RequestFacts } from '../../lib/pipeline/decrypter.ts';
import { ENDPOINTS, type EndpointName, plainOf } from '../support/remote/endpoints.ts';
import { ASKED, countingIvs, EXCHANGE, fixedCipher } from '../support/remote/exchange-fixture.ts';
import { literalSeal, literalSealObject } from '../support/remote/literal-envelope.ts';
import { sealedStream } from '../support/remote/sealed-stream.ts';
import unary from '../vectors/inference/unary-responses.json' with { type: 'json' };

const { vectors, special } = unary;

async function run(id: EndpointName, asked: RequestFacts | undefined, wire: string) {
  try {
    const { body } = await decryptBody({ id }, fixedCipher(), asked, Buffer.from(wire));
    return { text: body.toString(), failure: undefined };
  } catch (error) {
    return { text: '', failure: (error as PrivatemodeError).code };
  }
}

/** As an error, which may hold anything that is sealed, of an endpoint with those plain members. */
function open(wire: string, plain: readonly string[] = ['id', 'usage']) {
  const ids = Object.keys(ENDPOINTS) as EndpointName[];
  const id = ids.find((each) => plainOf(each).response.sort().join() === [...plain].sort().join());
  assert.ok(id);
  return run(id, undefined, wire);
}

/** Vectors with something in clear that no error has: another `type`, a `duration`. */
const NO_ERRORS: readonly string[] = ['messages', 'transcription-verbose'];

describe('a whole response of the vectors', () => {
  for (const { name, plainFields, wire, expected } of vectors) {
    it(`is opened, or refused if nothing in it is sealed: ${name}`, async () => {
      const plain = plainFields.map(([member]) => member!);
      // Blanks between members are not passed on.
      const text = name === 'pretty-printed' ? '{"id":"x","choices":[ ]}' : expected;
      const shown = { text, failure: undefined };
      if (name === 'messages') assert.deepEqual(await run('messages', ASKED, wire), shown);
      const isError = wire.includes(':0') && !NO_ERRORS.includes(name); // what holds no message is nobody's
      const opened = await open(wire, plain);
      if (isError) assert.deepEqual(opened, shown);
      else assert.match(String(opened.failure), /^response_(malformed|not_authentic)$/);
    });
  }

  for (const { name, plainFields, wire, expect } of special) {
    if (expect !== 'error') continue; // the header decides before any body is decrypted
    it(`is refused: ${name}`, async () => {
      const plain = plainFields.map(([member]) => member!);
      assert.match(String((await open(wire, plain)).failure), /^response_(malformed|not_authentic)$/);
    });
  }
});

describe('a whole response is refused for', () => {
  const message = literalSeal(EXCHANGE, 0, Buffer.alloc(12), Buffer.from('[]'));
  const rows: readonly [string, string, string, string[]?][] = [
    ['a plain element', '[1]', 'response_malformed', []],
    ['a comma in place of an element', `[,${message}]`, 'response_malformed', []],
    ['a missing bracket', `[${message}`, 'response_malformed', []],
    ['more than 100,000 elements', `["",${'"",'.repeat(99_999)}""]`, 'response_malformed', []],
    ['choices that are a plain string', '{"choices":"x"}', 'response_malformed'],
    ['choices that are a plain object', '{"choices":{}}', 'response_not_authentic'],
    ['an array in place of an object', '[1]', 'response_malformed'],
    ['no bytes', '', 'response_malformed'],
    ['a repeated member', `{"choices":${message},"choices":[1]}`, 'response_malformed'],
    ['a repeated plain member', `{"id":"1","id":"2","choices":${message}}`, 'response_malformed'],
    ['65 members', `{${Array.from({ length: 65 }, (_, k) => `"m${k}":""`).join()}}`, 'response_malformed'],
    ['65 blanks in a row', `{${' '.repeat(65)}"choices":${message}}`, 'response_malformed'],
    ['text after its end', `{"choices":${message}} x`, 'response_malformed'],
    ['a sealed scalar', message, 'response_malformed'],
    ['a body that is no JSON', '<html>', 'response_malformed'],
  ];
  for (const [name, wire, code, plain] of rows) {
    it(name, async () => assert.equal((await open(wire, plain)).failure, code));
  }

  it('a plain value in place of a message, although the text around it passed before', async () => {
    const wire = sealedStream([]).object({ a: 1, b: 1 });
    const code = async (value: string) => (await open(wire.replace(/(?<="a"\s*:\s*)"[^"]*"/, value))).failure;
    assert.equal(await code('$&'), undefined);
    assert.equal(await code('"plain"'), 'response_malformed');
    assert.equal(await code('1'), 'response_not_authentic');
  });

  it('no usage that is laid out, whose line ends become blanks', async () => {
    const laidOut = '{\n  "prompt_tokens": 1,\r\n\t"of": {\n"x": 2}\n}';
    const wire = sealedStream(['usage']).object({ a: 1, usage: {} }).replace('{}', laidOut);
    const { failure, text } = await open(wire, ['id', 'usage']);
    assert.equal(failure, undefined);
    assert.match(text, /"usage":{ {3}"prompt_tokens": 1, {3}"of": { "x": 2} }/);
  });

  it('nothing but what is wrong, although a gateway has changed the blanks 200 times', async () => {
    for (let k = 0; k < 200; k++) {
      const wire = sealedStream([]).object({ a: 1 });
      const blanks = ' '.repeat(k % 65) + '\n'.repeat(k >> 6);
      assert.equal((await open(wire.replace('{', `{${blanks}`))).failure === undefined, blanks.length < 65);
    }
  });
});

describe('the grammar of whole responses', () => {
  const sealed = (value: object, plain: Iterable<string>): string => {
    const stream = sealedStream(plain);
    return Array.isArray(value) ? stream.array(value) : stream.object({ ...value });
  };
  const code = async (id: EndpointName, value: object, asked: { choices?: number; format?: string } = {}) =>
    (await run(id, { ...ASKED, ...asked }, sealed(value, plainOf(id).response))).failure;
  const without = (value: object, name: string): object =>
    Object.fromEntries(Object.entries(value).filter(([each]) => each !== name));
  const idOf = (bytes: number) => 'x'.repeat(bytes - 2); // the quotes count
  const choice = (index: number) => ({ index, message: { role: 'assistant' }, finish_reason: 'stop' });
  const CHAT = { id: 'c', object: 'chat.completion', created: 1, model: 'm', choices: [choice(0)] };
  const TEXT = {
    ...CHAT,
    object: 'text_completion',
    choices: [{ index: 0, text: 'x', finish_reason: 'stop' }],
  };
  const MESSAGE = {
    ...{ id: 'm', type: 'message', role: 'assistant', content: [], model: 'm' },
    stop_reason: 'end_turn',
  };
  const ELEMENT = { type: 'Title', element_id: '0', text: 'x', metadata: {} };
  const VERBOSE = { duration: '1.0', language: 'en', text: 'x', segments: null, words: [{ word: 'x' }] };
  const honest: readonly [string, EndpointName, object, { choices?: number; format?: string }?][] = [
    ['chat, harmless additions', 'chat', { ...CHAT, citations: [], metrics: {}, error: null, x: 'y' }],
    ['chat, a plain member of 16 KiB', 'chat', { ...CHAT, id: idOf(16_384) }],
    ['chat, an id with escapes', 'chat', { ...CHAT, id: '"a\\' }],
    ['chat, a usage of three levels', 'chat', { ...CHAT, usage: { a: { b: { c: 1 }, d: {} }, e: [1, 's'] } }],
    ['unstructured', 'unstructured', [ELEMENT, [ELEMENT, { ...ELEMENT, text: '' }], []]],
    ['transcription, verbose', 'transcription', VERBOSE, { format: 'verbose_json' }],
  ];
  for (const [name, id, value, asked] of honest) {
    it(`passes ${name}`, async () => assert.equal(await code(id, value, asked), undefined));
  }

  const required: readonly [string, EndpointName, object, string[], string?][] = [
    ['chat', 'chat', CHAT, ['choices', 'created', 'model', 'object']],
    ['messages', 'messages', MESSAGE, ['content', 'model', 'role', 'stop_reason', 'type']],
    ['embeddings', 'embeddings', { object: 'list', data: [], model: 'm' }, ['data', 'model', 'object']],
    ['transcription', 'transcription', { text: 'x' }, ['text']],
    ['verbose', 'transcription', VERBOSE, ['language', 'segments', 'text', 'words'], 'verbose_json'],
  ];
  for (const [name, id, value, members, format] of required) {
    for (const member of members) {
      it(`refuses ${name} without ${member}, or with ${member} false`, async () => {
        const asked = format === undefined ? {} : { format };
        assert.notEqual(await code(id, without(value, member), asked), undefined);
        assert.notEqual(await code(id, { ...value, [member]: false }, asked), undefined);
      });
    }
  }

  const DETAILS = [{ type: 'missing', loc: ['body', 'files'], msg: 'Field required', input: null }];
  const refused: readonly [string, EndpointName, object, string?][] = [
    ['an empty object', 'chat', {}, 'response_malformed'],
    ['plain members alone', 'chat', { id: 'c', usage: null }],
    ['an array', 'chat', [{ text: 'x' }], 'response_malformed'],
    ['another kind of body', 'chat', { ...CHAT, object: 'chat.completion.chunk' }],
    ['fewer choices than asked for', 'chat', { ...CHAT, choices: [] }],
    ['more choices than asked for', 'chat', { ...CHAT, choices: [choice(0), choice(1)] }],
    ['choices under another name', 'chat', { ...CHAT, extra: [choice(0)] }],
    ['an error in a success', 'chat', { ...CHAT, error: {} }],
    ['a plain member of another type', 'chat', { ...CHAT, usage: 1 }, 'response_malformed'],
    ['a plain member of 16 KiB and one byte', 'chat', { ...CHAT, id: idOf(16_385) }, 'response_malformed'],
    ['a message that has not stopped', 'messages', { ...MESSAGE, stop_reason: null }],
    ['a message with an unknown member that holds a text', 'messages', { ...MESSAGE, z: 'end_turn' }],
    ['a usage of four levels', 'chat', { ...CHAT, usage: { a: { b: { c: {} } } } }, 'response_malformed'],
    ['a name that is no ASCII', 'chat', { ...CHAT, ä: null }, 'response_malformed'],
    ['choices of chat as completions', 'completions', { ...TEXT, choices: [choice(0)] }],
    ['an error as a message', 'messages', { ...MESSAGE, type: 'error' }],
    ['an object in place of the list of a document', 'unstructured', { detail: 'x' }],
    ['an element that is a text', 'unstructured', [ELEMENT, 'x']],
    ['an element in a list of lists', 'unstructured', [[[ELEMENT]]]],
    ...['type', 'element_id', 'text'].flatMap((member): [string, EndpointName, object][] => [
      [`an element without ${member}`, 'unstructured', [ELEMENT, without(ELEMENT, member)]],
      [`an element of a file whose ${member} is no text`, 'unstructured', [[{ ...ELEMENT, [member]: null }]]],
    ]),
    ['the details of an error as the elements of a file', 'unstructured', [DETAILS]],
    ['the detail of an error as an element', 'unstructured', DETAILS],
    ['the object of an error as an element', 'unstructured', [{ message: 'no', type: 'x', code: 400 }]],
  ];
  for (const [name, id, value, failure = 'response_not_authentic'] of refused) {
    it(`refuses ${name}`, async () => assert.equal(await code(id, value), failure));
  }

  const SAID = { error: { message: 'no' } };
  const usages: readonly [id: EndpointName, error: object, failure?: string][] = [
    ['chat', { ...SAID, id: 'c', usage: { total_tokens: 1 } }],
    ['chat', { ...SAID, id: null, usage: null }],
    ['chat', { ...SAID, type: 'error', duration: '1' }], // sealed there
    ['messages', { ...SAID, type: 'error', id: 'm', usage: {} }],
    ['messages', SAID],
    ['transcription', { ...SAID, id: { of: 'theirs' }, usage: {} }], // the id is sealed there
    ['chat', { ...SAID, id: 1 }, 'response_malformed'],
    ['chat', { ...SAID, usage: 'forged' }, 'response_malformed'],
    ['chat', { ...SAID, usage: { a: 'x'.repeat(16_384) } }, 'response_malformed'],
    ['messages', { ...SAID, type: 'message' }, 'response_malformed'],
    ['transcription', { ...SAID, duration: 'forged' }, 'response_malformed'],
  ];
  for (const [id, error, failure] of usages) {
    const shown = JSON.stringify(error).slice(0, 80);
    it(`${failure === undefined ? 'passes' : 'refuses'} an error of ${id}: ${shown}`, async () => {
      assert.equal((await run(id, undefined, sealed(error, plainOf(id).response))).failure, failure);
    });
  }

  it('refuses a sealed value that is no JSON, or more than one value', async () => {
    for (const raw of ['x', '1,"b":2', '', '"a', '{"a":1}}']) {
      const wire = literalSealObject(EXCHANGE, [{ name: 'a', writtenName: '"a"', raw }], [], countingIvs());
      assert.equal((await open(wire)).failure, 'response_not_authentic', raw);
    }
  });
});

describe('a whole response', () => {
  it('is opened, as an array, in the order of its indices as text: 0, 1, 10, 100, 101', async () => {
    const elements = Array.from({ length: 1_234 }, (_, e) => ({ e }));
    assert.equal((await open(sealedStream([]).array(elements), [])).text, JSON.stringify(elements));
  });

  it('is opened in parts of 256 messages or of 512 KiB, and others have a turn between them', async () => {
    const half = '1'.repeat(256 * 1024 - 2); // twice as long on the wire
    for (const [elements, parts] of [
      [new Array(256).fill(1), [256]],
      [new Array(600).fill(1), [256, 256, 88]],
      [
        [half, half, 1, 1],
        [1, 1, 2],
      ],
    ] as const) {
      const cipher = fixedCipher();
      const opened: number[] = [];
      let turns = 0;
      const open = (messages: readonly string[]): string[] => {
        assert.equal(turns, opened.length);
        setImmediate(() => (turns += 1));
        opened.push(messages.length);
        return cipher.open(messages);
      };
      const wire = sealedStream([]).array(elements);
      await decryptBody({ id: 'unstructured' }, { open }, undefined, Buffer.from(wire));
      assert.deepEqual(opened, parts);
    }
  });

  it('comes out with any values as they were sealed, in the order of its members', async () => {
    const name = fc.stringMatching(/^[a-zA-Z._-]{1,5}$/).filter((each) => !['id', 'usage'].includes(each));
    const rows = fc.uniqueArray(fc.tuple(name, fc.json({ maxDepth: 2, stringUnit: 'grapheme' })), {
      selector: ([each]) => each,
      minLength: 1,
    });
    const property = fc.asyncProperty(rows, async (pairs) => {
      const members = pairs.map(([each, raw]) => ({ name: each, raw, writtenName: JSON.stringify(each) }));
      const opened = await open(literalSealObject(EXCHANGE, members, ['id', 'usage'], countingIvs()));
      const text = members.map(({ writtenName, raw }) => `${writtenName}:${raw}`).join();
      assert.deepEqual(opened, { text: `{${text}}`, failure: undefined });
    });
    await fc.assert(property, { seed: 20261121 });
  });

  it('keeps the numbers of its plain members as they were written', async () => {
    const usage = '{"a": 1.0,"b":18446744073709551615,"__proto__":-0,"0":1e3}';
    const { text } = await open(
      `{"a":${literalSeal(EXCHANGE, 0, Buffer.alloc(12), Buffer.from('1'))},"usage":${usage}}`,
    );
    assert.equal(text, `{"a":1,"usage":${usage}}`);
  });
});
