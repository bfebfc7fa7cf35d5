import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { modelOf } from '../fixtures.ts';
import { dial, type Target } from '../load.ts';
import type { Metric } from '../metric.ts';
import { startWatched } from './one-byte-chunks.ts';

const PLAN = { unary: true };
const MIB = 1024 * 1024;

const repeated = (item: string, bytes: number): string =>
  `[${Array(Math.floor(bytes / (item.length + 1)))
    .fill(item)
    .join()}]`;
const part = '{"type":"input_text","text":""}';
const call = '{"type":"function_call","call_id":"c","name":"f","arguments":"{}"}';

/** The `input` of requests that take the translation longest, each for another reason. */
const INPUTS: Readonly<Record<string, () => string>> = {
  'a message of many parts': () => `[{"role":"user","content":${repeated(part, MIB)}}]`,
  'calls that share a message': () => repeated(call, 6 * MIB),
  'one text of 7 MiB': () => `"${'x'.repeat(7 * MIB)}"`,
  'an input that needs escapes': () =>
    `[{"type":"custom_tool_call","call_id":"c","name":"f","input":"${'\\"'.repeat(3.5 * MIB)}"}]`,
};

/** Sends the request, and waits for the beginning of its answer. */
async function send(target: Target, input: string): Promise<void> {
  const body = `{"model":${JSON.stringify(modelOf(PLAN))},"input":${input}}`;
  const socket = await dial(target);
  socket.write(
    `POST /v1/responses HTTP/1.1\r\nHost: ${target.host}:${target.port}\r\nContent-Type: application/json\r\n` +
      `Authorization: Bearer bench\r\nContent-Length: ${body.length}\r\n\r\n${body}`,
  );
  const [answer] = (await once(socket, 'data')) as [Buffer];
  socket.destroy();
  if (!answer.toString('latin1').startsWith('HTTP/1.1 200')) throw new Error(`answered with ${answer}`);
}

/** How long the translation of a large request holds the tokens of everybody else. */
export const responsesTurn: Metric = {
  name: 'responses_turn',
  rows: [
    {
      id: 'responses_turn',
      title: 'Longest hold of the event loop while a large Responses request is translated',
      figure: 'ms',
      bar: { limit: 50, kind: 'at most' },
    },
  ],
  rounds: { full: 5, quick: 0 },
  async round(subjects) {
    const directory = mkdtempSync(join(tmpdir(), 'privatemode-hold-'));
    const { target, holds, stop } = await startWatched(subjects, 'ours, responses', directory);
    const values: Record<string, number> = {};
    try {
      for (const [what, make] of Object.entries(INPUTS)) {
        const input = make();
        await send(target, input); // it compiles what the other runs
        await holds();
        await send(target, input);
        values[`${what}, longest hold, ms`] = (await holds()).longest;
      }
    } finally {
      await stop();
      rmSync(directory, { recursive: true, force: true });
    }
    return { figures: { responses_turn: Math.max(...Object.values(values)) }, values };
  },
};
