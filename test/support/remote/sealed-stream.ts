/** The server's side of an event stream, by the letter of docs/protocol/inference.md 6.2: the counter runs across events. */
import { countingIvs, EXCHANGE } from './exchange-fixture.ts';
import { type LiteralMember, literalSealObject } from './literal-envelope.ts';

export interface SealedStream {
  /** The data of the next event: every member of `object` sealed that is not in `plain`. */
  data(object: Readonly<Record<string, unknown>>): string;
  /** The same as a whole event, after an optional `event:` line. */
  event(object: Readonly<Record<string, unknown>>, name?: string): string;
}

export function sealedStream(plain: readonly string[]): SealedStream {
  const ivs = countingIvs();
  let sequence = 0;
  const data = (object: Readonly<Record<string, unknown>>): string => {
    const members: LiteralMember[] = Object.entries(object).map(([name, value]) => ({
      name,
      writtenName: JSON.stringify(name),
      raw: JSON.stringify(value),
    }));
    const sealed = literalSealObject(EXCHANGE, members, plain, ivs, sequence);
    sequence += members.filter(({ name }) => !plain.includes(name)).length;
    return sealed;
  };
  return {
    data,
    event: (object, name) => `${name === undefined ? '' : `event: ${name}\n`}data: ${data(object)}\n\n`,
  };
}

/** A chat chunk of one choice. */
export const chatChunk = (content: string, finishReason: string | null = null, completionTokens = 1) => ({
  id: 'chatcmpl-1',
  object: 'chat.completion.chunk',
  created: 1_700_000_000,
  model: 'm',
  choices: [{ index: 0, delta: { content }, logprobs: null, finish_reason: finishReason }],
  usage: { prompt_tokens: 3, total_tokens: 3 + completionTokens, completion_tokens: completionTokens },
});

/** What such a stream must look like once it is opened. */
export const openEvent = (object: Readonly<Record<string, unknown>>, name?: string): string =>
  `${name === undefined ? '' : `event: ${name}\n`}data: {${Object.entries(object)
    .map(([key, value]) => `${JSON.stringify(key)}: ${JSON.stringify(value)}`)
    .join(' , ')}}\n\n`;

export const DONE = 'data: [DONE]\n\n';
