/**
 * The order that a chat completion demands: "an assistant message with 'tool_calls' must be followed by tool
 * messages responding to each 'tool_call_id'", whatever the order of the items.
 */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import { chatOf, type Json } from './chat-side.ts';

const user = (content: string): Json => ({ role: 'user', content });
const said = (content: string): Json => ({ role: 'assistant', content });
const thought = (text: string): Json => ({ type: 'reasoning', content: [{ type: 'reasoning_text', text }] });
const call = (id: string): Json => ({ type: 'function_call', call_id: id, name: 'f', arguments: '{}' });
const result = (id: string): Json => ({ type: 'function_call_output', call_id: id, output: `of ${id}` });

const messagesOf = (input: readonly Json[]): Json[] => chatOf({ input })['messages'];

/** A message on one line: role, reasoning, content, and the ids of calls. */
const line = ({ role, reasoning, content, tool_calls: calls, tool_call_id: id }: Json): string =>
  [role, reasoning && `(${reasoning})`, content, calls && `[${calls.map((one: Json) => one['id'])}]`, id]
    .filter((part) => part !== undefined)
    .join(' ');

const ORDERS: readonly [what: string, input: readonly Json[], messages: readonly string[]][] = [
  [
    'what the assistant says and thinks between and behind its calls is of their message',
    [said('I look.'), call('a'), said('\n'), thought('t'), call('b'), said(''), result('b'), result('a')],
    ['assistant (t) I look.\n\n [a,b]', 'tool of b b', 'tool of a a'],
  ],
  [
    'what others say while tools run stands behind the results',
    [
      ...[call('a'), thought('t'), user('quick'), { role: 'developer', content: 'note' }],
      ...[call('b'), result('a'), result('b')],
    ],
    [
      'assistant (t) [a,b]',
      'tool of a a',
      'tool of b b',
      'user quick',
      'user <application_instructions>\nnote\n</application_instructions>',
    ],
  ],
  [
    'what comes between the results of a turn is no new turn',
    [call('a'), call('b'), result('a'), thought('t'), said('x'), call('c'), result('c'), result('b')],
    ['assistant (t) x [a,b,c]', 'tool of a a', 'tool of c c', 'tool of b b'],
  ],
  [
    'a call whose last result is there begins a new turn',
    [call('a'), result('a'), thought('t'), call('b'), result('b'), said('x')],
    ['assistant [a]', 'tool of a a', 'assistant (t) [b]', 'tool of b b', 'assistant x'],
  ],
  [
    'a call without a result keeps nothing back',
    [call('a'), user('stop'), said('x'), call('b'), result('b'), user('go')],
    ['assistant [a]', 'user stop', 'assistant x [b]', 'tool of b b', 'user go'],
  ],
  [
    'an id that comes again is of the newer call, and a result without a call stays where it is',
    [call('a'), result('a'), call('a'), user('x'), result('a'), result('a'), result('b')],
    ['assistant [a]', 'tool of a a', 'assistant [a]', 'tool of a a', 'user x', 'tool of a a', 'tool of b b'],
  ],
  [
    'two texts without a call stay two messages, and reasoning behind which nothing comes is left out',
    [thought('t'), said('x'), thought('u'), said('y'), said(''), thought('v'), user('z'), said('')],
    ['assistant (t) x', 'assistant (u) y', 'user z', 'assistant '],
  ],
];

describe('the messages of a chat completion', () => {
  for (const [what, input, messages] of ORDERS) {
    it(what, () => assert.deepEqual(messagesOf(input).map(line), messages));
  }

  it('have the results of a turn behind the message with all its calls', () => {
    const other = fc.constantFrom(user, said, thought, (text: string) => ({
      role: 'developer',
      content: text,
    }));
    // Each call at a place, and its result at another one behind it.
    const calls = fc.array(fc.tuple(fc.nat(99), fc.nat(99)), { maxLength: 6 });
    const property = fc.property(fc.array(other, { maxLength: 12 }), calls, (others, places) => {
      const at: [place: number, item: Json][] = others.map((make, k) => [(100 * k) / 12, make(`o${k}`)]);
      for (const [k, [one, two]] of places.entries()) {
        at.push([Math.min(one, two) + 0.1, call(`c${k}`)], [Math.max(one, two) + 0.2, result(`c${k}`)]);
      }
      const input = [user('go'), ...at.toSorted(([a], [b]) => a - b).map(([, item]) => item)];
      const messages = messagesOf(input);

      let open = new Set<string>();
      for (const { role, tool_calls: made = [], tool_call_id: id } of messages) {
        if (role === 'tool') assert.ok(open.delete(id), `the result ${id} follows no call`);
        else {
          assert.equal(open.size, 0, `${[...open]} have no result behind them`);
          open = new Set(made.map((one: Json) => one['id']));
        }
      }
      assert.equal(open.size, 0);
    });
    fc.assert(property, { seed: 20261130, numRuns: 300 });
  });
});
