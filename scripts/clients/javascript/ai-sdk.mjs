/** The AI SDK with either provider; the argument says which. */
import { createAnthropic } from '@ai-sdk/anthropic';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { generateText, isStepCount, stepCountIs, streamText, tool } from 'ai';
import { z } from 'zod';
import { ANTHROPIC_URL, equal, failsInWords, OPENAI_URL, QUESTION, report, TWENTY } from './report.mjs';

const PROVIDERS = {
  openai: createOpenAICompatible({
    name: 'privatemode',
    baseURL: OPENAI_URL,
    apiKey: 'placeholder',
    includeUsage: true,
  }),
  anthropic: createAnthropic({ baseURL: `${ANTHROPIC_URL}/v1`, apiKey: 'placeholder' }),
};
const provider = PROVIDERS[process.argv[2]];
const asked = (model, more = {}) => ({ model: provider(model), prompt: QUESTION, maxRetries: 0, ...more });
const seen = [];
const tools = {
  get_weather: tool({
    description: 'The weather',
    inputSchema: z.object({ city: z.string() }),
    execute({ city }) {
      seen.push(city);
      return 'sunny';
    },
  }),
};

await report({
  async whole() {
    equal((await generateText(asked('sim-echo'))).text, QUESTION);
  },
  async stream() {
    equal(await streamText(asked('sim-20x0')).text, TWENTY);
  },
  async loop() {
    let text = '';
    for await (const piece of streamText(asked('sim-20x0')).textStream) text += piece;
    equal(text, TWENTY);
  },
  async usage() {
    const { inputTokens, outputTokens } = await streamText(asked('sim-20x0')).usage;
    return [inputTokens, outputTokens];
  },
  async tools() {
    const stopWhen = (isStepCount ?? stepCountIs)(3);
    equal(await streamText(asked('sim-tools', { tools, stopWhen })).text, 'The tool has answered.');
    equal(seen, ['sim']);
  },
  errors: () => failsInWords((model) => generateText(asked(model))),
  async abort() {
    const leaving = new AbortController();
    for await (const _ of streamText(asked('sim-500x20', { abortSignal: leaving.signal })).textStream) {
      leaving.abort();
      break;
    }
  },
});
