/** The chat side of a translation, for tests: chunks of a stream, and events as they were read back. */

import { PrivatemodeError } from '../../lib/errors.ts';
import type { Decrypter } from '../../lib/pipeline/decrypter.ts';
import {
  type TranslatedRequest,
  translateRequest as translateInTurns,
} from '../../lib/responses-api/translate-request.ts';
import { ResponseStream } from '../../lib/responses-api/translate-stream.ts';

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

export const translated = (request: object): ReturnType<typeof translateRequest> =>
  translateRequest(Buffer.from(JSON.stringify({ model: 'm', input: 'hi', ...request })));

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

/** A chat whose bytes need no decryption; it fails if it ends without `[DONE]`. */
export function plainChat(): Decrypter {
  let told = '';
  const chat = {
    finished: false,
    modelError: false,
    events: 0,
    usage: undefined,
    failure: undefined as PrivatemodeError | undefined,
    feed(bytes: Uint8Array): Uint8Array {
      told += Buffer.from(bytes).toString('latin1');
      return bytes;
    },
    end(): void {
      if (!told.endsWith('data: [DONE]\n\n'))
        chat.failure = new PrivatemodeError('stream_unfinished', 'the stream ended before its last event');
    },
  };
  return chat;
}

/** Runs a stream in those pieces to its end, as the chain does. */
export function run(pieces: readonly (string | Uint8Array)[], request: object = {}) {
  const stream = new ResponseStream(plainChat(), translated(request).context, 'r-1');
  const out: Uint8Array[] = pieces.map((piece) => stream.feed(Buffer.from(piece)));
  stream.end();
  const { failure } = stream;
  if (failure !== undefined) out.push(stream.fail(failure));
  const text = Buffer.concat(out).toString();
  return { events: eventsIn(text), text, failure };
}
