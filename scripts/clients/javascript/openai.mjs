/** OpenAI's own client; the argument is the package. */
import { equal, failsInWords, OPENAI_URL, QUESTION, report, TWENTY } from './report.mjs';

const { default: OpenAI } = await import(process.argv[2]);
const client = new OpenAI({ baseURL: OPENAI_URL, apiKey: 'placeholder', maxRetries: 0 });
const asked = (model, more = {}) => ({ model, messages: [{ role: 'user', content: QUESTION }], ...more });
const create = (model, more, options) => client.chat.completions.create(asked(model, more), options);
const TOOL = {
  type: 'function',
  function: { name: 'get_weather', parameters: { type: 'object', properties: { city: { type: 'string' } } } },
};

await report({
  async whole() {
    equal((await create('sim-echo')).choices[0].message.content, QUESTION);
  },
  async stream() {
    equal(await client.chat.completions.stream(asked('sim-20x0')).finalContent(), TWENTY);
  },
  async loop() {
    let text = '';
    for await (const chunk of await create('sim-20x0', { stream: true })) {
      text += chunk.choices[0].delta.content ?? '';
    }
    equal(text, TWENTY);
  },
  async usage() {
    for await (const chunk of await create('sim-20x0', { stream: true })) equal(chunk.usage, undefined);
    const counts = [];
    const options = { stream: true, stream_options: { include_usage: true } };
    for await (const { usage } of await create('sim-20x0', options)) if (usage) counts.push(usage);
    equal(counts.length, 1);
    return [counts[0].prompt_tokens, counts[0].completion_tokens];
  },
  async tools() {
    const runner = client.chat.completions.runTools(
      asked('sim-tools', {
        stream: true,
        tools: [
          {
            ...TOOL,
            function: {
              ...TOOL.function,
              parse: JSON.parse,
              function: ({ city }) => equal(city, 'sim') ?? 'sunny',
            },
          },
        ],
      }),
    );
    equal(await runner.finalContent(), 'The tool has answered.');
  },
  errors: () => failsInWords((model) => create(model)),
  async abort() {
    for await (const _ of await create('sim-500x20', { stream: true })) break;
  },
});
