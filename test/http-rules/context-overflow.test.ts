/** Which errors about a full context window get other words, in which API style, and which stay. */
import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { overflowBody } from '../../lib/http-rules/context-overflow.ts';
import { type Stack, startStack } from '../support/doors/stack.ts';

const LIMIT = "This model's maximum context length is 65536 tokens";
const AT_LEAST = (output: number): string =>
  `${LIMIT}. However, you requested ${output} output tokens and your prompt contains at least ${Math.max(1, 65_537 - output)} input tokens, for a total of at least ${Math.max(65_537, 1 + output)} tokens. Please reduce the length of the input prompt or the number of requested output tokens.`;
const IN_MESSAGES = (prompt: number): string =>
  `${LIMIT}. However, you requested ${prompt + 32_000} tokens (${prompt} in the messages, 32000 in the completion). Please reduce the length of the messages or completion.`;
const TOO_LARGE = `'max_tokens' or 'max_completion_tokens' is too large: 32000. ${LIMIT} and your request has 40000 input tokens (32000 > 65536 - 40000).`;
const PROMPT_ALONE = `${LIMIT}. However, your request has 70000 input tokens. Please reduce the length of the input messages.`;

const exceeds = (sum: string) => `input length and \`max_tokens\` exceed context limit: ${sum} > 65536`;

/** What vLLM says → what Anthropic's style says in its place; undefined: the same. */
const ROWS: readonly [what: string, said: string, shown: string | undefined][] = [
  ['the least size that the prompt can have', AT_LEAST(32_000), exceeds('49536 + 32000')],
  [
    'the least size of the prompt, and half of the output is just enough',
    AT_LEAST(8000),
    exceeds('61536 + 8000'),
  ],
  ['the least size of the prompt, and half of the output is too little', AT_LEAST(7999), undefined],
  ['the least size of the prompt, without any output', AT_LEAST(0), undefined],
  [
    'the least size of the prompt, and the output is more than two windows',
    AT_LEAST(140_000),
    exceeds('1 + 140000'),
  ],
  ['the sizes of prompt and output', IN_MESSAGES(40_000), exceeds('40000 + 32000')],
  ['the sizes of prompt and output, and the prompt leaves no room', IN_MESSAGES(61_537), undefined],
  ['the sizes of prompt and output, and the prompt alone does not fit', IN_MESSAGES(70_000), undefined],
  ['the size of an output that is too large', TOO_LARGE, exceeds('40000 + 32000')],
  ['the size of a prompt that does not fit', PROMPT_ALONE, undefined],
];

const bodyOf = (value: unknown): Buffer => Buffer.from(JSON.stringify(value));
const shownBy = (format: 'anthropic' | 'openai' | 'plain', body: unknown, status = 400): unknown => {
  const shown = overflowBody(bodyOf(body), status, format);
  return shown && JSON.parse(shown.toString());
};

describe('an error about a full context window', () => {
  for (const [what, message, sentence] of ROWS) {
    it(`${sentence === undefined ? 'keeps its words' : 'gets the sentence of Anthropic'} in the Anthropic style if it names ${what}`, () => {
      const error = { type: 'BadRequestError', message };
      const shown = sentence && {
        type: 'error',
        error: { type: 'invalid_request_error', message: sentence },
      };
      assert.deepEqual(shownBy('anthropic', { type: 'error', error }), shown);
    });

    it(`gets the code of OpenAI and keeps its words in the OpenAI styles if it names ${what}`, () => {
      const error = { message, type: 'BadRequestError', param: 'input_tokens', code: 400 };
      assert.deepEqual(shownBy('openai', { error }), {
        error: { ...error, type: 'invalid_request_error', code: 'context_length_exceeded' },
      });
    });
  }

  it('is left unchanged with another status or API style, with other words or JSON, or if it is long', () => {
    const error = { message: AT_LEAST(32_000) };
    assert.notEqual(shownBy('openai', { error }), undefined);
    assert.equal(shownBy('openai', { error }, 500), undefined);
    assert.equal(shownBy('plain', { error }), undefined);
    for (const other of [
      { error: { message: 'The model `m` does not exist.' } },
      { error: { message: 7 } },
      { error: AT_LEAST(32_000) },
      { error: null },
      { message: AT_LEAST(32_000) },
      null,
    ]) {
      assert.equal(shownBy('openai', other), undefined, JSON.stringify(other));
    }
    assert.equal(overflowBody(Buffer.from(AT_LEAST(32_000)), 400, 'openai'), undefined);
    assert.equal(shownBy('openai', { error: { ...error, more: 'x'.repeat(65_536) } }), undefined);
  });
});

describe('a full context window through the gateway', () => {
  let stack: Stack;
  before(async () => {
    stack = await startStack({ flags: ['--responses-api'] });
  });
  after(() => stack?.close());

  const ask = async (
    path: string,
    members: object,
  ): Promise<{ status: number; error: Record<string, string> }> => {
    const headers = { 'content-type': 'application/json' };
    const body = JSON.stringify({ model: 'sim-64k', ...members });
    const response = await fetch(`${stack.url}${path}`, { method: 'POST', headers, body });
    return {
      status: response.status,
      error: ((await response.json()) as { error: Record<string, string> }).error,
    };
  };
  const prompt = 'abc '.repeat(40_000);
  const messages = [{ role: 'user', content: prompt }];

  it('gives a 400 with the sentence of Anthropic in /v1/messages, and with the error code of OpenAI in /v1/chat/completions and /v1/responses', async () => {
    const anthropic = await ask('/v1/messages', { max_tokens: 32_000, messages });
    assert.deepEqual(
      [anthropic.status, anthropic.error['message']],
      [400, 'input length and `max_tokens` exceed context limit: 49536 + 32000 > 65536'],
    );
    for (const { status, error } of [
      await ask('/v1/chat/completions', { max_tokens: 32_000, messages }),
      await ask('/v1/responses', { max_output_tokens: 32_000, input: prompt }),
    ])
      assert.deepEqual([status, error['code']], [400, 'context_length_exceeded']);
  });

  it('keeps the words of an error in clear, since nobody has authenticated them', async (t) => {
    stack.simulator.faults.set('inference', 'plain_marked');
    t.after(() => stack.simulator.faults.clear());
    const chat = await ask('/v1/chat/completions', { max_tokens: 32_000, messages });
    const anthropic = await ask('/v1/messages', { max_tokens: 32_000, messages });
    for (const { status, error } of [chat, anthropic]) {
      assert.equal(status, 400);
      assert.match(error['message'] ?? '', /^This model's maximum context length is 65536 tokens/);
    }
    assert.notEqual(chat.error['code'], 'context_length_exceeded');
  });
});
