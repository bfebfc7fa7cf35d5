/** The chat side of a translation, for tests: chunks of a stream, and events as they were read back. */

import { RequestTranslation, type TranslatedRequest } from '../../lib/responses/request.ts';
import { ResponseStream, type Sink } from '../../lib/responses/stream.ts';

// biome-ignore lint/suspicious/noExplicitAny: what was read back is compared, not used
export type Json = Record<string, any>;

/** Translates a body that is there, at once: the chat request as JSON, and what is said of it. */
export function translateRequest(body: Uint8Array): TranslatedRequest & { readonly body: Buffer } {
  const translation = new RequestTranslation();
  translation.feed(body);
  const pieces = translation.pieces();
  const written: Buffer[] = [];
  for (;;) {
    const { done, value } = pieces.next();
    if (done) return { ...value, body: Buffer.concat(written) };
    written.push(value);
  }
}

export const translated = (request: object): ReturnType<typeof translateRequest> =>
  translateRequest(Buffer.from(JSON.stringify({ model: 'm', input: 'hi', ...request })));

export const chatOf = (request: object): Json => JSON.parse(translated(request).body.toString());

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

/** The events of a whole chat stream, each as its text. */
export function chatStream(deltas: readonly Json[], finish: string | null = 'stop'): string[] {
  const chunks = [
    chunk({ role: 'assistant', content: '' }),
    ...deltas.map((delta) => ('choices' in delta || 'error' in delta ? delta : chunk(delta))),
    ...(finish === null ? [] : [chunk({}, { finish_reason: finish })]),
    { ...HEAD, choices: [], usage: USAGE },
  ];
  return [...chunks.map((value) => `data: ${JSON.stringify(value)}\n\n`), 'data: [DONE]\n\n'];
}

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

/** Runs a stream in those pieces; with `ends`, the source ends after them. */
export function run(pieces: readonly (string | Uint8Array)[], request: object = {}, ends = true) {
  const stream = new ResponseStream(translated(request).context, { requestId: 'r-1' });
  const out: string[] = [];
  let terminated = false;
  const sink: Sink = {
    enqueue: (bytes) => void out.push(Buffer.from(bytes).toString()),
    terminate: () => {
      terminated = true;
    },
  };
  for (const piece of pieces) stream.transform(Buffer.from(piece), sink);
  if (ends) stream.flush(sink);
  const text = out.join('');
  return { events: eventsIn(text), text, failure: stream.failure, terminated };
}
