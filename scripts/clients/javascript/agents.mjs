/** OpenAI's agents with chat completions. */
import { Agent, OpenAIChatCompletionsModel, run, setTracingDisabled, tool } from '@openai/agents';
import OpenAI from 'openai';
import { z } from 'zod';
import { equal, failsInWords, OPENAI_URL, QUESTION, report, TWENTY } from './report.mjs';

setTracingDisabled(true);
const client = new OpenAI({ baseURL: OPENAI_URL, apiKey: 'placeholder', maxRetries: 0 });
const seen = [];
const weather = tool({
  name: 'get_weather',
  description: 'The weather',
  parameters: z.object({ city: z.string() }),
  execute({ city }) {
    seen.push(city);
    return 'sunny';
  },
});
const agent = (model, more = {}) =>
  new Agent({ name: 'a', model: new OpenAIChatCompletionsModel(client, model), ...more });
const stream = (it) => run(it, QUESTION, { stream: true });

await report({
  async whole() {
    equal((await run(agent('sim-echo'), QUESTION)).finalOutput, QUESTION);
  },
  async stream() {
    const result = await stream(agent('sim-20x0'));
    await result.completed;
    equal(result.finalOutput, TWENTY);
  },
  async loop() {
    const result = await stream(agent('sim-20x0'));
    let text = '';
    for await (const piece of result.toTextStream()) text += piece;
    equal(text, TWENTY);
  },
  async usage() {
    const result = await stream(agent('sim-20x0'));
    await result.completed;
    const { inputTokens, outputTokens } = result.state.usage;
    return [inputTokens, outputTokens];
  },
  async tools() {
    const result = await stream(agent('sim-tools', { tools: [weather] }));
    await result.completed;
    equal([result.finalOutput, seen], ['The tool has answered.', ['sim']]);
  },
  errors: () => failsInWords((model) => run(agent(model), QUESTION)),
  async abort() {
    const leaving = new AbortController();
    const result = await run(agent('sim-500x20'), QUESTION, { stream: true, signal: leaving.signal });
    for await (const _ of result.toTextStream()) {
      leaving.abort();
      break;
    }
  },
});
