// Deno: PRIVATEMODE_API_KEY=... deno run --allow-net --allow-env=PRIVATEMODE_API_KEY deno.ts
import { PrivatemodeAI } from 'privatemode-ai';
import { options } from './service.mjs';

const client = new PrivatemodeAI(options);
const verdict = await client.verify();
for (const { id, outcome } of verdict.checks) console.log(outcome, id);

const completion = await client.chat.completions.create({
  model: 'gpt-oss-120b',
  messages: [{ role: 'user', content: 'Say hello.' }],
});
console.log(completion.choices[0]?.message.content);
