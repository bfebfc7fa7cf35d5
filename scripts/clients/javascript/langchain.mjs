/** LangChain with either provider; the argument says which. */
import { ChatAnthropic } from '@langchain/anthropic';
import { ChatOpenAI } from '@langchain/openai';
import { ANTHROPIC_URL, equal, failsInWords, OPENAI_URL, QUESTION, report, TWENTY } from './report.mjs';

const PROVIDERS = {
  openai: (model, more) =>
    new ChatOpenAI({
      model,
      apiKey: 'placeholder',
      configuration: { baseURL: OPENAI_URL },
      useResponsesApi: false,
      maxRetries: 0,
      ...more,
    }),
  anthropic: (model) =>
    new ChatAnthropic({
      model,
      apiKey: 'placeholder',
      anthropicApiUrl: ANTHROPIC_URL,
      maxRetries: 0,
      maxTokens: 1000,
    }),
};
const chat = PROVIDERS[process.argv[2]];
const TOOL = {
  type: 'function',
  function: {
    name: 'get_weather',
    description: 'The weather',
    parameters: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] },
  },
};

async function gather(model) {
  let whole;
  for await (const chunk of await model.stream(QUESTION)) whole = whole?.concat(chunk) ?? chunk;
  return whole;
}

await report({
  async whole() {
    equal((await chat('sim-echo').invoke(QUESTION)).text, QUESTION);
  },
  async stream() {
    equal((await gather(chat('sim-20x0'))).text, TWENTY);
  },
  async loop() {
    let text = '';
    for await (const chunk of await chat('sim-20x0').stream(QUESTION)) text += chunk.text;
    equal(text, TWENTY);
  },
  async usage() {
    if (process.argv[2] === 'openai') {
      equal((await gather(chat('sim-20x0', { streamUsage: false }))).usage_metadata, undefined);
    }
    const { input_tokens, output_tokens } = (await gather(chat('sim-20x0'))).usage_metadata;
    return [input_tokens, output_tokens];
  },
  async tools() {
    const [call] = (await gather(chat('sim-tools').bindTools([TOOL]))).tool_calls;
    equal([call.name, call.args], ['get_weather', { city: 'sim' }]);
  },
  errors: () => failsInWords((model) => chat(model).invoke(QUESTION)),
  async abort() {
    for await (const _ of await chat('sim-500x20').stream(QUESTION)) break;
  },
});
