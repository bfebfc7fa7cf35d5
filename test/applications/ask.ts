/** One question through either official client, for tests that hold for both. */
import assert from 'node:assert/strict';
import Anthropic from '@anthropic-ai/sdk';
import OpenAI from 'openai';
import type { Simulator } from '../../simulator/simulator.ts';

export interface Asked {
  /** http://HOST:PORT */
  readonly url: string;
  readonly model: string;
  readonly content?: string;
  /** The client's own helper gathers the stream. */
  readonly stream?: boolean;
  readonly headers?: Readonly<Record<string, string>>;
  readonly apiKey?: string;
  readonly maxRetries?: number;
  readonly timeout?: number;
  readonly signal?: AbortSignal;
  readonly fetch?: typeof fetch;
}

export interface Client {
  /** Both makers have these classes of errors. */
  readonly classes: Pick<typeof OpenAI, ErrorClass>;
  /** Resolves with the words of the answer. */
  ask(asked: Asked): Promise<string>;
  /** A stream to loop over, once its head is here. */
  open(asked: Asked): Promise<AsyncIterable<unknown>>;
}

export type ErrorClass =
  | 'APIConnectionTimeoutError'
  | 'APIError'
  | 'APIUserAbortError'
  | 'AuthenticationError'
  | 'BadRequestError'
  | 'ConflictError'
  | 'InternalServerError'
  | 'NotFoundError'
  | 'PermissionDeniedError'
  | 'RateLimitError'
  | 'UnprocessableEntityError';

const optionsOf = ({ apiKey = 'k', headers = {}, fetch, maxRetries, timeout = 120_000 }: Asked) => ({
  ...{ apiKey, defaultHeaders: headers, timeout },
  ...(fetch !== undefined && { fetch }),
  ...(maxRetries !== undefined && { maxRetries }),
});
const messagesOf = ({ content = 'hello' }: Asked) => [{ role: 'user' as const, content }];
const signalOf = ({ signal }: Asked) => (signal === undefined ? {} : { signal });

const openai: Client = {
  classes: OpenAI,
  async ask(asked) {
    const { completions } = new OpenAI({ baseURL: `${asked.url}/v1`, ...optionsOf(asked) }).chat;
    const request = { model: asked.model, messages: messagesOf(asked) };
    if (asked.stream) return (await completions.stream(request, signalOf(asked)).finalContent()) ?? '';
    return (await completions.create(request, signalOf(asked))).choices[0]?.message.content ?? '';
  },
  open(asked) {
    const { completions } = new OpenAI({ baseURL: `${asked.url}/v1`, ...optionsOf(asked) }).chat;
    const request = { model: asked.model, messages: messagesOf(asked), stream: true } as const;
    return completions.create(request, signalOf(asked));
  },
};

const anthropic: Client = {
  classes: Anthropic as unknown as typeof OpenAI,
  async ask(asked) {
    const { messages } = new Anthropic({ baseURL: asked.url, ...optionsOf(asked) });
    const request = { model: asked.model, max_tokens: 1000, messages: messagesOf(asked) };
    if (asked.stream) return messages.stream(request, signalOf(asked)).finalText();
    const [block] = (await messages.create(request, signalOf(asked))).content;
    return block?.type === 'text' ? block.text : '';
  },
  open(asked) {
    const { messages } = new Anthropic({ baseURL: asked.url, ...optionsOf(asked) });
    const request = { model: asked.model, max_tokens: 1000, messages: messagesOf(asked) };
    return messages.create({ ...request, stream: true }, signalOf(asked));
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

/** None of the words of the requests was readable at the service, and no rule of the protocol was broken. */
export function assertHidden({ recorder, exchanges }: Simulator, words: readonly string[]): void {
  assert.ok(exchanges.all().length > 5, 'nearly nothing was recorded');
  for (const word of words) {
    const paths = recorder.containing(word).map(({ path }) => path);
    assert.deepEqual(paths, [], word);
  }
  assert.deepEqual(exchanges.violations(), []);
}
