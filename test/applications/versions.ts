import OpenAI from 'openai';
import { VERSION as OPENAI } from 'openai/version';

/** Under the name that it gives itself. */
export const OPENAI_CLIENTS: Readonly<Record<string, typeof OpenAI>> = { [`openai ${OPENAI}`]: OpenAI };

/** Everything a stream gives, once it has ended. */
export async function all<Item>(stream: AsyncIterable<Item>): Promise<Item[]> {
  const items: Item[] = [];
  for await (const item of stream) items.push(item);
  return items;
}
