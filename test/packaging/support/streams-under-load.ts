/** Many streamed completions, each on a connection of its own, and what became of each of them. */
import { request } from 'node:http';
import { setTimeout as delay } from 'node:timers/promises';

/** `complete`: an answer of status 200 to its last event; otherwise what went wrong. */
export type StreamFate = 'complete' | (string & {});

/** Sends `count` requests, one every `everyMs`, for streams of `model`; resolves with their fates. */
export async function streamsUnderLoad(options: {
  readonly port: number;
  readonly count: number;
  readonly everyMs: number;
  readonly model: string;
}): Promise<StreamFate[]> {
  const fates: Promise<StreamFate>[] = [];
  for (let i = 0; i < options.count; i++) {
    fates.push(stream(options.port, options.model));
    await delay(options.everyMs);
  }
  return Promise.all(fates);
}

function stream(port: number, model: string): Promise<StreamFate> {
  const body = JSON.stringify({ model, stream: true, messages: [{ role: 'user', content: 'hello' }] });
  const headers = { 'content-type': 'application/json', 'content-length': Buffer.byteLength(body) };
  return new Promise((resolve) => {
    const req = request(
      { port, host: '127.0.0.1', method: 'POST', path: '/v1/chat/completions', headers, agent: false },
      (res) => {
        let text = '';
        res.setEncoding('utf8').on('data', (chunk: string) => {
          text += chunk;
        });
        res.on('error', (error) => resolve(`broken: ${error.message}`));
        res.on('end', () => {
          if (res.statusCode !== 200) resolve(`status ${res.statusCode}: ${text.slice(0, 200)}`);
          else resolve(text.endsWith('data: [DONE]\n\n') ? 'complete' : `ended early: ${text.slice(-200)}`);
        });
      },
    );
    req.on('error', (error: NodeJS.ErrnoException) => resolve(`refused: ${error.code ?? error.message}`));
    req.end(body);
  });
}

/** How often each fate occurred. */
export function tally(fates: readonly StreamFate[]): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const fate of fates) counts[fate] = (counts[fate] ?? 0) + 1;
  return counts;
}
