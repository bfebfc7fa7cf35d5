/** One question through either official client, for tests that hold for both. */
import assert from 'node:assert/strict';
import Anthropic from '@anthropic-ai/sdk';
import OpenAI from 'openai';
import type { Simulator } from '../../simulator/simulator.ts';

export interface Asked {
  /** http://HOST:PORT */
  readonly url: string;
  readonly model: string;
  /** The client's own helper gathers the stream. */
  readonly stream: boolean;
  readonly apiKey: string;
  readonly maxRetries: number;
  readonly fetch: typeof fetch;
}

export interface Client {
  /** Both makers have these classes of errors. */
  readonly classes: Pick<typeof OpenAI, ErrorClass>;
  /** Resolves with the words of the answer. */
  ask(asked: Asked): Promise<string>;
}

export type ErrorClass =
  | 'APIError'
  | 'AuthenticationError'
  | 'BadRequestError'
  | 'InternalServerError'
  | 'NotFoundError'
  | 'RateLimitError';

const MESSAGES = [{ role: 'user' as const, content: 'hello' }];

const openai: Client = {
  classes: OpenAI,
  async ask({ url, model, stream, ...options }) {
    const { completions } = new OpenAI({ baseURL: `${url}/v1`, ...options }).chat;
    const request = { model, messages: MESSAGES };
    if (stream) return (await completions.stream(request).finalContent()) ?? '';
    return (await completions.create(request)).choices[0]?.message.content ?? '';
  },
};

const anthropic: Client = {
  classes: Anthropic as unknown as typeof OpenAI,
  async ask({ url, model, stream, ...options }) {
    const { messages } = new Anthropic({ baseURL: url, ...options });
    const request = { model, max_tokens: 1000, messages: MESSAGES };
    if (stream) return messages.stream(request).finalText();
    const [block] = (await messages.create(request)).content;
    return block?.type === 'text' ? block.text : '';
  },
};

export const CLIENTS = { openai, anthropic };

/** A fetch for a client's options, and how many requests the client sent with it; retries included. */
export function watchedFetch(): { readonly fetch: typeof fetch; sent(): number } {
  let sent = 0;
  return {
    sent: () => sent,
    fetch(input, init) {
      sent++;
      return fetch(input, init);
    },
  };
}

/** Everything a stream gives, once it has ended. */
export async function all<Item>(stream: AsyncIterable<Item>): Promise<Item[]> {
  const items: Item[] = [];
  for await (const item of stream) items.push(item);
  return items;
}

/** None of the words of the requests was readable at the service, and no rule of the protocol was broken. */
export function assertHidden({ recorder, exchanges }: Simulator, words: readonly string[]): void {
  assert.ok(exchanges.all().length > 5, 'nearly nothing was recorded');
  for (const word of words) {
    const paths = recorder.containing(word).map(({ path }) => path);
    assert.deepEqual(paths, [], word);
  }
  assert.deepEqual(exchanges.violations(), []);
}
