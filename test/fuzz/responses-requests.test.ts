import assert from 'node:assert/strict';
import { it } from 'node:test';
import fc from 'fast-check';
import { ENDPOINTS } from '../../lib/api/endpoints.ts';
import { PrivatemodeError } from '../../lib/errors.ts';
import { bodyReader } from '../../lib/pipeline/request-body.ts';
import { writeReasoning } from '../../lib/responses-api/response-object.ts';
import { translateRequest } from '../responses-api/chat-side.ts';

const text = fc.oneof(fc.string({ unit: 'binary', maxLength: 30 }), fc.constantFrom('', '"\ud800', '</s>'));
/** Names that need a digest, look like one, collide with one another, or are special to objects. */
const name = fc.oneof(
  fc.constantFrom('f', 'a.b', 'a_b', 'a-b', '__proto__', 'constructor', 'tool_search', 'n__f', '', 'é'),
  fc.tuple(fc.constantFrom('x'.repeat(80), 'f.', 'é'), fc.nat(3)).map(([beginning, n]) => beginning + n),
  fc.nat(20).map((n) => `a_b_0${n}000000_${n}`),
);
const any = fc.dictionary(
  fc.constantFrom('type', '__proto__', 'enum', 'content'),
  fc.jsonValue({ maxDepth: 3 }),
);
const is = fc.constant;

const fn = fc.record({ type: is('function'), name, parameters: any, description: text });
const format = fc.record({ type: is('grammar'), syntax: is('lark'), definition: text });
const custom = fc.record({ type: is('custom'), name, description: text, format });
const tool = fc.oneof(fn, custom, fc.record({ type: name, content: any }));
const namespace = fc.record({ type: is('namespace'), name, tools: fc.array(tool, { maxLength: 4 }) });
const tools = fc.array(fc.oneof(tool, namespace), { maxLength: 12 });

const part = fc.record({ type: fc.constantFrom('input_text', 'output_text'), text, annotations: any });
const content = fc.oneof(text, fc.array(part, { maxLength: 5 }));
const role = fc.constantFrom('user', 'assistant', 'system', 'developer');
const ofClient = { execution: is('client'), call_id: is('c') };
const item = fc.oneof(
  fc.record({ role, content, x: any }),
  fc.record({ type: is('function_call'), call_id: text, name, arguments: text }),
  fc.record({ type: is('custom_tool_call'), call_id: is('c'), name, namespace: name, input: text }),
  fc.record({ type: is('tool_search_call'), ...ofClient, arguments: any }),
  fc.record({ type: is('function_call_output'), call_id: text, output: content }),
  fc.record({ type: is('tool_search_output'), ...ofClient, tools }),
  fc.record({ type: is('additional_tools'), tools }),
  fc.record({ type: is('reasoning'), content: fc.array(text, { maxLength: 4 }) }),
  fc.record({ type: is('reasoning'), encrypted_content: text.map(writeReasoning) }),
);
const request = fc.record({
  model: is('m'),
  instructions: text,
  metadata: any,
  temperature: fc.constantFrom(0, 0.1, 1e-7),
  tools,
  tool_choice: fc.oneof(is('auto'), is('none'), fc.record({ type: is('function'), name })),
  input: fc.oneof(text, fc.array(item, { maxLength: 30 })),
});

it('a Responses request becomes a chat request that chat takes, or is refused with 400 or 413', () => {
  const chat = ENDPOINTS.find(({ id }) => id === 'chat')!;
  const counts = { translated: 0, refused: 0 };
  const property = fc.property(request, (asked) => {
    let made: Buffer;
    try {
      made = translateRequest(Buffer.from(JSON.stringify(asked))).chat;
      counts.translated += 1;
    } catch (thrown) {
      assert.ok(thrown instanceof PrivatemodeError && [400, 413].includes(thrown.status), String(thrown));
      counts.refused += 1;
      return;
    }
    bodyReader(chat, undefined)!(made, {});
  });
  fc.assert(property, { seed: 20261126, numRuns: 300 });
  assert.ok(Math.min(counts.translated, counts.refused) > 20, JSON.stringify(counts));
});
