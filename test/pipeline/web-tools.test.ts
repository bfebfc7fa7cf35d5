/**
 * Anthropic's web search in a request: refused by its type, in /v1/messages alone, before anything is sent.
 */
import assert from 'node:assert/strict';
import { after, before, beforeEach, describe, it } from 'node:test';
import { type Stack, startStack } from '../support/doors/stack.ts';

const OWN = '{"name":"web_search","description":"my own","input_schema":{"type":"object"}}';

const REFUSED: readonly [what: string, tools: string, named: string][] = [
  [
    'as the only tool',
    '[{"type":"web_search_20250305","name":"web_search","max_uses":8}]',
    'web_search_20250305',
  ],
  [
    'behind another tool',
    `[${OWN},{"name":"web_search","type":"web_search_20260209"}]`,
    'web_search_20260209',
  ],
  ['of a version that is no date', '[{"type":"web_search_latest","name":"s"}]', 'web_search_…'],
  [
    'with an escape in its type',
    String.raw`[{"type":"web\u005fsearch_20250305","name":"s"}]`,
    'web_search_20250305',
  ],
  [
    'with an escape in the key "type"',
    String.raw`[{"ty\u0070e":"web_search_20250305","name":"s"}]`,
    'web_search_20250305',
  ],
];

const PASSED: readonly [what: string, tools: string][] = [
  ['of that name, without a type', `[${OWN}]`],
  [
    'of that name, of type custom',
    '[{"type":"custom","name":"web_search_20250305","input_schema":{"type":"object"}}]',
  ],
  [
    'whose schema names it',
    '[{"name":"a","input_schema":{"type":"object","properties":{"type":{"type":"web_search_20250305"}}}}]',
  ],
  ['with its name in place of the type', '[{"type":null,"name":"web_search_20250305","input_schema":{}}]'],
  ['whose type begins with my_', '[{"type":"my_web_search_20250305","name":"a","input_schema":{}}]'],
];

describe("Anthropic's web search tool", () => {
  let stack: Stack;
  before(async () => {
    stack = await startStack();
  });
  after(() => stack?.close());
  beforeEach(() => stack.simulator.exchanges.clear());

  async function ask(path: string, tools: string) {
    const body = `{"model":"sim-echo","max_tokens":9,"tools":${tools},"messages":[{"role":"user","content":"x"}]}`;
    const headers = { 'content-type': 'application/json' };
    const response = await fetch(`${stack.url}${path}`, { method: 'POST', headers, body });
    return { status: response.status, text: await response.text() };
  }
  const sent = (): number => stack.simulator.exchanges.all().filter(({ method }) => method === 'POST').length;

  for (const [what, tools, named] of REFUSED) {
    it(`is refused by its type, with nothing sent: ${what}`, async () => {
      const { status, text } = await ask('/v1/messages', tools);
      const { error } = JSON.parse(text) as { error: { code: string; message: string; type: string } };
      assert.deepEqual(
        [status, error.type, error.code],
        [400, 'invalid_request_error', 'hosted_tool_refused'],
      );
      assert.ok(error.message.startsWith(`the service has no tool ${named}: `), error.message);
      assert.equal(sent(), 0);
    });
  }

  for (const [what, tools] of PASSED) {
    it(`is not recognised in a tool ${what}, which passes`, async () => {
      const { status, text } = await ask('/v1/messages', tools);
      assert.equal(status, 200, text);
      assert.equal(sent(), 1);
    });
  }

  it('passes in /v1/chat/completions, where the service judges it', async () => {
    const { status } = await ask('/v1/chat/completions', '[{"type":"web_search_20250305","name":"s"}]');
    assert.equal(status, 200);
  });
});
