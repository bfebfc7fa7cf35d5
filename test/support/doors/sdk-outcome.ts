/** One exchange through the official client of its API: what the application sees, and the bytes below it. */
import Anthropic from '@anthropic-ai/sdk';
import OpenAI from 'openai';
import { ENDPOINTS, type EndpointName } from '../remote/endpoints.ts';
import { essenceOfBody, essenceOfEvent, type HonestExchange } from '../remote/honest-exchanges.ts';

type Json = Record<string, unknown>;

/** The response below the client; status 0 where there was none. */
interface Seen {
  readonly status: number;
  readonly text: string;
  /** Whether the connection broke before the framing said that the body was over. */
  readonly broken: boolean;
}

export interface Outcome extends Seen {
  /**
   * What the client gave to the application, reduced to what matters: the items of a stream, or the whole
   * answer as the only one.
   */
  readonly items: readonly unknown[];
  /** What the client threw. */
  readonly error: unknown;
}

/**
 * A body for two readers. With `tee`, an error takes from the slower one what it has not read yet; here it
 * comes after that, as it does for one reader.
 */
function twice(body: Response['body'] | undefined): (ReadableStream<Uint8Array<ArrayBuffer>> | null)[] {
  if (body === null || body === undefined) return [null, null];
  const reader = body.getReader();
  const reads: ReturnType<typeof reader.read>[] = [];
  const each = (): ReadableStream<Uint8Array<ArrayBuffer>> => {
    let at = 0;
    return new ReadableStream({
      async pull(controller) {
        reads[at] ??= reader.read();
        const { done, value } = await (reads[at++] as ReturnType<typeof reader.read>);
        if (done) controller.close();
        else controller.enqueue(Uint8Array.from(value));
      },
    });
  };
  return [each(), each()];
}

/** A fetch that reads everything to its end, even where the client does not, and tells what it read. */
function readingFetch(): { readonly fetch: typeof fetch; seen(): Promise<Seen> } {
  const { promise, resolve } = Promise.withResolvers<Seen>();
  const read = async (status: number, body: ReadableStream<Uint8Array> | null): Promise<Seen> => {
    const chunks: Uint8Array[] = [];
    let broken = false;
    try {
      for await (const chunk of body ?? []) chunks.push(chunk);
    } catch {
      broken = true;
    }
    return { status, text: Buffer.concat(chunks).toString('utf8'), broken };
  };
  return {
    seen: () => promise,
    async fetch(input, init) {
      // The client tries out with a data URL what fetch can do.
      if (!String(input).startsWith('http')) return fetch(input, init);
      const { signal: _, ...rest } = init ?? {};
      const response = await fetch(input, rest).catch((thrown: unknown) => {
        resolve({ status: 0, text: '', broken: true });
        throw thrown;
      });
      const [ours = null, theirs = null] = twice(response.body);
      resolve(read(response.status, ours));
      return new Response(theirs, { status: response.status, headers: response.headers });
    },
  };
}

const FILE = new File([Buffer.from('RIFF sound')], 'a.wav', { type: 'audio/wav' });

/** What the client of that API makes of a request: an async iterable of items, or the whole answer. */
type Caller = (url: string, request: Json, fetching: typeof fetch) => Promise<unknown>;

const openai = (url: string, fetching: typeof fetch): OpenAI =>
  new OpenAI({ baseURL: `${url}/v1`, apiKey: 'k', maxRetries: 0, timeout: 120_000, fetch: fetching });

const CALLERS: Readonly<Partial<Record<EndpointName, Caller>>> = {
  chat: (url, request, fetching) => openai(url, fetching).chat.completions.create(request as never),
  completions: (url, request, fetching) => openai(url, fetching).completions.create(request as never),
  embeddings: (url, request, fetching) => openai(url, fetching).embeddings.create(request as never),
  transcription: (url, request, fetching) =>
    openai(url, fetching).audio.transcriptions.create({ ...request, file: FILE } as never),
  messages: (url, request, fetching) =>
    new Anthropic({
      baseURL: url,
      apiKey: 'k',
      maxRetries: 0,
      timeout: 120_000,
      fetch: fetching,
    }).messages.create(request as never),
};

/** The official client of that API; where there is none, a program that posts JSON and parses the answer. */
export const callerOf = (api: EndpointName): Caller =>
  CALLERS[api] ??
  (async (url, request, fetching) => {
    const body = JSON.stringify(request);
    const headers = { 'content-type': 'application/json' };
    const response = await fetching(`${url}${ENDPOINTS[api].path}`, { method: 'POST', headers, body });
    if (!response.ok) throw new Error(`status ${response.status}`);
    return response.json();
  });

export const isIterable = (value: unknown): value is AsyncIterable<Json> =>
  typeof value === 'object' && value !== null && Symbol.asyncIterator in value;

/** Asks the proxy at that URL what the exchange asks. */
export async function ask(url: string, { api, request }: HonestExchange): Promise<Outcome> {
  const { fetch: fetching, seen } = readingFetch();
  const items: unknown[] = [];
  let error: unknown;
  try {
    const answer = await callerOf(api)(url, request as Json, fetching);
    if (!isIterable(answer)) items.push(essenceOfBody(api, answer));
    else for await (const item of answer) items.push(essenceOfEvent(api, item));
  } catch (thrown) {
    error = thrown ?? new Error('nothing was thrown');
  }
  return { items: items.filter((item) => item !== undefined), error, ...(await seen()) };
}

/** The clients throw where data is no JSON, `[done]` in small letters for instance. */
function parsed(data: string): Json {
  try {
    return JSON.parse(data) as Json;
  } catch {
    return { error: 'no JSON' };
  }
}

/**
 * Reads the text of an opened stream, LF only, as the official client of that API does: it throws an error,
 * here `{ error }`, and reads no further. `done`: `[DONE]` came, which the messages API has not. An
 * OpenAI-style event with a name is an item of its own, which no honest stream has.
 */
export function readStream(api: EndpointName, text: string) {
  const items: unknown[] = [];
  for (const block of text.split('\n\n')) {
    const lines = block.split('\n');
    const data = lines
      .filter((line) => line.startsWith('data:'))
      .map((line) => line.replace(/^data: ?/, ''))
      .join('\n');
    const name = lines.findLast((line) => line.startsWith('event:'))?.replace(/^event: ?/, '');
    if (data === '') continue;
    if (api === 'messages') {
      if (name === undefined || name === 'ping') continue;
    } else {
      if (data === '[DONE]') return { items, done: true };
      if (name !== undefined) items.push({ named: name });
    }
    const item = essenceOfEvent(api, parsed(data));
    if (item !== undefined) items.push(item);
    if (name === 'error' || (item !== undefined && 'error' in item)) break;
  }
  return { items, done: false };
}
