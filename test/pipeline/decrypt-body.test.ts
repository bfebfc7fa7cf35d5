import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import { createBodyDecrypter } from '../../lib/pipeline/decrypt-body.ts';
import type { RequestFacts } from '../../lib/pipeline/decrypter.ts';
import { grammarOf } from '../../lib/pipeline/response-grammar.ts';
import { cutAnywhere, everyChunking } from '../support/remote/chunkings.ts';
import {
  ASKED,
  countingIvs,
  EXCHANGE,
  fixedCipher,
  inferenceVectors,
} from '../support/remote/exchange-fixture.ts';
import { literalSeal, literalSealObject } from '../support/remote/literal-envelope.ts';
import { PLAIN_MEMBERS } from '../support/remote/plain-members.ts';
import { sealedStream } from '../support/remote/sealed-stream.ts';

interface UnaryVector {
  readonly name: string;
  readonly plainFields: readonly (readonly [string])[];
  readonly wire: string;
  readonly expected?: string;
  readonly expect?: string;
}

const { vectors, special } = inferenceVectors<{
  readonly vectors: readonly UnaryVector[];
  readonly special: readonly UnaryVector[];
}>('unary-responses');

/** The plain members of each endpoint's responses. */
const { R, MR, TR, NONE } = PLAIN_MEMBERS;
const PLAIN = {
  chat: R,
  completions: R,
  messages: MR,
  embeddings: R,
  transcription: TR,
  unstructured: NONE,
} as const;
type EndpointId = keyof typeof PLAIN;

function run(
  id: EndpointId,
  asked: RequestFacts | undefined,
  chunks: Iterable<Uint8Array>,
  maxBytes = 1 << 20,
) {
  const decrypter = createBodyDecrypter({ id }, fixedCipher(), asked, maxBytes);
  const delivered = [...chunks].map((chunk) => decrypter.feed(chunk));
  do delivered.push(decrypter.flush());
  while (decrypter.pending);
  return { text: Buffer.concat(delivered).toString(), failure: decrypter.failure?.code };
}

/** As an error, which may hold anything that is sealed, of an endpoint with those plain members. */
function open(chunks: Iterable<Uint8Array>, plain: readonly string[]) {
  const ids = Object.keys(PLAIN) as EndpointId[];
  const id = ids.find((each) => [...PLAIN[each]].sort().join() === [...plain].sort().join());
  assert.ok(id);
  return run(id, undefined, chunks);
}

const openText = (text: string, plain: readonly string[] = ['id', 'usage']) =>
  open([Buffer.from(text)], plain);

/** Vectors with something in clear that no error has: another `type`, a `duration`. */
const NO_ERRORS: readonly string[] = ['messages', 'transcription-verbose'];

describe('a whole response of the vectors', () => {
  for (const { name, plainFields, wire, expected } of vectors) {
    it(`is opened, or refused if nothing in it is sealed: ${name}`, () => {
      const plain = plainFields.map(([member]) => member);
      const sealed = wire.includes(':0'); // what holds no message is nobody's; the reference shows it
      const kind = name === 'empty-array' ? 'response_malformed' : 'response_not_authentic';
      for (const chunks of everyChunking(Buffer.from(wire))) {
        // Blanks between members are not passed on.
        const text = name === 'pretty-printed' ? '{"id":"x","choices":[ ]}' : expected;
        const shown = { text, failure: undefined };
        const refused = { text: '', failure: 'response_malformed' };
        const asError = NO_ERRORS.includes(name) ? refused : shown;
        if (name === 'messages') assert.deepEqual(run('messages', ASKED, chunks), shown);
        assert.deepEqual(open(chunks, plain), sealed ? asError : { text: '', failure: kind });
      }
    });
  }

  for (const { name, plainFields, wire, expect } of special) {
    if (expect !== 'error') continue; // the header decides before any opener is made
    it(`is refused, with nothing delivered: ${name}`, () => {
      const { text, failure } = openText(
        wire,
        plainFields.map(([member]) => member),
      );
      assert.match(String(failure), /^response_(malformed|not_authentic)$/);
      assert.equal(text, '');
    });
  }
});

describe('a whole response is refused for', () => {
  const message = literalSeal(EXCHANGE, 0, Buffer.alloc(12), Buffer.from('[]'));
  const rows: readonly [string, string, string, string[]?][] = [
    ['a plain element', '[1]', 'response_not_authentic', []],
    ['choices that are a plain string', '{"choices":"x"}', 'response_malformed'],
    ['choices that are a plain object', '{"choices":{}}', 'response_not_authentic'],
    ['choices that are null', '{"choices":null}', 'response_not_authentic'],
    ['an array in place of an object', '[1]', 'response_malformed'],
    ['a repeated member', `{"choices":${message},"choices":[1]}`, 'response_malformed'],
    ['a repeated plain member', `{"id":1,"id":2,"choices":${message}}`, 'response_malformed'],
    ['text after its end', `{"choices":${message}} x`, 'response_malformed'],
    ['a sealed scalar', message, 'response_malformed'],
    ['a missing end', `{"choices":${message}`, 'response_malformed'],
    ['a body that is no JSON', '<html>', 'response_malformed'],
  ];
  for (const [name, wire, code, plain] of rows) {
    it(name, () => assert.deepEqual(openText(wire, plain), { text: '', failure: code }));
  }

  it('a body beyond the limit, as soon as the limit is passed', () => {
    const opener = createBodyDecrypter({ id: 'unstructured' }, fixedCipher(), undefined, 10);
    const codes = ['{"a":"bcd', 'ef"}'].map((text) => {
      opener.feed(Buffer.from(text));
      return opener.failure?.code;
    });
    assert.deepEqual(codes, [undefined, 'response_too_large']);
    assert.equal(opener.flush().length, 0);
  });

  it('a body of more than 128 MiB, without looking at it', () => {
    const fed = (bytes: number) => {
      const opener = createBodyDecrypter({ id: 'chat' }, fixedCipher(), undefined);
      opener.feed(new Uint8Array(bytes));
      return opener.failure?.code;
    };
    assert.equal(fed(134_217_728), undefined);
    assert.equal(fed(134_217_729), 'response_too_large');
  });

  it('one byte more than the limit, in any chunks, and is opened with exactly the limit', () => {
    const wire = Buffer.from(`{"choices":${message}}`);
    for (const chunks of everyChunking(wire)) {
      const [fits, over] = [0, 1].map((less) => run('chat', undefined, chunks, wire.length - less));
      assert.deepEqual([fits?.text, fits?.failure], ['{"choices":[]}', undefined]);
      assert.deepEqual([over?.text, over?.failure], ['', 'response_too_large']);
    }
  });

  it('a tampered value, and nothing of the other values is delivered', () => {
    const wire = sealedStream([]).object({ a: 1, b: 1 });
    const at = wire.lastIndexOf('"') - 1;
    const changed = wire.slice(0, at) + (wire[at] === '0' ? '1' : '0') + wire.slice(at + 1);
    assert.deepEqual(openText(wire), { text: '{"a":1,"b":1}', failure: undefined });
    assert.deepEqual(openText(changed), { text: '', failure: 'response_not_authentic' });
  });
});

describe('the grammar of whole responses', () => {
  it('leaves plain exactly the members that the protocol lists', () => {
    for (const [id, plain] of Object.entries(PLAIN)) {
      assert.deepEqual(new Set(grammarOf({ id: id as EndpointId }).plain.keys()), plain, id);
    }
  });

  const sealed = (value: object, plain: Iterable<string>): string => {
    const stream = sealedStream(plain);
    return Array.isArray(value) ? stream.array(value) : stream.object({ ...value });
  };
  const code = (id: EndpointId, value: object, asked: { choices?: number; format?: string } = {}) => {
    const wire = Buffer.from(sealed(value, PLAIN[id]));
    const { text, failure } = run(id, { ...ASKED, ...asked }, [wire]);
    assert.equal(text === '', failure !== undefined);
    return failure;
  };
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
  const honest: readonly [string, EndpointId, object, { choices?: number; format?: string }?][] = [
    ['chat', 'chat', CHAT],
    ['chat, two choices', 'chat', { ...CHAT, choices: [choice(0), choice(1)] }, { choices: 2 }],
    ['chat, optional members', 'chat', { ...CHAT, system_fingerprint: null, prompt_logprobs: [null, {}] }],
    ['chat, harmless additions', 'chat', { ...CHAT, citations: [], metrics: {}, error: null, x: 'y' }],
    ['chat, a plain member of 16 KiB', 'chat', { ...CHAT, id: idOf(16_384) }],
    ['completions', 'completions', TEXT],
    ['messages', 'messages', MESSAGE],
    ['messages, stop sequence', 'messages', { ...MESSAGE, stop_sequence: 'x' }],
    ['messages, harmless additions', 'messages', { ...MESSAGE, citations: [], metrics: {}, container: null }],
    ['embeddings', 'embeddings', { object: 'list', data: [{ index: 0 }], model: null, usage: {} }],
    ['transcription', 'transcription', { text: 'x', usage: {} }],
    ['transcription, verbose', 'transcription', VERBOSE, { format: 'verbose_json' }],
    ['unstructured', 'unstructured', [ELEMENT, { ...ELEMENT, text: '' }]],
    ['unstructured, several files', 'unstructured', [[ELEMENT], []]],
    ['unstructured, nothing', 'unstructured', []],
  ];
  for (const [name, id, value, asked] of honest) {
    it(`passes ${name}`, () => assert.equal(code(id, value, asked), undefined));
  }

  const required: readonly [string, EndpointId, object, string[], string?][] = [
    ['chat', 'chat', CHAT, ['choices', 'created', 'model', 'object']],
    ['messages', 'messages', MESSAGE, ['content', 'model', 'role', 'stop_reason', 'type']],
    ['embeddings', 'embeddings', { object: 'list', data: [], model: 'm' }, ['data', 'model', 'object']],
    ['transcription', 'transcription', { text: 'x' }, ['text']],
    ['verbose', 'transcription', VERBOSE, ['language', 'segments', 'text', 'words'], 'verbose_json'],
  ];
  for (const [name, id, value, members, format] of required) {
    for (const member of members) {
      it(`refuses ${name} without ${member}, or with ${member} false`, () => {
        const asked = format === undefined ? {} : { format };
        assert.equal(code(id, value, asked), undefined);
        assert.equal(code(id, without(value, member), asked), 'response_not_authentic');
        assert.equal(code(id, { ...value, [member]: false }, asked) !== undefined, true);
      });
    }
  }

  const DETAILS = [{ type: 'missing', loc: ['body', 'files'], msg: 'Field required', input: null }];
  const refused: readonly [string, EndpointId, object, string?][] = [
    ['an empty object', 'chat', {}],
    ['plain members alone', 'chat', { id: 'c', usage: null }],
    ...(Object.keys(PLAIN) as EndpointId[])
      .filter((id) => id !== 'unstructured')
      .map((id): [string, EndpointId, object, string] => [
        `an array as ${id}`,
        id,
        [{ text: 'x' }],
        'response_malformed',
      ]),
    ['another kind of body', 'chat', { ...CHAT, object: 'chat.completion.chunk' }],
    ['fewer choices than asked for', 'chat', { ...CHAT, choices: [] }],
    ['more choices than asked for', 'chat', { ...CHAT, choices: [choice(0), choice(1)] }],
    ['choices under another name', 'chat', { ...CHAT, extra: [choice(0)] }],
    ['choices under an optional name', 'chat', { ...CHAT, prompt_logprobs: [choice(0)] }],
    ['the kind of the response under another name', 'chat', { ...CHAT, service_tier: 'chat.completion' }],
    ['an optional member of another type', 'chat', { ...CHAT, system_fingerprint: 1 }],
    ['a known name with a capital letter', 'chat', { ...CHAT, Model: null }],
    [
      'a known name with a letter that case folding makes equal',
      'chat',
      { ...CHAT, uſage: null },
      'response_malformed',
    ],
    ['an error in a success', 'chat', { ...CHAT, error: {} }],
    ['an error under another name', 'chat', { ...CHAT, x: { message: 'no', code: 500 } }],
    ['a plain member of another type', 'chat', { ...CHAT, usage: 1 }, 'response_malformed'],
    ['a plain member of 16 KiB and one byte', 'chat', { ...CHAT, id: idOf(16_385) }, 'response_malformed'],
    ['a message that has not stopped', 'messages', { ...MESSAGE, stop_reason: null }],
    ['a message with an unknown member that holds a text', 'messages', { ...MESSAGE, z: 'end_turn' }],
    ['a name that is no ASCII', 'chat', { ...CHAT, ä: null }, 'response_malformed'],
    ['choices of chat as completions', 'completions', { ...TEXT, choices: [choice(0)] }],
    ['an error as a message', 'messages', { ...MESSAGE, type: 'error' }],
    ['an object in place of the list of a document', 'unstructured', { detail: 'x' }],
    ['an object of lists in place of the list of a document', 'unstructured', { detail: [{}] }],
    ['an element that is a text', 'unstructured', [ELEMENT, 'x']],
    ['an element that is a list of texts', 'unstructured', [['x']]],
    ['an element in a list of lists', 'unstructured', [[[ELEMENT]]]],
    ...['type', 'element_id', 'text'].flatMap((member): [string, EndpointId, object][] => [
      [`an element without ${member}`, 'unstructured', [ELEMENT, without(ELEMENT, member)]],
      [`an element of a file whose ${member} is no text`, 'unstructured', [[{ ...ELEMENT, [member]: null }]]],
    ]),
    ['the details of an error as the elements of a file', 'unstructured', [DETAILS]],
    ['the detail of an error as an element', 'unstructured', DETAILS],
    ['the object of an error as an element', 'unstructured', [{ message: 'no', type: 'x', code: 400 }]],
  ];
  for (const [name, id, value, failure = 'response_not_authentic'] of refused) {
    it(`refuses ${name}`, () => assert.equal(code(id, value), failure));
  }

  const SAID = { error: { message: 'no' } };
  const usages: readonly [id: EndpointId, error: object, failure?: string][] = [
    ['chat', { ...SAID, id: 'c', usage: { total_tokens: 1 } }],
    ['chat', { ...SAID, id: null, usage: null }],
    ['chat', { ...SAID, type: 'error', duration: '1' }], // sealed there
    ['messages', { ...SAID, type: 'error', id: 'm', usage: {} }],
    ['messages', SAID],
    ['transcription', { ...SAID, id: { of: 'theirs' }, usage: {} }], // the id is sealed there
    ['chat', { ...SAID, id: 1 }, 'response_malformed'],
    ['chat', { ...SAID, id: { message: 'forged' } }, 'response_malformed'],
    ['chat', { ...SAID, usage: 'forged' }, 'response_malformed'],
    ['chat', { ...SAID, usage: [{ message: 'forged' }] }, 'response_malformed'],
    ['chat', { ...SAID, usage: { a: 'x'.repeat(16_384) } }, 'response_malformed'],
    ['embeddings', { ...SAID, usage: true }, 'response_malformed'],
    ['messages', { ...SAID, type: 'message' }, 'response_malformed'],
    ['messages', { ...SAID, type: 'forged' }, 'response_malformed'],
    ['messages', { ...SAID, type: null }, 'response_malformed'],
    ['transcription', { ...SAID, duration: 'forged' }, 'response_malformed'],
    ['transcription', { ...SAID, duration: null }, 'response_malformed'],
  ];
  for (const [id, error, failure] of usages) {
    const shown = JSON.stringify(error).slice(0, 80);
    it(`${failure === undefined ? 'passes' : 'refuses'} an error of ${id}: ${shown}`, () => {
      const wire = Buffer.from(sealed(error, PLAIN[id]));
      const opened = run(id, undefined, [wire]);
      assert.equal(opened.failure, failure);
      assert.equal(opened.text === '', failure !== undefined);
    });
  }

  it('refuses an error whose usage is longer than 16 KiB, and counts no tokens of it', () => {
    const usageOf = (bytes: number) => {
      const counts = '{"prompt_tokens":1,"completion_tokens":2';
      const usage = `${counts}${' '.repeat(bytes - counts.length - 1)}}`;
      const message = literalSeal(EXCHANGE, 0, Buffer.alloc(12), Buffer.from('1'));
      const opener = createBodyDecrypter({ id: 'chat' }, fixedCipher(), undefined);
      opener.feed(Buffer.from(`{"a":${message},"usage":${usage}}`));
      opener.flush();
      return [opener.failure?.code, opener.usage];
    };
    assert.deepEqual(usageOf(16_384), [undefined, { prompt: 1, completion: 2, cached: undefined }]);
    assert.deepEqual(usageOf(16_385), ['response_malformed', undefined]);
  });

  it('refuses a sealed value that is no JSON, or more than one value', () => {
    for (const raw of ['x', '1,"b":2', '', '"a', '{"a":1}}', '\ud800']) {
      const wire = literalSealObject(EXCHANGE, [{ name: 'a', writtenName: '"a"', raw }], [], countingIvs());
      assert.match(String(openText(wire).failure), /^response_(malformed|not_authentic)$/, raw);
    }
  });
});

describe('the opener of whole responses', () => {
  /** Elements of an array, each sealed under the rank of its index as text. */
  const elementsOf = (plaintexts: readonly Buffer[]): string[] => {
    const order = Object.keys(plaintexts).sort();
    const rank = new Map(order.map((name, at) => [name, at]));
    return plaintexts.map((plaintext, i) =>
      literalSeal(EXCHANGE, rank.get(String(i))!, Buffer.alloc(12, i), plaintext),
    );
  };

  it('opens arrays in the order of their indices as text: 0, 1, 10, 11, 2', () => {
    const elements = elementsOf(Array.from({ length: 12 }, (_, i) => Buffer.from(`{"e":${i}}`)));
    const { text } = openText(`[${elements.join(', ')}]`, []);
    assert.equal(text, `[${elements.map((_, i) => `{"e":${i}}`).join()}]`);
  });

  /** What each turn of opening these elements gives, and how it ended. */
  const turnsOf = (elements: readonly string[]) => {
    const opener = createBodyDecrypter({ id: 'unstructured' }, fixedCipher(), undefined);
    opener.feed(Buffer.from(`[${elements.join()}]`));
    const turns = [Buffer.from(opener.flush()).toString()];
    while (opener.pending) turns.push(Buffer.from(opener.flush()).toString());
    return { turns, failure: opener.failure?.code };
  };

  it('opens an array of 3,000 elements in three turns', () => {
    const elements = elementsOf(Array.from({ length: 3000 }, (_, i) => Buffer.from(String(i))));
    const text = `[${elements.map((_, i) => i).join()}]`;
    assert.deepEqual(turnsOf(elements), { turns: ['', '', text], failure: undefined });
  });

  const MIB = 1_048_576;
  const arrayOf = (bytes: number) => `[${'0,'.repeat(bytes / 2 - 2)} 0]`;
  for (const [what, values, count] of [
    ['1,024 messages', new Array(1_024).fill('1'), 1],
    ['1,025 messages', new Array(1_025).fill('1'), 2],
    ['4 MiB of messages, and one that is short', ['1'.repeat(2 * MIB), '1'], 2],
    ['an array of 512 KiB', [arrayOf(MIB / 2)], 1],
    ['an array of 1 MiB', [arrayOf(MIB)], 3],
  ] as const) {
    it(`takes ${count} ${count === 1 ? 'turn' : 'turns'} for ${what}`, () => {
      const { turns, failure } = turnsOf(elementsOf(values.map((value) => Buffer.from(value))));
      assert.deepEqual([turns.length, failure], [count, undefined]);
    });
  }

  it('delivers nothing if the last of 2,000 elements is not authentic', () => {
    const elements = elementsOf(new Array(2000).fill(Buffer.from('1')));
    // The last one that is opened: the greatest index as text.
    elements[999] = literalSeal(EXCHANGE, 2000, Buffer.alloc(12), Buffer.from('1'));
    const { turns, failure } = turnsOf(elements);
    assert.deepEqual([turns.join(''), failure], ['', 'response_not_authentic']);
  });

  it('opens any object, in any chunks', () => {
    const name = fc.stringMatching(/^[a-zA-Z._-]{1,5}$/).filter((each) => !R.has(each));
    const rows = fc.uniqueArray(fc.tuple(name, fc.json({ maxDepth: 2, stringUnit: 'grapheme' })), {
      selector: ([each]) => each,
      minLength: 2, // the first is plain
    });
    fc.assert(
      fc.property(rows, fc.array(fc.nat(), { maxLength: 4 }), (pairs, cuts) => {
        const members = pairs.map(([each, raw], i) => {
          const written = i === 0 ? 'id' : each; // plain, so a text
          return {
            name: written,
            raw: i === 0 ? JSON.stringify(Buffer.from(raw).toString('hex')) : raw,
            writtenName: JSON.stringify(written),
          };
        });
        const wire = Buffer.from(literalSealObject(EXCHANGE, members, [...R], countingIvs()));
        const opened = open(cutAnywhere(wire, cuts), [...R]);
        const text = members.map(({ writtenName, raw }) => `${writtenName}:${raw}`).join();
        assert.deepEqual(opened, { text: `{${text}}`, failure: undefined });
      }),
      { seed: 20261121 },
    );
  });
});

/** It costs more than its bytes: it is decoded, folded and compared as one string, while everybody waits. */
it('a response with a member whose name has a million characters is refused as response_malformed', {
  timeout: 600_000,
}, () => {
  const message = { index: 0, message: { role: 'assistant', content: 'hi' }, finish_reason: 'stop' };
  const body = sealedStream(R).object({
    choices: [message],
    created: 1,
    [`l${'\u00df'.repeat(1024 * 1024)}`]: null,
    model: 'm',
    object: 'chat.completion',
  });
  assert.equal(run('chat', ASKED, [Buffer.from(body)], 16 << 20).failure, 'response_malformed');
});
