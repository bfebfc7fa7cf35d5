// LangChain: PRIVATEMODE_API_KEY=... node langchain.mjs
import { ChatOpenAI } from '@langchain/openai';
import { createPrivatemodeFetch } from 'privatemode-ai/fetch';
import { options } from './service.mjs';

const model = new ChatOpenAI({
  model: 'gpt-oss-120b',
  apiKey: 'unused',
  configuration: { fetch: createPrivatemodeFetch(options) },
});
for await (const chunk of await model.stream('Say hello.')) process.stdout.write(chunk.text);
console.log();
