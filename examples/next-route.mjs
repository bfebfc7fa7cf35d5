// app/api/chat/route.js of Next.js, after npx next build: PRIVATEMODE_API_KEY=... npx next start
import { PrivatemodeAI } from 'privatemode-ai';
import { options } from './service.mjs';

let client; // made by the first request: the build has no key

export async function POST(request) {
  client ??= new PrivatemodeAI(options);
  const { messages } = await request.json();
  const stream = await client.chat.completions.create({ model: 'gpt-oss-120b', messages, stream: true });
  // A chunk in each line; in the page, ChatCompletionStream.fromReadableStream() of openai reads them.
  return new Response(stream.toReadableStream(), { headers: { 'content-type': 'application/x-ndjson' } });
}
