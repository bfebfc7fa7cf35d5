/** One question through any of the official clients, for tests that hold for all of them. */
import { ANTHROPIC_CLIENTS, type AnthropicClass, all, OPENAI_CLIENTS, type OpenAIClass } from './versions.ts';

/** Names that both makers give to the same thing. */
export type ErrorClass =
  | 'APIError'
  | 'AuthenticationError'
  | 'BadRequestError'
  | 'ConflictError'
  | 'InternalServerError'
  | 'NotFoundError'
  | 'PermissionDeniedError'
  | 'RateLimitError'
  | 'UnprocessableEntityError';

export interface Asked {
  readonly baseURL: string;
  readonly model: string;
  readonly content: string;
  readonly stream: boolean;
  /** Loops over the stream; otherwise the client's own helper gathers it. */
  readonly loop?: boolean;
  readonly headers: Record<string, string>;
  readonly apiKey: string;
  readonly maxRetries?: number;
  readonly fetch: typeof fetch;
}

export interface Client {
  readonly classes: Pick<OpenAIClass, ErrorClass>;
  /** What comes after http://HOST:PORT in a base URL. */
  readonly base: string;
  /** Whether it is not of the previous major. */
  readonly current: boolean;
  /** Resolves with the words of the answer. */
  ask(asked: Asked): Promise<string>;
}

const optionsOf = ({ baseURL, apiKey, headers, fetch, maxRetries }: Asked) => ({
  baseURL,
  apiKey,
  defaultHeaders: headers,
  fetch,
  timeout: 120_000,
  ...(maxRetries === undefined ? {} : { maxRetries }),
});

const openai = (Class: OpenAIClass): Omit<Client, 'current'> => ({
  classes: Class,
  base: '/v1',
  async ask(asked) {
    const { model, content, stream, loop } = asked;
    const { completions } = new Class(optionsOf(asked)).chat;
    const request = { model, messages: [{ role: 'user' as const, content }] };
    if (!stream) return (await completions.create(request)).choices[0]?.message.content ?? '';
    if (!loop) return (await completions.stream(request).finalContent()) ?? '';
    const chunks = await all(await completions.create({ ...request, stream: true }));
    return chunks.map(({ choices: [choice] }) => choice?.delta.content ?? '').join('');
  },
});

const anthropic = (Class: AnthropicClass): Omit<Client, 'current'> => ({
  classes: Class as unknown as OpenAIClass,
  base: '',
  async ask(asked) {
    const { model, content, stream, loop } = asked;
    const { messages } = new Class(optionsOf(asked));
    const request = { model, max_tokens: 1000, messages: [{ role: 'user' as const, content }] };
    if (stream && loop) {
      const events = await all(await messages.create({ ...request, stream: true }));
      const deltas = events.flatMap((event) => (event.type === 'content_block_delta' ? [event.delta] : []));
      return deltas.map((delta) => (delta.type === 'text_delta' ? delta.text : '')).join('');
    }
    if (stream) return messages.stream(request).finalText();
    const [block] = (await messages.create(request)).content;
    return block?.type === 'text' ? block.text : '';
  },
});

const entries = <Class>(
  classes: Readonly<Record<string, Class>>,
  client: (Class: Class) => Omit<Client, 'current'>,
) =>
  Object.entries(classes).map(
    ([name, Class], place) => [name, { ...client(Class), current: place === 0 }] as const,
  );

/** Every client by name. */
export const CLIENTS = new Map([
  ...entries(OPENAI_CLIENTS, openai),
  ...entries(ANTHROPIC_CLIENTS, anthropic),
]);
