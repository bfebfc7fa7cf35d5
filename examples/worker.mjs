// A worker of Cloudflare, its key as a secret of that name: PRIVATEMODE_API_KEY=... in .dev.vars, then npx wrangler dev worker.mjs
import { PrivatemodeAI } from 'privatemode-ai';
import { options } from './service.mjs';

let client; // one for all requests of an isolate: the service is verified once

export default {
  async fetch(request, { PRIVATEMODE_API_KEY }) {
    client ??= new PrivatemodeAI({ ...options, apiKey: PRIVATEMODE_API_KEY });
    const { messages } = await request.json();
    const stream = await client.chat.completions.create({ model: 'gpt-oss-120b', messages, stream: true });
    // A chunk in each line; in a page, ChatCompletionStream.fromReadableStream() of openai reads them.
    return new Response(stream.toReadableStream(), { headers: { 'content-type': 'application/x-ndjson' } });
  },
};
