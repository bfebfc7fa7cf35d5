/** What a sealed value may be, kind by kind: what is none is refused, and never an error of ours. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import {
  fitsRow,
  type GrammarRow,
  grammarOf,
  hasNames,
  type PlainMembers,
} from '../../lib/pipeline/response-grammar.ts';

const CHAT = { message: {}, finish_reason: 'stop' };
const TEXT = { text: '', finish_reason: 'stop' };
const MESSAGE = { id: 'm', model: 'm', content: [] };

/** Values by what they are written as; each kind takes some of them. */
const VALUES: Readonly<Record<string, unknown>> = {
  null: null,
  true: true,
  0: 0,
  1.5: 1.5,
  text: 'x',
  list: [],
  'list of null': [null],
  'list of lists': [[]],
  'list of texts': ['x'],
  object: {},
  'chat choice': [CHAT],
  'chat choices, the last without an end': [CHAT, { ...CHAT, finish_reason: null }],
  'chat choice without a message': [{ finish_reason: 'stop' }],
  'text choice': [TEXT],
  'text choice without an end': [{ ...TEXT, finish_reason: null }],
  'text choice of a number': [{ ...TEXT, text: 1 }],
  'chat delta': [{ delta: {} }],
  'chat delta that is none': [{ delta: null }],
  'text delta': [{ text: '' }],
  error: { message: 'x' },
  'error without words': { message: 1 },
  blocks: [{ type: 'text' }],
  'blocks without a type': [{ type: 1 }],
  message: MESSAGE,
  'message without an id': { ...MESSAGE, id: 1 },
  'message without a model': { ...MESSAGE, model: null },
  'message that has begun': { ...MESSAGE, content: [{}] },
  'message of text': { ...MESSAGE, content: '' },
  block: { type: 'text' },
  'delta of a block': { type: 'text_delta' },
  'delta of a block that stops': { type: 'text_delta', stop_reason: null },
  'delta of a message': { stop_reason: null },
  'delta of a message with a type': { stop_reason: null, type: 'x' },
  'delta of a message with a type that is none': { stop_reason: 'x', type: 1 },
};

const LISTS = ['list', 'list of null', 'list of lists', 'list of texts'];
const CHOICES = [
  ...['chat choice', 'chat choices, the last without an end', 'chat choice without a message', 'text choice'],
  ...['text choice without an end', 'text choice of a number', 'chat delta', 'chat delta that is none'],
  ...['text delta', 'blocks', 'blocks without a type'],
];
const OBJECTS = [
  ...[
    'object',
    'error',
    'error without words',
    'message',
    'message without an id',
    'message without a model',
  ],
  ...[
    'message that has begun',
    'message of text',
    'block',
    'delta of a block',
    'delta of a block that stops',
  ],
  ...['delta of a message', 'delta of a message with a type', 'delta of a message with a type that is none'],
];
type Kind = GrammarRow['required'][string];
const TAKEN: readonly (readonly [Kind, readonly string[]])[] = [
  ['string', ['text']],
  ['integer', ['0']],
  ['object', OBJECTS],
  ['array', [...LISTS, ...CHOICES]],
  ['chat_choices', ['list', 'chat choice']],
  ['text_choices', ['list', 'text choice']],
  ['chat_deltas', ['list', 'chat delta']],
  ['text_deltas', ['list', 'text choice', 'text choice without an end', 'text delta']],
  ['error', ['error']],
  ['blocks', ['list', 'blocks']],
  ['message', ['message']],
  ['block', ['block', 'delta of a message with a type']],
  ['block_delta', ['delta of a block']],
  ['message_delta', ['delta of a message', 'delta of a message with a type that is none']],
  ['string?', ['null', 'text']],
  ['array?', ['null', ...LISTS, ...CHOICES]],
];

describe('the kinds of sealed values', () => {
  for (const [kind, taken] of TAKEN) {
    it(`${kind} takes ${taken.length} of ${Object.keys(VALUES).length} values`, () => {
      const row: GrammarRow = { required: { member: kind } };
      const found = Object.keys(VALUES).filter((name) => fitsRow(row, 'member', VALUES[name]));
      assert.deepEqual(found.sort(), [...taken].sort());
    });
  }
});

/** Whether an event or a body with these sealed members may be of that row. */
const passes = (row: GrammarRow, plain: PlainMembers, members: Readonly<Record<string, unknown>>): boolean =>
  hasNames(
    row,
    Object.keys(members).map((name) => ({ name })),
    plain,
  ) && Object.entries(members).every(([name, value]) => fitsRow(row, name, value));

describe('the members of a chunk', () => {
  const chunks = {
    chat: ['chat.completion.chunk', { delta: {}, index: 0, finish_reason: 'stop' }],
    completions: ['text_completion', { text: '', index: 0, finish_reason: 'stop' }],
    transcription: ['transcription.chunk', { delta: {} }],
  } as const;
  for (const id of ['chat', 'completions', 'transcription'] as const) {
    const { stream, plain } = grammarOf({ id });
    const [object, choice] = chunks[id];
    const honest = { id: 'c', created: 1, model: 'm', object, choices: [choice] };
    const rows: readonly [string, object, boolean][] = [
      ['its own members alone', {}, true],
      ['an empty list', { citations: [] }, true],
      ['null under any name', { anything: null, kv_transfer_params: null, error: null }, true],
      ['numbers', { prompt_token_ids: [1, 2], x: 3 }, true],
      ['names that every object has', { constructor: 1, toString: 1, hasOwnProperty: 1 }, true],
      ['choices under an unknown name', { z000: [choice] }, false],
      ['choices under a known name', { prompt_token_ids: [choice] }, false],
      ['a bare delta in a list', { z: [{ delta: {} }] }, false],
      ['a bare text in a list', { z: [{ text: '' }] }, false],
      ['a bare index, behind a null', { z: [null, { index: 0 }] }, false],
      ['a message in a list', { z: [{ message: {} }] }, false],
      ['a finish in a list', { z: [{ finish_reason: null }] }, false],
      ['the kind of another event', { z: object }, false],
      ['the kind of another event, under a known name', { system_fingerprint: object }, false],
      ['the kind of a whole body', { object: 'chat.completion' }, false],
      ['an error beside the choices', { error: {} }, false],
      ['an error in capitals', { ERROR: {} }, false],
      ['an error under an unknown name', { z: { message: 'x', type: 'y' } }, false],
      ['an error under a known name', { metrics: { message: 'x', code: 1 } }, false],
      ['a known name with a capital letter', { Model: null }, false],
      ['a known plain name in capitals', { USAGE: null }, false],
      ['a known member of another type', { system_fingerprint: 1 }, false],
    ];
    for (const [name, more, isHonest] of rows) {
      it(`of ${id} ${isHonest ? 'may be' : 'are not'} ${name}`, () => {
        const members = Object.fromEntries(
          Object.entries({ ...honest, ...more }).filter(([each]) => !plain.has(each)),
        );
        assert.equal(passes(stream!.events['chunk']!, plain, members), isHonest);
      });
    }
  }
});

describe('endpoints', () => {
  it('have no grammar if they encrypt nothing', () => {
    assert.throws(() => grammarOf({ id: 'models' }), { code: 'internal' });
  });
});
