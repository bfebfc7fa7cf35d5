/** Which errors about a full context window get other words, in which API style, and which stay. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { overflowBody } from '../../lib/pipeline/context-overflow.ts';
import { createTranslator } from '../../lib/responses-api/translator.ts';
import { chatBody, gatewayFixture, post } from '../support/doors/gateway-fixture.ts';
import { http, plainError, sealedAnswers } from '../support/remote/sealed-answers.ts';

const LIMIT = "This model's maximum context length is 65536 tokens";
const AT_LEAST = (output: number): string =>
  `${LIMIT}. However, you requested ${output} output tokens and your prompt contains at least ${Math.max(1, 65_537 - output)} input tokens, for a total of at least ${Math.max(65_537, 1 + output)} tokens. Please reduce the length of the input prompt or the number of requested output tokens.`;
const IN_MESSAGES = (prompt: number): string =>
  `${LIMIT}. However, you requested ${prompt + 32_000} tokens (${prompt} in the messages, 32000 in the completion). Please reduce the length of the messages or completion.`;
const TOO_LARGE = `'max_tokens' or 'max_completion_tokens' is too large: 32000. ${LIMIT} and your request has 40000 input tokens (32000 > 65536 - 40000).`;
const REDUCE = 'Please reduce the length of the input prompt or the number of requested output tokens.';
const COUNTED = `${LIMIT}. However, you requested 32000 output tokens and your prompt contains 40000 input tokens, for a total of 72000 tokens. ${REDUCE}`;
const ANY_CHARACTERS = `${LIMIT}. However, you requested 65536 output tokens and your prompt contains 31800 characters (more than 0 characters, which is the upper bound for 0 input tokens). ${REDUCE}`;
const PASSED = (output: number): string =>
  `You passed ${65_537 - output} input tokens and requested ${output} output tokens. However, the model's context length is only 65536 tokens, resulting in a maximum input length of ${65_536 - output} tokens. Please reduce the length of the input prompt.`;
const PASSED_CHARACTERS =
  "You passed 9000000 input characters and requested 32000 output tokens. However, the model's context length is only 65536 tokens, resulting in a maximum input length of 33536 tokens (at most 4292608 characters). Please reduce the length of the input prompt.";
const PARENTHESIS = "Input length (70000) exceeds model's maximum context length (65536).";
const DECODER =
  'The decoder prompt (length 70000) is longer than the maximum model length of 65536. Make sure that `max_model_len` is no smaller than the number of text tokens plus multimodal tokens.';
const PROMPT_ALONE = `${LIMIT}. However, your request has 70000 input tokens. Please reduce the length of the input messages.`;

const exceeds = (sum: string) => `input length and \`max_tokens\` exceed context limit: ${sum} > 65536`;

/** What vLLM says → what Anthropic's style says; undefined: `prompt is too long: `, then the same. */
const ROWS: readonly [what: string, said: string, shown: string | undefined][] = [
  ['the least size that the prompt can have', AT_LEAST(32_000), exceeds('49536 + 32000')],
  ['the least size, and half of the output is just enough', AT_LEAST(8000), exceeds('61536 + 8000')],
  ['the least size, and half of the output is too little', AT_LEAST(7999), undefined],
  ['the least size, and an output of more than two windows', AT_LEAST(140_000), exceeds('1 + 140000')],
  ['the sizes of prompt and output', IN_MESSAGES(40_000), exceeds('40000 + 32000')],
  ['the size of an output that is too large', TOO_LARGE, exceeds('40000 + 32000')],
  ['the size of a prompt that does not fit', PROMPT_ALONE, undefined],
  ['the size of the whole prompt, and of an output', COUNTED, exceeds('40000 + 32000')],
  ['the characters of a prompt, for which no token was left', ANY_CHARACTERS, exceeds('32768 + 65536')],
  ['the tokens that were passed, up to which it counted', PASSED(32_000), exceeds('49536 + 32000')],
  ['the characters that were passed', PASSED_CHARACTERS, undefined],
  ['the window in parentheses, as with gpt-oss', PARENTHESIS, undefined],
  ['the length of the decoder prompt, as with images', DECODER, undefined],
];

const bodyOf = (value: unknown): Buffer => Buffer.from(JSON.stringify(value));
const shownBy = (format: 'anthropic' | 'openai' | 'plain', body: unknown, status = 400): unknown => {
  const shown = overflowBody(bodyOf(body), status, format);
  return shown && JSON.parse(shown.toString());
};

describe('an error about a full context window', () => {
  for (const [what, message, sentence] of ROWS) {
    it(`${sentence === undefined ? 'says first that the prompt is too long' : 'asks for less output'} in the Anthropic style, and gets the code of OpenAI in the others, if it names ${what}`, () => {
      const error = { message, type: 'BadRequestError', param: 'input_tokens', code: 400 };
      assert.deepEqual(shownBy('anthropic', { type: 'error', error }), {
        type: 'error',
        error: {
          ...error,
          type: 'invalid_request_error',
          message: sentence ?? `prompt is too long: ${message}`,
        },
      });
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
    assert.equal(shownBy('openai', { error: { ...error, more: 'x'.repeat(65_536) } }), undefined);
  });
});

it('an error about a full context window gets other words through the gateway if it is sealed, and none in clear, since nobody has authenticated it', async (t) => {
  const message = AT_LEAST(32_000);
  const { upstream, ask } = await gatewayFixture(t, { deps: { createTranslator } });
  const errorOf = async (path: string, body = chatBody()): Promise<{ message: string; code?: string }> =>
    JSON.parse((await ask(post(body, { path }))).body).error;
  upstream.answers((request) => http(400, sealedAnswers(request).object({ error: { message } })));
  assert.equal((await errorOf('/v1/messages')).message, exceeds('49536 + 32000'));
  for (const error of [
    await errorOf('/v1/chat/completions'),
    await errorOf('/v1/responses', '{"model":"m","input":"x"}'),
  ])
    assert.equal(error.code, 'context_length_exceeded');
  upstream.answers(plainError(400, message));
  for (const path of ['/v1/messages', '/v1/chat/completions']) {
    const error = await errorOf(path);
    assert.deepEqual([error.message, error.code], [message, undefined]);
  }
});
