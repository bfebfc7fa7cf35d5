// The Anthropic client, streamed: PRIVATEMODE_API_KEY=... node anthropic.mjs
import Anthropic from '@anthropic-ai/sdk';
import { createPrivatemodeFetch } from 'privatemode-ai/fetch';
import { options } from './service.mjs';

const anthropic = new Anthropic({ apiKey: 'unused', fetch: createPrivatemodeFetch(options) });
const stream = anthropic.messages.stream({
  model: 'gpt-oss-120b',
  max_tokens: 100,
  messages: [{ role: 'user', content: 'Say hello.' }],
});
stream.on('text', (text) => process.stdout.write(text));
const message = await stream.finalMessage();

console.log(`\n${message.usage.output_tokens} tokens`);
