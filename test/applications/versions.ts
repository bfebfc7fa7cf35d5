/** The official clients, under the names they give themselves. */
import Anthropic from '@anthropic-ai/sdk';
import { VERSION as ANTHROPIC } from '@anthropic-ai/sdk/version';
import OpenAI from 'openai';
import { VERSION as OPENAI } from 'openai/version';

export type OpenAIClass = typeof OpenAI;
export type AnthropicClass = typeof Anthropic;

export const OPENAI_CLIENTS: Readonly<Record<string, OpenAIClass>> = { [`openai ${OPENAI}`]: OpenAI };
export const ANTHROPIC_CLIENTS: Readonly<Record<string, AnthropicClass>> = {
  [`@anthropic-ai/sdk ${ANTHROPIC}`]: Anthropic,
};

/** Everything a stream gives, once it has ended. */
export async function all<Item>(stream: AsyncIterable<Item>): Promise<Item[]> {
  const items: Item[] = [];
  for await (const item of stream) items.push(item);
  return items;
}
