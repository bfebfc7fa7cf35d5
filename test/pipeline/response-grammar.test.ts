/** What a sealed value may be, kind by kind: what is none is refused, and never an error of ours. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { fitsRow, type GrammarRow, grammarOf, hasNames } from '../../lib/pipeline/response-grammar.ts';
import type { PlainMembers } from '../../lib/pipeline/sealed-json.ts';

type Kind = GrammarRow['required'][string];

const CHAT = { message: {}, finish_reason: 'stop' };
const TEXT = { text: '', finish_reason: 'stop' };
const MESSAGE = { id: 'm', model: 'm', content: [] };

/** Values that no kind takes that is more than a simple kind of JSON. */
const POOR = [null, true, 0, 'x', [null], [[]], ['x'], {}];

/** By kind: values that it takes, and values that it refuses beside the poor ones. */
const KINDS: readonly (readonly [Kind, readonly unknown[], readonly unknown[]])[] = [
  [
    'chat_choices',
    [[], [CHAT]],
    [[CHAT, { ...CHAT, finish_reason: null }], [{ finish_reason: 'stop' }], [TEXT]],
  ],
  ['text_choices', [[], [TEXT]], [[{ ...TEXT, finish_reason: null }], [{ ...TEXT, text: 1 }], [CHAT]]],
  ['chat_deltas', [[], [{ delta: {} }]], [[{ delta: null }], [{ text: '' }]]],
  ['text_deltas', [[], [{ text: '' }], [TEXT]], [[{ text: null }], [{ delta: {} }]]],
  ['error', [{ message: 'x' }], [{ message: 1 }]],
  ['blocks', [[], [{ type: 'text' }]], [[{ type: 1 }]]],
  [
    'message',
    [MESSAGE],
    [
      { ...MESSAGE, id: 1 },
      { ...MESSAGE, model: null },
      { ...MESSAGE, content: [{}] },
      { ...MESSAGE, content: '' },
    ],
  ],
  ['block', [{ type: 'text' }], [{ type: 'text_delta' }, { type: 1 }]],
  ['block_delta', [{ type: 'text_delta' }], [{ type: 'text_delta', stop_reason: null }, { type: 'text' }]],
  [
    'message_delta',
    [{ stop_reason: null }, { stop_reason: 'x', type: 1 }],
    [{ stop_reason: null, type: 'x' }],
  ],
];

/** By simple kind: what it takes of the poor values. */
const SIMPLE: readonly (readonly [Kind, readonly unknown[]])[] = [
  ['string', ['x']],
  ['string?', [null, 'x']],
  ['integer', [0]],
  ['object', [{}]],
  ['array', [[null], [[]], ['x']]],
  ['array?', [null, [null], [[]], ['x']]],
];

const fits = (kind: Kind, value: unknown): boolean => fitsRow({ required: { m: kind } }, 'm', value);

describe('the kinds of sealed values', () => {
  for (const [kind, taken, refused] of KINDS) {
    it(`${kind} takes what it should, and nothing else`, () => {
      for (const value of taken) assert.ok(fits(kind, value), JSON.stringify(value));
      for (const value of [...refused, ...POOR]) assert.ok(!fits(kind, value), JSON.stringify(value));
    });
  }

  for (const [kind, taken] of SIMPLE) {
    it(`${kind} takes ${JSON.stringify(taken)}`, () => {
      assert.deepEqual(
        [...POOR, 1.5].filter((value) => fits(kind, value)),
        taken,
      );
    });
  }
});

/** Whether an event or a body with these sealed members may be of that row. */
function passes(row: GrammarRow, plain: PlainMembers, members: Readonly<Record<string, unknown>>): boolean {
  const names = Object.keys(members);
  const layout = { names, sealed: [...names.keys()], plain: [], row: undefined };
  return hasNames(row, layout, plain) && names.every((name) => fitsRow(row, name, members[name]));
}

describe('the members of a chunk', () => {
  const chunks = {
    chat: ['chat.completion.chunk', { delta: {}, index: 0, finish_reason: 'stop' }],
    completions: ['text_completion', { text: '', index: 0, finish_reason: 'stop' }],
    transcription: ['transcription.chunk', { delta: {} }],
  } as const;
  for (const id of ['chat', 'completions', 'transcription'] as const) {
    const { events, plain } = grammarOf({ id });
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
          Object.entries({ ...honest, ...more }).filter(([each]) => !Object.hasOwn(plain, each)),
        );
        assert.equal(passes(events!['chunk']!, plain, members), isHonest);
      });
    }
  }
});
