/**
 * One chat request in either API style over a plain socket, or through the library's door, and everything
 * that its response shows.
 */
import { type Agent, type IncomingHttpHeaders, type IncomingMessage, request } from 'node:http';
import { DOOR } from '../support/doors/library-door.ts';

export type ApiStyle = 'openai' | 'anthropic';
export type Mode = 'stream' | 'unary';

export interface Question {
  readonly style: ApiStyle;
  readonly mode: Mode;
  readonly model: string;
  /** The user's message; `sim-echo` answers with the same. */
  readonly prompt: string;
  /** Bytes that nobody asked for, in a member of their own. */
  readonly padding?: number;
  readonly headers?: Readonly<Record<string, string>>;
  readonly signal?: AbortSignal;
  /** Default: a connection of its own. */
  readonly agent?: Agent;
}

export interface ChatResponse {
  /** 0 where no head came. */
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly body: string;
  /** Whether the framing says that this is all of it. */
  readonly ended: 'clean' | 'broken';
  /** The text of the model, as far as it came. */
  readonly text: string;
  /** Whether the API style's own end was seen: `[DONE]`, `message_stop`, or a whole JSON object. */
  readonly terminal: boolean;
  /** The error object of the body or of the last event, in the API style's shape. */
  readonly error: { readonly code?: unknown; readonly message?: unknown } | undefined;
}

const PATHS = { openai: '/v1/chat/completions', anthropic: '/v1/messages' } as const;

/** The request body of a question. */
const bodyOf = ({ style, mode, model, prompt, padding = 0 }: Question): string =>
  JSON.stringify({
    model,
    messages: [{ role: 'user', content: prompt }],
    stream: mode === 'stream',
    ...(style === 'anthropic' ? { max_tokens: 1000 } : {}),
    ...(padding > 0 ? { padding: 'x'.repeat(padding) } : {}),
  });

/** Resolves however it ends; rejects only where the signal ends it. */
export const ask = (url: string, question: Question): Promise<ChatResponse> =>
  DOOR === 'library' ? fetched(url, question) : asked(url, question);

async function fetched(url: string, question: Question): Promise<ChatResponse> {
  const { signal = null } = question;
  const chunks: Uint8Array[] = [];
  let head: Omit<Head, 'complete'> | undefined;
  let complete = false;
  try {
    const response = await fetch(`${url}${PATHS[question.style]}`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', ...question.headers },
      body: bodyOf(question),
      signal,
    });
    head = { statusCode: response.status, headers: Object.fromEntries(response.headers) };
    for await (const chunk of response.body ?? []) chunks.push(chunk);
    complete = true;
  } catch {
    signal?.throwIfAborted();
  }
  return readResponse(question, head && { ...head, complete }, Buffer.concat(chunks).toString());
}

function asked(url: string, question: Question): Promise<ChatResponse> {
  const { promise, resolve, reject } = Promise.withResolvers<ChatResponse>();
  const { signal } = question;
  const chunks: Buffer[] = [];
  let head: IncomingMessage | undefined;
  const settle = (): void => {
    signal?.removeEventListener('abort', leave);
    if (signal?.aborted) reject(signal.reason);
    else resolve(readResponse(question, head, Buffer.concat(chunks).toString()));
  };
  const req = request(`${url}${PATHS[question.style]}`, {
    method: 'POST',
    agent: question.agent ?? false,
    headers: { 'content-type': 'application/json', ...question.headers },
  });
  const leave = (): void => void req.destroy();
  signal?.addEventListener('abort', leave, { once: true });
  req.on('error', () => {});
  req.on('close', settle);
  req.on('response', (res) => {
    head = res;
    res.on('error', () => {});
    res.on('data', (chunk: Buffer) => chunks.push(chunk));
  });
  req.end(bodyOf(question));
  return promise;
}

type Head = Pick<IncomingMessage, 'headers' | 'complete'> & { readonly statusCode?: number | undefined };

function readResponse({ style }: Question, head: Head | undefined, body: string): ChatResponse {
  const isStream = head?.headers['content-type']?.includes('event-stream') === true;
  const objects = isStream ? dataOf(body) : parsed(body);
  return {
    status: head?.statusCode ?? 0,
    headers: head?.headers ?? {},
    body,
    ended: head?.complete === true ? 'clean' : 'broken',
    text: objects.map(style === 'openai' ? openaiText : anthropicText).join(''),
    terminal: isStream
      ? style === 'openai'
        ? body.endsWith('data: [DONE]\n\n')
        : body.trimEnd().split('\n').at(-1) === 'data: {"type":"message_stop"}'
      : objects.length === 1,
    error: objects.map(({ error }) => error).findLast((error) => error !== undefined),
  };
}

interface ResponseObject {
  readonly error?: { readonly code?: unknown; readonly message?: unknown };
  readonly choices?: readonly { delta?: { content?: string }; message?: { content: string } }[];
  readonly delta?: { readonly text?: string };
  readonly content?: readonly { readonly text: string }[];
}

/** The JSON objects of an event stream. */
const dataOf = (body: string): ResponseObject[] =>
  body.split('\n').flatMap((line) => (line.startsWith('data: {') ? parsed(line.slice('data: '.length)) : []));

function parsed(json: string): ResponseObject[] {
  try {
    return [JSON.parse(json) as ResponseObject];
  } catch {
    return [];
  }
}

const openaiText = ({ choices }: ResponseObject): string =>
  choices?.[0]?.delta?.content ?? choices?.[0]?.message?.content ?? '';

const anthropicText = ({ delta, content }: ResponseObject): string => delta?.text ?? content?.[0]?.text ?? '';
