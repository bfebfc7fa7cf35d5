/** Before anything is measured: every subject must give the right bytes, streamed and whole. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { SecretKey } from '#crypto';
import { RequestCipher } from '../lib/envelope/message-cipher.ts';
import { decryptBody } from '../lib/pipeline/decrypt-body.ts';
import { EventDecrypter } from '../lib/pipeline/decrypt-events.ts';
import {
  chatBody,
  DONE,
  OPEN_SECRET,
  type Plan,
  plainAnswer,
  plainEvents,
  sealedChatBody,
} from './fixtures.ts';
import { dial, requestHead, type Target } from './load.ts';
import type { Subject } from './subjects.ts';

const EVENTS = 7;

/** Throws where an answer through that subject is not what the upstream was asked for. */
export async function checkAnswers({ name, target }: Subject): Promise<void> {
  const stream = await answer(target, { events: EVENTS, pace: 5 });
  assert.equal(stream, plainEvents(EVENTS).join('') + DONE, `the stream through ${name}`);
  const whole = await answer(target, { unary: true });
  assert.equal(whole, plainAnswer(), `the whole answer through ${name}`);
}

/** The body of an answer, opened where the subject leaves that to its client. */
async function answer(target: Target, plan: Partial<Plan>): Promise<string> {
  const socket = await dial(target);
  const body = target.sealed ? sealedChatBody(plan) : chatBody(plan);
  const head = requestHead(target, plan, body.length).replace('\r\n', '\r\nConnection: close\r\n');
  socket.write(Buffer.concat([Buffer.from(head), body]));
  const chunks: Buffer[] = [];
  socket.on('data', (chunk: Buffer) => chunks.push(chunk));
  await once(socket, 'close');
  const text = bodyOf(Buffer.concat(chunks).toString('latin1'));
  return target.sealed ? opened(text, plan.unary === true) : text;
}

/** The body of a raw HTTP/1.1 message, its chunks joined. */
export function bodyOf(message: string): string {
  const end = message.indexOf('\r\n\r\n') + 4;
  if (!/^transfer-encoding: chunked\r$/im.test(message.slice(0, end))) return message.slice(end);
  let body = '';
  for (let at = end; ; ) {
    const line = message.indexOf('\r\n', at);
    const size = Number.parseInt(message.slice(at, line), 16);
    if (!(size > 0)) return body;
    body += message.slice(line + 2, line + 2 + size);
    at = line + 2 + size + 2;
  }
}

async function opened(text: string, unary: boolean): Promise<string> {
  const secret = { id: OPEN_SECRET.id, key: new SecretKey(Buffer.from(OPEN_SECRET.key)) };
  const cipher = new RequestCipher(secret, { nonce: OPEN_SECRET.nonce });
  const asked = { streaming: !unary, choices: 1, format: undefined, usage: 'every' } as const;
  const wire = Buffer.from(text, 'latin1');
  if (unary) return (await decryptBody({ id: 'chat' }, cipher, asked, wire)).body.toString();
  const opener = new EventDecrypter({ id: 'chat' }, cipher, asked);
  const bytes = opener.feed(wire);
  opener.end();
  if (opener.failure !== undefined) throw opener.failure;
  return Buffer.from(bytes).toString('utf8');
}
