/** The official clients, current and previous major, under the names they give themselves. */
import Anthropic from '@anthropic-ai/sdk';
import { VERSION as ANTHROPIC } from '@anthropic-ai/sdk/version';
import PreviousAnthropic from 'anthropic-previous';
import { VERSION as PREVIOUS_ANTHROPIC } from 'anthropic-previous/version';
import OpenAI from 'openai';
import { VERSION as OPENAI } from 'openai/version';
import PreviousOpenAI from 'openai-previous';
import { VERSION as PREVIOUS_OPENAI } from 'openai-previous/version';

export type OpenAIClass = typeof OpenAI;
export type AnthropicClass = typeof Anthropic;

/** What the tests use of them is the same in both majors; the compiler sees two unrelated packages. */
export const OPENAI_CLIENTS: Readonly<Record<string, OpenAIClass>> = {
  [`openai ${OPENAI}`]: OpenAI,
  [`openai ${PREVIOUS_OPENAI}`]: PreviousOpenAI as unknown as OpenAIClass,
};

export const ANTHROPIC_CLIENTS: Readonly<Record<string, AnthropicClass>> = {
  [`@anthropic-ai/sdk ${ANTHROPIC}`]: Anthropic,
  [`@anthropic-ai/sdk ${PREVIOUS_ANTHROPIC}`]: PreviousAnthropic as unknown as AnthropicClass,
};

export interface SentRequest {
  readonly url: string;
  readonly headers: Headers;
  /** ms of the process's clock. */
  readonly sentAt: number;
}

/** A fetch for a client's options, and what the client really sent with it, retries included. */
export function watchedFetch(): { readonly fetch: typeof fetch; readonly sent: readonly SentRequest[] } {
  const sent: SentRequest[] = [];
  return {
    sent,
    fetch(input, init) {
      sent.push({ url: String(input), headers: new Headers(init?.headers), sentAt: performance.now() });
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
