// Vercel's AI SDK: PRIVATEMODE_API_KEY=... node vercel-ai-sdk.mjs
import { createOpenAI } from '@ai-sdk/openai';
import { streamText } from 'ai';
import { createPrivatemodeFetch } from 'privatemode-ai/fetch';
import { options } from './service.mjs';

const privatemode = createOpenAI({ apiKey: 'unused', fetch: createPrivatemodeFetch(options) });
const { textStream } = streamText({
  model: privatemode.chat('gpt-oss-120b'), // without .chat it would ask the Responses API, which needs the option responsesApi
  prompt: 'Say hello.',
});
for await (const text of textStream) process.stdout.write(text);
console.log();
