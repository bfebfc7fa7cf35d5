// The OpenAI client, streamed: PRIVATEMODE_API_KEY=... node node.mjs
import { PrivatemodeAI } from 'privatemode-ai';
import { options } from './service.mjs';

const client = new PrivatemodeAI(options);
const stream = await client.chat.completions.create({
  model: 'gpt-oss-120b',
  messages: [{ role: 'user', content: 'Say hello.' }],
  stream: true,
});
for await (const chunk of stream) process.stdout.write(chunk.choices[0]?.delta.content ?? '');

console.log('\nencrypted for', client.protection.manifestSha256);
