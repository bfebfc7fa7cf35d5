/** In which order the events of a stream come, and when the event that ends it would be true. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { blocksOrder, chunksOrder } from '../../lib/pipeline/event-order.ts';

type Event = readonly [type: string, content?: unknown, index?: unknown];
type Outcome = 'complete' | 'unfinished' | 'refused';
const audioOrder = (wanted: number) => chunksOrder(wanted, true);

function outcomeOf(order: typeof audioOrder, wanted: number, events: readonly Event[]): Outcome {
  const take = order(wanted);
  let isComplete = false;
  try {
    for (const [type, content, index] of events) isComplete = take(type, content, index);
  } catch (error) {
    assert.equal((error as { code: string }).code, 'response_not_authentic');
    return 'refused';
  }
  return isComplete ? 'complete' : 'unfinished';
}

const chunk = (...choices: object[]): Event => ['chunk', choices];
const part = (index: unknown, finish_reason: string | null = null) => ({
  index,
  delta: { content: 'x' },
  finish_reason,
});
const role = (index: number, delta: object = { role: 'assistant', content: '' }) => ({ index, delta });
const CLOSING = chunk();
const END = part(0, 'stop');

describe('a stream of chunks', () => {
  const rows: readonly [string, Outcome, number, readonly Event[]][] = [
    ['its finish', 'complete', 1, [chunk(part(0)), chunk(END)]],
    ['its finish and the closing chunk', 'complete', 1, [chunk(part(0)), chunk(END), CLOSING]],
    ['a chunk without choices first', 'complete', 1, [CLOSING, chunk(part(0)), chunk(END), CLOSING]],
    ['no finish', 'unfinished', 1, [chunk(part(0))]],
    ['no finish but the closing chunk', 'unfinished', 1, [chunk(part(0)), CLOSING]],
    ['no finish but a nested one', 'unfinished', 1, [chunk({ index: 0, delta: { finish_reason: 'stop' } })]],
    ['content after the finish', 'refused', 1, [chunk(END), chunk(part(0))]],
    ['two finishes', 'refused', 1, [chunk(END), chunk(END)]],
    ['content after the closing chunk', 'refused', 1, [chunk(END), CLOSING, chunk(part(0))]],
    ['two closing chunks', 'refused', 1, [chunk(END), CLOSING, CLOSING]],
    ['a role and the closing chunk', 'complete', 1, [chunk(role(0)), CLOSING]],
    ['a role alone', 'unfinished', 1, [chunk(role(0))]],
    ['a role twice', 'unfinished', 1, [chunk(role(0)), chunk(role(0)), CLOSING]],
    ['a role, content and no finish', 'unfinished', 1, [chunk(role(0)), chunk(part(0)), CLOSING]],
    ['the finish of one of two', 'unfinished', 2, [chunk(part(0)), chunk(part(1)), chunk(END)]],
    ['the finishes of two in any order', 'complete', 2, [chunk(part(1)), chunk(part(1, 'stop')), chunk(END)]],
    ['a choice that never began', 'unfinished', 2, [chunk(END), CLOSING]],
    ['one role of two', 'unfinished', 2, [chunk(role(0)), CLOSING]],
    ['two roles and the closing chunk', 'unfinished', 2, [chunk(role(0)), chunk(role(1)), CLOSING]],
    ['a role beside a finish', 'unfinished', 2, [chunk(role(0)), chunk(role(1)), chunk(END), CLOSING]],
    ['a finish that comes twice', 'refused', 2, [chunk(END), chunk(END)]],
    ['a choice that was not asked for', 'refused', 1, [chunk(part(1))]],
    ['one more choice at the end', 'refused', 2, [chunk(END), chunk(part(1, 'stop')), chunk(part(2))]],
    ['a choice that goes on', 'refused', 2, [chunk(END), chunk(part(1, 'stop')), chunk(part(1))]],
    ['the finish of choice 1 of 11', 'unfinished', 12, [chunk(part(11)), chunk(part(1, 'stop'))]],
    ['all finishes in one event', 'complete', 2, [chunk(part(0), part(1)), chunk(END, part(1, 'length'))]],
    ['a finished choice in the next finish', 'refused', 2, [chunk(END), chunk(part(0), part(1, 'stop'))]],
    ...[-1, 0.5, '0', null, undefined].map((index): [string, Outcome, number, Event[]] => [
      `the index ${JSON.stringify(index)}`,
      'refused',
      2,
      [chunk(part(index))],
    ]),
  ];
  for (const [name, outcome, wanted, events] of rows) {
    it(`of ${wanted} is ${outcome} with ${name}`, () => {
      assert.equal(outcomeOf(chunksOrder, wanted, events), outcome);
    });
  }

  it('has no token yet only where its first delta names a role and is empty otherwise', () => {
    for (const [delta, outcome] of [
      [{ role: 'assistant', content: null, refusal: null }, 'complete'],
      [{ role: 'assistant' }, 'complete'],
      [{ role: null, content: '' }, 'unfinished'],
      [{ content: '' }, 'unfinished'],
      [{ role: 'assistant', content: 0 }, 'unfinished'],
      [{ role: 'assistant', content: 'x' }, 'unfinished'],
      [null, 'unfinished'],
    ] as const) {
      assert.equal(outcomeOf(chunksOrder, 1, [chunk({ index: 0, delta }), CLOSING]), outcome);
    }
  });

  it('comes to its end with the closing chunk in a transcription, whatever number of stretches has finished', () => {
    const audio = [chunk(part(0)), chunk(END), chunk(part(0)), chunk(END)];
    assert.equal(outcomeOf(audioOrder, 1, [...audio, CLOSING]), 'complete');
    assert.equal(outcomeOf(audioOrder, 1, audio), 'unfinished');
    assert.equal(outcomeOf(audioOrder, 1, [CLOSING]), 'unfinished');
    assert.equal(outcomeOf(audioOrder, 1, [...audio, CLOSING, chunk(part(0))]), 'refused');
  });
});

describe('a stream of blocks', () => {
  const start: Event = ['message_start', {}];
  const begin = (index = 0): Event => ['content_block_start', undefined, index];
  const delta = (index = 0): Event => ['content_block_delta', undefined, index];
  const stop = (index = 0): Event => ['content_block_stop', undefined, index];
  const more: Event = ['message_delta', { stop_reason: null }];
  const finish: Event = ['message_delta', { stop_reason: 'end_turn' }];
  const ping: Event = ['ping'];
  const block = [begin(), delta(), delta(), stop()];
  const rows: readonly [string, Outcome, readonly Event[]][] = [
    ['two blocks', 'complete', [start, ...block, begin(1), delta(1), stop(1), finish]],
    ['no block', 'complete', [start, finish]],
    ['a block without deltas', 'complete', [start, begin(), stop(), finish]],
    ['several deltas of the message', 'complete', [start, ...block, more, finish]],
    ['pings anywhere', 'complete', [ping, start, ping, begin(), ping, stop(), ping, finish, ping]],
    ['no event', 'unfinished', []],
    ['a start alone', 'unfinished', [start]],
    ['a block and no finish', 'unfinished', [start, ...block]],
    ['a delta of the message without a reason', 'unfinished', [start, more]],
    ['no start', 'refused', [...block, finish]],
    ['two starts', 'refused', [start, start, finish]],
    ['a start after a block', 'refused', [start, ...block, start, finish]],
    ['a first block with the index 1', 'refused', [start, begin(1), stop(1), finish]],
    ['a block that begins twice', 'refused', [start, begin(), begin(), stop(), finish]],
    ['block 0 once more', 'refused', [start, ...block, ...block, finish]],
    ['a delta of another block', 'refused', [start, begin(), delta(1), stop(), finish]],
    ['a delta without a block', 'refused', [start, delta(), finish]],
    ['the end of another block', 'refused', [start, begin(), stop(1), finish]],
    ['an end without a block', 'refused', [start, stop(), finish]],
    ['a finish in an open block', 'refused', [start, begin(), delta(), finish]],
    ['a block after a delta of the message', 'refused', [start, more, begin(), stop(), finish]],
    ['a block after the finish', 'refused', [start, finish, begin(), stop(), finish]],
    ['two finishes', 'refused', [start, finish, finish]],
  ];
  for (const [name, outcome, events] of rows) {
    it(`is ${outcome} with ${name}`, () => assert.equal(outcomeOf(blocksOrder, 1, events), outcome));
  }
});
