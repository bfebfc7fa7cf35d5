/** LlamaIndex with its class for OpenAI. */
import { OpenAI } from '@llamaindex/openai';
import { equal, failsInWords, OPENAI_URL, QUESTION, report, TWENTY } from './report.mjs';

const messages = [{ role: 'user', content: QUESTION }];
const llm = (model) =>
  new OpenAI({ model, apiKey: 'placeholder', baseURL: OPENAI_URL, maxRetries: 0, supportToolCall: true });

async function gather(pieces) {
  let text = '';
  for await (const { delta } of pieces) text += delta;
  return text;
}

await report({
  async whole() {
    equal((await llm('sim-echo').chat({ messages })).message.content, QUESTION);
  },
  async stream() {
    equal(await gather(await llm('sim-20x0').chat({ messages, stream: true })), TWENTY);
  },
  async loop() {
    let text = '';
    for await (const { raw } of await llm('sim-20x0').chat({ messages, stream: true })) {
      text += raw.choices[0].delta.content ?? '';
    }
    equal(text, TWENTY);
  },
  errors: () => failsInWords((model) => llm(model).chat({ messages })),
  async abort() {
    for await (const _ of await llm('sim-500x20').chat({ messages, stream: true })) break;
  },
});
