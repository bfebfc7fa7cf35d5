/** What a conversation says survives the way to chat and back: text, calls, ids and order. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import { chatEvents, type Json, run, translated, translatorOf } from './chat-side.ts';

const text = fc.string({ unit: 'binary', minLength: 1, maxLength: 30 });
const name = fc.oneof(
  fc.string({ unit: 'binary', minLength: 1, maxLength: 90 }),
  fc.constantFrom('__proto__', 'constructor', 'f', 'f__f', 'tool_search', 'toString'),
);
/** Those that come back as they are: a JSON object, written in any way. */
const args = fc
  .tuple(fc.dictionary(text, fc.jsonValue()), fc.constantFrom('', ' ', '\n\t'), fc.nat(2))
  .map(([value, blanks, indent]) => `${blanks}${JSON.stringify(value, null, indent)}${blanks}`);

const named = { name, namespace: fc.option(name, { nil: undefined }) };
const call = fc.oneof(
  fc.record({ type: fc.constant('function_call'), ...named, arguments: args }),
  fc.record({ type: fc.constant('custom_tool_call'), ...named, input: text }),
  fc.record({
    type: fc.constant('tool_search_call'),
    execution: fc.constant('client'),
    arguments: fc.dictionary(fc.string(), fc.integer()),
  }),
);

const turn = fc
  .record({
    user: text,
    reasoning: fc.option(text, { nil: undefined }),
    message: fc.option(text, { nil: undefined }),
    calls: fc.array(call, { maxLength: 4 }),
    results: fc.array(text, { minLength: 4, maxLength: 4 }),
  })
  .filter(({ message, calls }) => message !== undefined || calls.length > 0);

type Turn = typeof turn extends fc.Arbitrary<infer T> ? T : never;

/** The items of the model in a turn, as a client sends them back. */
const itemsOf = ({ reasoning, message, calls }: Turn, at: number): Json[] => [
  ...(reasoning === undefined
    ? []
    : [{ type: 'reasoning', summary: [], content: [{ type: 'reasoning_text', text: reasoning }] }]),
  ...(message === undefined
    ? []
    : [{ type: 'message', role: 'assistant', content: [{ type: 'output_text', text: message }] }]),
  ...calls.map((item, k) => ({ ...item, call_id: `call ${at} ${k}` })),
];

const OUTPUTS: Json = {
  function_call: 'function_call_output',
  custom_tool_call: 'custom_tool_call_output',
  tool_search_call: 'tool_search_output',
};

/** What an item says, without what each side adds of its own. */
function said(item: Json): Json {
  const { type, call_id, name: called, namespace, arguments: given, input, content } = item;
  return JSON.parse(
    JSON.stringify({ type, call_id, called, namespace, given, input, text: content?.[0].text }),
  );
}

function toolOf({ type, name: called, namespace }: Json): Json {
  if (type === 'tool_search_call') return { type: 'tool_search', execution: 'client' };
  const tool = { type: type === 'function_call' ? 'function' : 'custom', name: called };
  return namespace === undefined ? tool : { type: 'namespace', name: namespace, tools: [tool] };
}

describe('a conversation that goes from Responses to chat and back', () => {
  it('keeps text, calls, ids and order', () => {
    fc.assert(
      fc.property(
        fc.array(turn, { minLength: 1, maxLength: 4 }),
        fc.boolean(),
        fc.boolean(),
        (turns, listed, streams) => {
          const items = turns.map(itemsOf);
          const input = turns.flatMap(({ user, results }, at) => [
            { role: 'user', content: user },
            ...items[at]!,
            ...items[at]!.filter(({ call_id }) => call_id).map(({ type, call_id }, k) => ({
              type: OUTPUTS[type],
              call_id,
              execution: 'client',
              output: results[k],
              tools: [],
            })),
          ]);
          const request = {
            input,
            ...(listed && {
              tools: items
                .flat()
                .filter(({ call_id }) => call_id)
                .map(toolOf),
            }),
          };
          const { chat } = translated(request);
          const { messages } = JSON.parse(chat.toString()) as { messages: Json[] };

          assert.deepEqual(
            messages.filter(({ role }) => role === 'user').map(({ content }) => content),
            turns.map(({ user }) => user),
          );
          const ids = items.flat().flatMap(({ call_id }) => call_id ?? []);
          assert.deepEqual(
            messages.filter(({ role }) => role === 'tool').map(({ tool_call_id }) => tool_call_id),
            ids,
          );
          const told = messages.filter(({ role }) => role === 'assistant');
          assert.equal(told.length, turns.length);
          for (const [at, message] of told.entries()) {
            const output = streams ? streamed(message, request) : whole(message, request);
            assert.deepEqual(output.map(said), items[at]!.map(said));
          }
        },
      ),
      { seed: 20261124, numRuns: 120 },
    );
  });
});

/** The service repeats a message, as a stream of small pieces. */
function streamed({ reasoning, content, tool_calls: calls = [] }: Json, request: Json): Json[] {
  const deltas = [
    ...[...(reasoning ?? '')].map((piece) => ({ reasoning: piece, reasoning_content: piece })),
    ...[...(content ?? '')].map((piece) => ({ content: piece })),
    ...calls.flatMap(({ id, function: of }: Json, index: number) => [
      { tool_calls: [{ index, id, type: 'function', function: { name: of.name, arguments: '' } }] },
      ...[...of.arguments].map((piece) => ({ tool_calls: [{ index, function: { arguments: piece } }] })),
    ]),
  ];
  const { events } = run(chatEvents(deltas, calls.length > 0 ? 'tool_calls' : 'stop'), request);
  return events.at(-1)!['response'].output;
}

function whole(message: Json, request: Json): Json[] {
  const chat = { choices: [{ index: 0, message, finish_reason: 'stop' }] };
  return JSON.parse(
    translatorOf(request)
      .body(Buffer.from(JSON.stringify(chat)))
      .toString(),
  ).output;
}
