/**
 * The server's side of a response, by the letter of docs/protocol/inference.md 6: one counter for all that it
 * seals.
 */
import { countingIvs, EXCHANGE } from './exchange-fixture.ts';
import {
  type LiteralExchange,
  literalMembers,
  literalOrder,
  literalSeal,
  literalSealObject,
} from './literal-envelope.ts';

type Json = Readonly<Record<string, unknown>>;

export interface SealedStream {
  /** The object with every member sealed that is not plain. */
  object(value: Json): string;
  /** The array with every element sealed; they are numbered in the order of their indices as text. */
  array(elements: readonly unknown[]): string;
  /** The object as the data of an event, after an optional `event:` line. */
  event(value: Json, name?: string): string;
  /** A chat chunk as an event. */
  chunk(content: string, finish?: string | null): string;
}

/** `plain`: the members that stay plain. */
export function sealedStream(plain: Iterable<string>, exchange: LiteralExchange = EXCHANGE): SealedStream {
  const names = [...plain];
  const ivs = countingIvs();
  let sequence = 0;
  const object = (value: Json): string => {
    const sealed = literalSealObject(exchange, literalMembers(value), names, ivs, sequence);
    sequence += Object.keys(value).filter((name) => !names.includes(name)).length;
    return sealed;
  };
  const event = (value: Json, name?: string): string => eventOf(object(value), name);
  return {
    object,
    event,
    array(elements) {
      const sealed = elements.map(() => '');
      for (const index of literalOrder(Object.keys(elements), []).map(Number)) {
        const plaintext = Buffer.from(JSON.stringify(elements[index]));
        sealed[index] = literalSeal(exchange, sequence++, ivs(), plaintext);
      }
      return `[${sealed.join(', ')}]`;
    },
    chunk: (content, finish = null) => event(chatChunk(content, finish)),
  };
}

const eventOf = (data: string, name?: string): string =>
  `${name === undefined ? '' : `event: ${name}\n`}data: ${data}\n\n`;

/** A chat chunk of one choice. */
export const chatChunk = (content: string, finishReason: string | null = null, completionTokens = 1) => ({
  id: 'chatcmpl-1',
  object: 'chat.completion.chunk',
  created: 1_700_000_000,
  model: 'm',
  choices: [{ index: 0, delta: { content }, logprobs: null, finish_reason: finishReason }],
  usage: { prompt_tokens: 3, total_tokens: 3 + completionTokens, completion_tokens: completionTokens },
});

/** What such an event must look like once it is opened. */
export const openEvent = (value: Json, name?: string): string => eventOf(JSON.stringify(value), name);

export const DONE = 'data: [DONE]\n\n';
