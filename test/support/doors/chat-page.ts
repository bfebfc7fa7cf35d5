/** A web page with a chat in it, and servers that deliver it under any origin. */
import { createServer } from 'node:http';
import { type Listening, opened } from '../remote/loopback.ts';

/**
 * The page asks nothing by itself. `ask(url, options)` streams a completion into the element `answer`; the
 * title then says `answered`, `refused STATUS`, or `failed` where the browser kept the answer from the page.
 */
export const CHAT_PAGE = `<!doctype html>
<meta charset="utf-8">
<title>ready</title>
<style>body { font: 18px sans-serif; margin: 2em } #answer { border: 1px solid #888; padding: 1em }</style>
<h1>A chat in a web page</h1>
<p id="answer"></p>
<p id="receipt"></p>
<script>
  window.arrivals = [];
  async function ask(url, { model = 'sim-echo', content, type = 'application/json', ...options }) {
    document.title = 'asking';
    try {
      const response = await fetch(url, {
        method: 'POST',
        headers: { 'content-type': type, ...(options.mode === 'no-cors' ? {} : { authorization: 'Bearer placeholder' }) },
        body: JSON.stringify({ model, stream: true, messages: [{ role: 'user', content }] }),
        ...options,
      });
      if (response.type === 'opaque') { document.title = 'opaque'; return; }
      if (!response.ok) { document.title = 'refused ' + response.status; return; }
      document.querySelector('#receipt').textContent = response.headers.get('privatemode-proxy-manifest-sha256');
      const decoder = new TextDecoder();
      let rest = '';
      for (const reader = response.body.getReader(); ; ) {
        const { done, value } = await reader.read();
        if (done) break;
        window.arrivals.push(performance.now());
        const lines = (rest + decoder.decode(value, { stream: true })).split('\\n');
        rest = lines.pop();
        for (const line of lines) {
          if (!line.startsWith('data: {')) continue;
          const { choices } = JSON.parse(line.slice(6));
          document.querySelector('#answer').textContent += choices[0]?.delta.content ?? '';
        }
      }
      document.title = 'answered';
    } catch (error) {
      document.title = 'failed ' + error.name;
    }
  }
</script>
`;

/** Serves the page for every path. */
export const servePage = (): Promise<Listening> =>
  opened(
    createServer((request, response) => {
      request.resume();
      response.writeHead(200, { 'content-type': 'text/html; charset=utf-8' }).end(CHAT_PAGE);
    }),
  );
