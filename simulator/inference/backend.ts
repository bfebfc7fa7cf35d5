/**
 * Forwards decrypted requests to a real OpenAI-compatible server over HTTP or HTTPS, and reads its
 * responses.
 */
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { request as httpRequest, type IncomingMessage } from 'node:http';
import { request as httpsRequest } from 'node:https';
import { buildForm } from './form.ts';
import type { ModelEvent, ModelResponse } from './models/response.ts';
import { Rejection } from './rejection.ts';
import type { OpenedBody } from './request.ts';

function bodyOf(body: OpenedBody | undefined): { readonly bytes: Buffer; readonly contentType: string } {
  if (body === undefined) return { bytes: Buffer.alloc(0), contentType: '' };
  if (body.kind === 'json') return { bytes: Buffer.from(body.text), contentType: 'application/json' };
  if (body.kind === 'raw') return { bytes: body.bytes, contentType: body.contentType };
  const boundary = randomUUID();
  return { bytes: buildForm(body.parts, boundary), contentType: `multipart/form-data; boundary=${boundary}` };
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

/**
 * Reads events line by line, as the server does (docs/protocol/inference.md 6.2): an event is a data line and
 * the name line before it.
 */
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

async function textOf(response: IncomingMessage): Promise<string> {
  let text = '';
  for await (const chunk of response) text += chunk;
  return text;
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
  const { bytes, contentType } = bodyOf(body);
  const headers = {
    'content-length': bytes.length,
    ...(contentType !== '' && { 'content-type': contentType }),
  };
  const url = new URL(target, base);
  const send = url.protocol === 'https:' ? httpsRequest : httpRequest;
  const outgoing = send(url, { method, headers, signal, agent: false });
  outgoing.end(bytes);
  let response: IncomingMessage;
  try {
    [response] = (await once(outgoing, 'response')) as [IncomingMessage];
  } catch (cause) {
    signal.throwIfAborted();
    throw new Rejection(502, 'the backend cannot be reached', { cause });
  }
  response.setEncoding('utf8');
  const status = response.statusCode ?? 502;
  if (response.headers['content-type']?.includes('event-stream')) {
    return { kind: 'stream', status, events: eventsOf(response as AsyncIterable<string>) };
  }
  return { kind: 'unary', status, body: await textOf(response) };
}
