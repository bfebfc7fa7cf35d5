// The Anthropic client, streamed: PRIVATEMODE_API_KEY=... node anthropic.mjs
import { PrivatemodeAI } from 'privatemode-ai';
import { options } from './service.mjs';

const client = new PrivatemodeAI(options);
const anthropic = await client.anthropic();
const stream = anthropic.messages.stream({
  model: 'gpt-oss-120b',
  max_tokens: 100,
  messages: [{ role: 'user', content: 'Say hello.' }],
});
stream.on('text', (text) => process.stdout.write(text));
const message = await stream.finalMessage();

console.log(`\n${message.usage.output_tokens} tokens`);
