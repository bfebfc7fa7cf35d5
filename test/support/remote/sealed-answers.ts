/** The server's side of one request: answers sealed for the nonce it came with, by the literal envelope. */
import { PLAIN_MEMBERS } from './endpoints.ts';
import { EXCHANGE } from './exchange-fixture.ts';
import { type LiteralExchange, literalUnsealObject } from './literal-envelope.ts';
import type { Script } from './scripted-upstream.ts';
import { DONE, type SealedStream, sealedStream } from './sealed-stream.ts';

export { DONE } from './sealed-stream.ts';

/**
 * Which secret and nonce a sealed request uses; reads the first message it finds. Throws where there is none.
 */
export function exchangeOf(body: Buffer, secret = EXCHANGE.secret): LiteralExchange {
  const match = /([A-Za-z0-9+/]{43}=):([0-9a-f]{24}):[0-9a-f]{24}:/.exec(body.toString('latin1'));
  if (match === null) throw new Error('the request holds no sealed message');
  return { id: match[1] as string, secret, nonce: Buffer.from(match[2] as string, 'hex') };
}

/**
 * The members of a sealed JSON request as the server reads them: raw text by name; the plain ones are left
 * out.
 */
export const openedRequest = (
  body: Buffer,
  plain: ReadonlySet<string> = PLAIN_MEMBERS.C,
): Map<string, string> => literalUnsealObject(exchangeOf(body), body.toString('utf8'), [...plain]);

/** Answers to a sealed request. `plain`: the members that stay plain in them. */
export const sealedAnswers = (
  request: Buffer,
  plain: Iterable<string> = PLAIN_MEMBERS.R,
  secret?: LiteralExchange['secret'],
): SealedStream => sealedStream(plain, exchangeOf(request, secret));

export const COMPLETION = {
  id: 'chatcmpl-1',
  object: 'chat.completion',
  created: 1_700_000_000,
  model: 'm',
  choices: [{ index: 0, message: { role: 'assistant', content: 'hello' }, finish_reason: 'stop' }],
  usage: { total_tokens: 4 },
};

/** An HTTP/1.1 answer with Content-Length. */
export function http(status: number, body: string, headers: Readonly<Record<string, string>> = {}): string {
  const lines = Object.entries({ 'Content-Length': String(Buffer.byteLength(body)), ...headers }).map(
    ([name, value]) => `${name}: ${value}\r\n`,
  );
  return `HTTP/1.1 ${status} Scripted\r\n${lines.join('')}\r\n${body}`;
}

/** The sealed completion as a whole HTTP answer. */
export const completion = (request: Buffer, headers: Readonly<Record<string, string>> = {}): string =>
  http(200, sealedAnswers(request).object(COMPLETION), { 'Content-Type': 'application/json', ...headers });

export const STREAM_HEAD =
  'HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n';

/** One chunk of a chunked body. */
export const chunked = (text: string): string => `${Buffer.byteLength(text).toString(16)}\r\n${text}\r\n`;
export const LAST_CHUNK = '0\r\n\r\n';

/** The beginning of a stream: its head and its first event. */
export const beginning = (request: Buffer): string =>
  STREAM_HEAD + chunked(sealedAnswers(request).chunk('hel'));

/** Begins a stream, and ends it when `go` resolves. */
export const inTwoParts =
  (go: Promise<unknown>): Script =>
  async (scripted) => {
    const sealed = sealedAnswers(await scripted.body());
    await scripted.write(STREAM_HEAD + chunked(sealed.chunk('hel')));
    await go;
    await scripted.write(chunked(sealed.chunk('lo', 'stop')) + chunked(DONE) + LAST_CHUNK);
  };

/** A short, complete chat stream. */
export function chatStream(request: Buffer): string {
  const sealed = sealedAnswers(request);
  const events = [sealed.chunk('hel'), sealed.chunk('lo', 'stop'), DONE];
  return STREAM_HEAD + events.map(chunked).join('') + LAST_CHUNK;
}

/** The same answer with one bit of the tag of its first message turned. */
export const tampered = (answer: string): string =>
  answer.replace(/([0-9a-f]{31})([0-9a-f])"/, (_, rest: string, last: string) => {
    return `${rest}${(Number.parseInt(last, 16) ^ 1).toString(16)}"`;
  });

/** An error of the service that says of itself that it is plain. */
export const plainError = (status: number, message: string, headers: Readonly<Record<string, string>> = {}) =>
  http(status, JSON.stringify({ error: { message, type: 'server_error' } }), {
    'Content-Type': 'application/json',
    'Privatemode-Encrypted': 'false',
    ...headers,
  });
