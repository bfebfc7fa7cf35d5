/** The chat side of a translation, for tests: chunks of a stream, and events as they were read back. */

import { asPrivatemodeError, PrivatemodeError } from '../../lib/errors.ts';
import type { ParsedBody } from '../../lib/pipeline/request-body.ts';
import {
  type TranslatedRequest,
  translateRequest as translateInTurns,
} from '../../lib/responses-api/translate-request.ts';
import { createTranslator } from '../../lib/responses-api/translator.ts';

// biome-ignore lint/suspicious/noExplicitAny: what was read back is compared, not used
export type Json = Record<string, any>;

/** Translates a body at once. */
export function translateRequest(body: Buffer): TranslatedRequest & { readonly turns: number } {
  const steps = translateInTurns(body);
  let turns = 1;
  for (;;) {
    const { done, value } = steps.next();
    if (done) return { ...value, turns };
    turns += 1;
  }
}

const bytesOf = (request: object): Buffer =>
  Buffer.from(JSON.stringify({ model: 'm', input: 'hi', ...request }));

export const translated = (request: object): ReturnType<typeof translateRequest> =>
  translateRequest(bytesOf(request));

export const chatOf = (request: object): Json => JSON.parse(translated(request).chat.toString());

const HEAD = { id: 'chat-1', object: 'chat.completion.chunk', created: 1_700_000_000, model: 'real-model' };
export const USAGE = {
  prompt_tokens: 7,
  completion_tokens: 5,
  total_tokens: 12,
  prompt_tokens_details: { cached_tokens: 3 },
  completion_tokens_details: { reasoning_tokens: 2 },
};

export const chunk = (delta: Json, more: Json = {}): Json => ({
  ...HEAD,
  choices: [{ index: 0, delta, logprobs: null, finish_reason: null, ...more }],
});
export const callPiece = (index: number, args: string, id?: string, name?: string): Json => ({
  tool_calls: [
    { index, ...(id && { id, type: 'function' }), function: { ...(name && { name }), arguments: args } },
  ],
});

/** The events of a whole chat stream, parsed, up to `[DONE]`. */
export function chatEvents(deltas: readonly Json[], finish: string | null = 'stop'): (Json | '[DONE]')[] {
  return [
    chunk({ role: 'assistant', content: '' }),
    ...deltas.map((delta) => ('choices' in delta || 'error' in delta ? delta : chunk(delta))),
    ...(finish === null ? [] : [chunk({}, { finish_reason: finish })]),
    { ...HEAD, choices: [], usage: USAGE },
    '[DONE]',
  ];
}

/** The same, each as its text. */
export const chatStream = (...chat: Parameters<typeof chatEvents>): string[] =>
  chatEvents(...chat).map((value) => `data: ${value === '[DONE]' ? value : JSON.stringify(value)}\n\n`);

export const eventsIn = (text: string): Json[] =>
  text
    .split('\n\n')
    .filter((block) => block.startsWith('event: '))
    .map((block) => {
      const [name = '', data = ''] = block.split('\n');
      const event = JSON.parse(data.slice('data: '.length));
      if (name !== `event: ${event.type}`) throw new Error('the name of an event is not its type');
      return event;
    });

/** A translator that has read that request. */
export function translatorOf(request: object = {}) {
  const translator = createTranslator('r-1');
  translator.request(() => ({}) as ParsedBody)(bytesOf(request), {});
  return translator;
}

/** The stream of a Response for those events of a chat, as the chain makes it; it fails without `[DONE]`. */
export function run(chat: readonly (Json | '[DONE]')[], request: object = {}) {
  const translator = translatorOf(request);
  const sink = translator.stream();
  const out: Uint8Array[] = [];
  let failure: PrivatemodeError | undefined;
  try {
    for (const event of chat) {
      if (event === '[DONE]') sink.accept();
      else if ('error' in event) sink.error(event['error']);
      else sink.chunk(event);
      out.push(sink.take(''));
    }
    if (!chat.includes('[DONE]')) throw new PrivatemodeError('stream_unfinished', 'the stream was cut');
  } catch (thrown) {
    failure = asPrivatemodeError(thrown);
    out.push(sink.take(''), translator.fail(failure));
  }
  const text = Buffer.concat(out).toString();
  return { events: eventsIn(text), text, failure };
}
