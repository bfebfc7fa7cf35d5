/**
 * Forwards decrypted requests to a real OpenAI-compatible server over HTTP or HTTPS, and reads its responses.
 */
import type { ModelEvent, ModelResponse } from './models/response.ts';
import { Rejection } from './rejection.ts';
import type { OpenedBody } from './request.ts';

/** What `fetch` sends; it writes a form, and the content type of one, itself. */
function contentOf(body: OpenedBody | undefined): RequestInit {
  if (body === undefined) return {};
  if (body.kind === 'json') return { body: body.text, headers: { 'content-type': 'application/json' } };
  if (body.kind === 'raw')
    return { body: new Uint8Array(body.bytes), headers: { 'content-type': body.contentType } };
  const form = new FormData();
  for (const { name, body: bytes, filename, contentType = '' } of body.parts) {
    if (filename === undefined) form.append(name, bytes.toString('utf8'));
    else form.append(name, new Blob([new Uint8Array(bytes)], { type: contentType }), filename);
  }
  return { body: form };
}

/** Lines without their line ends (LF or CRLF); an unfinished last line counts. */
async function* linesOf(source: AsyncIterable<string>): AsyncGenerator<string> {
  let rest = '';
  for await (const chunk of source) {
    const lines = (rest + chunk).split('\n');
    rest = lines.pop()!;
    for (const line of lines) yield line.replace(/\r$/, '');
  }
  if (rest !== '') yield rest;
}

/** An event is a data line and the name line before it (docs/protocol/inference.md 6.2). */
async function* eventsOf(source: AsyncIterable<string>): AsyncGenerator<ModelEvent> {
  let event: string | undefined;
  for await (const line of linesOf(source)) {
    const [, field, value] = /^(event|data): ?(.*)$/s.exec(line) ?? [];
    if (field === 'event') event = value;
    if (field !== 'data' || value === undefined) continue;
    yield event === undefined ? { data: value } : { event, data: value };
    event = undefined;
  }
}

/**
 * Sends the decrypted body to `target` (path and query) of the server at `base`. Closes the connection when
 * `signal` aborts. Throws Rejection (502) with its cause if the server cannot be reached.
 */
export async function backendResponse(
  base: string,
  method: string,
  target: string,
  body: OpenedBody | undefined,
  signal: AbortSignal,
): Promise<ModelResponse> {
  const request = new Request(new URL(target, base), { method, signal, ...contentOf(body) });
  // A server may close an idle connection just when the next request takes it.
  request.headers.set('connection', 'close');
  const response = await fetch(request).catch((error: Error) => {
    signal.throwIfAborted();
    throw new Rejection(502, 'the backend cannot be reached', { cause: error.cause });
  });
  const { status } = response;
  if (response.body !== null && response.headers.get('content-type')?.includes('event-stream')) {
    const text = response.body.pipeThrough(new TextDecoderStream());
    return { kind: 'stream', status, events: eventsOf(text) };
  }
  return { kind: 'unary', status, body: await response.text() };
}
