/** Anthropic's own client; the argument is the package. */
import { ANTHROPIC_URL, equal, failsInWords, QUESTION, report, TWENTY } from './report.mjs';

const { default: Anthropic } = await import(process.argv[2]);
const client = new Anthropic({ baseURL: ANTHROPIC_URL, apiKey: 'placeholder', maxRetries: 0 });
const asked = (model, more = {}) => ({
  model,
  max_tokens: 1000,
  messages: [{ role: 'user', content: QUESTION }],
  ...more,
});
const create = (model, more) => client.messages.create(asked(model, more));
const TOOL = {
  name: 'get_weather',
  input_schema: { type: 'object', properties: { city: { type: 'string' } } },
};

await report({
  async whole() {
    equal((await create('sim-echo')).content[0].text, QUESTION);
  },
  async stream() {
    equal(await client.messages.stream(asked('sim-20x0')).finalText(), TWENTY);
  },
  async loop() {
    let text = '';
    for await (const event of await create('sim-20x0', { stream: true })) {
      if (event.type === 'content_block_delta') text += event.delta.text;
    }
    equal(text, TWENTY);
  },
  async usage() {
    const { usage } = await client.messages.stream(asked('sim-20x0')).finalMessage();
    return [usage.input_tokens, usage.output_tokens];
  },
  async tools() {
    const first = await client.messages.stream(asked('sim-tools', { tools: [TOOL] })).finalMessage();
    const call = first.content.find(({ type }) => type === 'tool_use');
    equal([call.name, call.input], ['get_weather', { city: 'sim' }]);
    const result = { type: 'tool_result', tool_use_id: call.id, content: 'sunny' };
    const messages = [
      ...asked('').messages,
      { role: 'assistant', content: first.content },
      { role: 'user', content: [result] },
    ];
    equal((await create('sim-tools', { messages, tools: [TOOL] })).content[0].text, 'The tool has answered.');
  },
  errors: () => failsInWords((model) => create(model)),
  async abort() {
    for await (const _ of await create('sim-500x20', { stream: true })) break;
  },
});
