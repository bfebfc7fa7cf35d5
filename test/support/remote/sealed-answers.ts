/** The server's side of one request: answers sealed for the nonce it came with, by the literal envelope. */
import type { CipherKey } from 'node:crypto';
import { EXCHANGE } from './exchange-fixture.ts';
import {
  type LiteralExchange,
  literalOpen,
  literalSealObject,
  literalUnsealObject,
} from './literal-envelope.ts';
import { PLAIN_MEMBERS } from './plain-members.ts';
import { chatChunk, DONE } from './sealed-stream.ts';

export { DONE } from './sealed-stream.ts';

/** Which secret and nonce a sealed request uses; reads the first message it finds. Throws where there is none. */
export function exchangeOf(body: Buffer, secret: CipherKey = EXCHANGE.secret): LiteralExchange {
  const match = /([A-Za-z0-9+/]{43}=):([0-9a-f]{24}):[0-9a-f]{24}:/.exec(body.toString('latin1'));
  if (match === null) throw new Error('the request holds no sealed message');
  return { id: match[1] as string, secret, nonce: Buffer.from(match[2] as string, 'hex') };
}

/** The members of a sealed JSON request as the server reads them: raw text by name; the plain ones are left out. */
export const openedRequest = (
  body: Buffer,
  plain: ReadonlySet<string> = PLAIN_MEMBERS.C,
): Map<string, string> => literalUnsealObject(exchangeOf(body), body.toString('utf8'), [...plain]);

/** A whole raw request (the unstructured endpoint), opened. */
export const openedRaw = (body: Buffer): Buffer => literalOpen(exchangeOf(body), 0, body.toString('latin1'));

export interface SealedAnswers {
  /** A JSON object with every member sealed that is not plain; the counter goes on from call to call. */
  object(value: Readonly<Record<string, unknown>>): string;
  /** One event of a stream. */
  event(value: Readonly<Record<string, unknown>>, name?: string): string;
  /** A chat chunk as an event. */
  chunk(content: string, finish?: string | null): string;
}

/** `plain`: the members that stay plain in answers. */
export function sealedAnswers(
  request: Buffer,
  plain: ReadonlySet<string> = PLAIN_MEMBERS.R,
  secret?: CipherKey,
): SealedAnswers {
  const exchange = exchangeOf(request, secret);
  let sequence = 0;
  let ivs = 0;
  const nextIv = (): Buffer => {
    const iv = Buffer.alloc(12);
    iv.writeUInt32BE(ivs++, 8);
    return iv;
  };
  const object = (value: Readonly<Record<string, unknown>>): string => {
    const members = Object.entries(value).map(([name, member]) => ({
      name,
      writtenName: JSON.stringify(name),
      raw: JSON.stringify(member),
    }));
    const sealed = literalSealObject(exchange, members, [...plain], nextIv, sequence);
    sequence += members.filter(({ name }) => !plain.has(name)).length;
    return sealed;
  };
  const event = (value: Readonly<Record<string, unknown>>, name?: string): string =>
    `${name === undefined ? '' : `event: ${name}\n`}data: ${object(value)}\n\n`;
  return { object, event, chunk: (content, finish = null) => event(chatChunk(content, finish)) };
}

export const COMPLETION = {
  id: 'chatcmpl-1',
  object: 'chat.completion',
  created: 1_700_000_000,
  model: 'm',
  choices: [{ index: 0, message: { role: 'assistant', content: 'hello' }, finish_reason: 'stop' }],
  usage: { total_tokens: 4 },
};

/** The same of the completions API. */
export const TEXT_COMPLETION = {
  ...COMPLETION,
  object: 'text_completion',
  choices: [{ index: 0, text: 'hello', finish_reason: 'stop' }],
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
