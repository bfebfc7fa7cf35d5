/**
 * Requests of the Responses API with lists of every kind, of unusual names and texts, written in unusual
 * ways.
 */

import assert from 'node:assert/strict';
import { it } from 'node:test';
import fc from 'fast-check';
import { ENDPOINTS } from '../../lib/api/endpoints.ts';
import { PrivatemodeError } from '../../lib/errors.ts';
import { bodyReader } from '../../lib/pipeline/request-body.ts';
import { writeReasoning } from '../../lib/responses-api/response-object.ts';
import { translateRequest } from '../responses-api/chat-side.ts';

const LENGTHS = [0, 1, 30, 9_000];
const UNITS = ['x', '"', '\\', '\n', '\u0001', '\u00e9', '\u2028', '\ud83d\ude00', '\ud800', '/', '</s>'];
const text = fc
  .tuple(fc.constantFrom(...UNITS), fc.constantFrom(...UNITS), fc.constantFrom(...LENGTHS))
  .map(([first, unit, length]) => `${first}${unit.repeat(length / unit.length)}`);

/** Names that need a digest, look like one, collide with one another, or are special to objects. */
const name = fc.oneof(
  fc.constantFrom('f', 'a.b', 'a_b', 'a-b', '__proto__', 'constructor', 'tool_search', 'n__f', '', 'é'),
  fc.tuple(fc.constantFrom('x'.repeat(80), 'f.', 'é'), fc.nat(3)).map(([beginning, n]) => beginning + n),
  fc.nat(20).map((n) => `a_b_0${n}000000_${n}`),
);

const NUMBERS = [0, 1.5, -1e300, 2 ** 53, null, true, [], {}, [[]], { a: { a: [0] } }];
const rest = fc.record(
  {
    type: fc.constantFrom('object', 'other'),
    ['__proto__']: fc.constantFrom(...NUMBERS),
    enum: fc.array(fc.oneof(fc.constantFrom(...NUMBERS), text), { maxLength: 30 }),
    content: fc.constantFrom(...NUMBERS),
  },
  { requiredKeys: [] },
);

const fn = fc.record({ type: fc.constant('function'), name, parameters: rest, description: text });
const custom = fc.record({
  type: fc.constant('custom'),
  name,
  description: text,
  format: fc.record({ type: fc.constant('grammar'), syntax: fc.constant('lark'), definition: text }),
});
const namespace = fc.record({
  type: fc.constant('namespace'),
  name,
  tools: fc.array(fc.oneof(fn, custom), { maxLength: 4 }),
});
const hosted = fc.record({ type: name, content: rest });
const tools = fc.array(fc.oneof(fn, custom, namespace, hosted), { maxLength: 12 });

const kind = fc.constant;
const part = fc.record({ type: fc.constantFrom('input_text', 'output_text'), text, annotations: rest });
const content = fc.oneof(text, fc.array(part, { maxLength: 5 }));
const client = kind('client');
const item = fc.oneof(
  fc.record({ role: fc.constantFrom('user', 'assistant', 'system', 'developer'), content, x: rest }),
  fc.record({ type: kind('function_call'), call_id: text, name, arguments: text }),
  fc.record({ type: kind('custom_tool_call'), call_id: kind('c'), name, namespace: name, input: text }),
  fc.record({ type: kind('tool_search_call'), execution: client, call_id: kind('c'), arguments: rest }),
  fc.record({ type: kind('function_call_output'), call_id: text, output: content }),
  fc.record({ type: kind('tool_search_output'), execution: client, call_id: kind('c'), tools }),
  fc.record({ type: kind('additional_tools'), tools }),
  fc.record({ type: kind('reasoning'), content: fc.array(text, { maxLength: 4 }) }),
  fc.record({ type: kind('reasoning'), encrypted_content: text.map(writeReasoning) }),
);

const request = fc.record({
  model: kind('m'),
  instructions: text,
  metadata: rest,
  temperature: fc.constantFrom(0, 0.1, 1e-7),
  tools,
  tool_choice: fc.oneof(kind('auto'), kind('none'), fc.record({ type: kind('function'), name })),
  input: fc.oneof(text, fc.array(item, { maxLength: 30 })),
});

const escaped = (string: string): string =>
  string.replace(/\\u....|\\.|[a-z]/g, (found) =>
    found.length > 1 ? found : `\\u00${found.charCodeAt(0).toString(16)}`,
  );
/** Ways to write the same JSON. */
const STYLES: readonly ((value: unknown) => string)[] = [
  (value) => JSON.stringify(value),
  (value) => JSON.stringify(value, null, '\t').replaceAll('\n', '\r\n'),
  (value) => JSON.stringify(value).replace(/"(?:[^"\\]|\\.)*"/g, escaped),
];

const chat = ENDPOINTS.find(({ id }) => id === 'chat')!;

/** The chat request, or the code of the refusal. */
function translate(body: Buffer) {
  try {
    const { chat, context } = translateRequest(body);
    return { chat, echo: JSON.parse(`{${context.echo}}`) as unknown };
  } catch (thrown) {
    assert.ok(thrown instanceof PrivatemodeError && [400, 413].includes(thrown.status), String(thrown));
    return { code: `${thrown.code} ${thrown.api?.param}` };
  }
}

it('a Responses request becomes the same chat request however it is written, and chat takes it', () => {
  const counts = { translated: 0, refused: 0 };
  const property = fc.property(request, (asked) => {
    const found = STYLES.map((style) => translate(Buffer.from(style(asked))));
    const [plain, ...others] = found;
    const read = ({ chat: made, code, echo }: ReturnType<typeof translate>) =>
      made === undefined ? code : { chat: made.toString(), echo };
    for (const other of others) assert.deepEqual(read(other), read(plain!));
    counts[plain!.chat === undefined ? 'refused' : 'translated'] += 1;
    if (plain!.chat === undefined) return;
    bodyReader(chat, undefined)!(plain!.chat, {});
  });
  fc.assert(property, { seed: 20261126, numRuns: 60 });
  assert.ok(Math.min(counts.translated, counts.refused) > 5, JSON.stringify(counts));
});
