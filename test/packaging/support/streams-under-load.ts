/** Many streamed completions, each on a connection of its own, and what became of each of them. */
import { setTimeout as delay } from 'node:timers/promises';
import { askChat } from '../../support/doors/ask-chat.ts';

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

async function stream(port: number, model: string): Promise<StreamFate> {
  try {
    const response = await askChat({ url: `http://127.0.0.1:${port}` }, { model, stream: true });
    const text = await response.text();
    if (response.status !== 200) return `status ${response.status}: ${text.slice(0, 200)}`;
    return text.endsWith('data: [DONE]\n\n') ? 'complete' : `ended early: ${text.slice(-200)}`;
  } catch (error) {
    return `broken: ${(error as Error).cause ?? error}`;
  }
}

/** How often each fate occurred. */
export function tally(fates: readonly StreamFate[]): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const fate of fates) counts[fate] = (counts[fate] ?? 0) + 1;
  return counts;
}
