/** Bodies and answers in pieces of one byte, of which each takes six bytes on the wire. */
import assert from 'node:assert/strict';
import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import type { Socket } from 'node:net';
import { describe, it, type TestContext } from 'node:test';
import { answerTo, chatBody, gatewayFixture, get, post } from '../support/doors/gateway-fixture.ts';
import { eventually } from '../support/processes/eventually.ts';
import {
  COMPLETION,
  completion,
  DONE,
  openedRequest,
  STREAM_HEAD,
  sealedAnswers,
} from '../support/remote/sealed-answers.ts';

const BYTES = 100_000;
const MIB = 1024 * 1024;
/** What Node reads from a connection at once. */
const READ = 64 * 1024;

const filler = 'x'.repeat(BYTES);
const inPieces = (body: string): Buffer => {
  const pieces = Buffer.alloc(6 * body.length);
  for (let i = 0; i < body.length; i++) pieces.write(`1\r\n${body[i]}\r\n`, 6 * i, 'latin1');
  return pieces;
};

const head = (path: string, contentType: string): string =>
  [
    `POST ${path} HTTP/1.1`,
    'Host: localhost:8080',
    `Content-Type: ${contentType}`,
    'Transfer-Encoding: chunked\r\n\r\n',
  ].join('\r\n');

/** Bytes that a gateway has read from all its connections so far. */
function bytesRead(t: TestContext, { port }: { readonly port: number }): () => number {
  const sockets = new Set<Socket>();
  const seen = (message: unknown): void => {
    const { socket } = message as { readonly socket: Socket };
    if (socket.localPort === port) sockets.add(socket);
  };
  subscribe('http.server.request.start', seen);
  t.after(() => unsubscribe('http.server.request.start', seen));
  return () => [...sockets].reduce((sum, socket) => sum + socket.bytesRead, 0);
}

describe('bodies in pieces of one byte', { timeout: 600_000 }, () => {
  it('arrive unchanged', async (t) => {
    const { upstream, sending } = await gatewayFixture(t, {
      answers: completion,
      settings: { maxBodyBytes: 10 * MIB },
    });
    const text = Array.from({ length: 40_000 }, (_, i) => i).join();
    const asking = sending(head('/v1/chat/completions', 'application/json'));
    asking.send(inPieces(chatBody({ user: text })));
    asking.send('0\r\n\r\n');
    assert.equal((await answerTo(asking)).status, 200);
    const opened = openedRequest(upstream.requests[0]?.body as Buffer);
    assert.ok(opened.get('user') === JSON.stringify(text), 'another text arrived');
    // The connection has not stopped reading.
    asking.send(get('/healthz'));
    await asking.until(/HTTP\/1\.1 200[\s\S]*HTTP\/1\.1 200/);
  });

  it('are not read to their end if an unknown path is refused with 404', async (t) => {
    const { gateway, sending } = await gatewayFixture(t);
    const read = bytesRead(t, gateway);
    const asking = sending(head('/nowhere', 'application/json'));
    await eventually('the request', () => read() > 0);
    asking.send(inPieces(filler));
    await asking.ended;
    assert.match(asking.received(), /^HTTP\/1.1 404 /);
    assert.ok(read() < 5 * READ, `${read()} bytes were read`);
  });
});

/** What follows the head of an answer that is sealed for that request; as text, and who gets it. */
const ANSWERS: readonly (readonly [
  name: string,
  type: string,
  members: Readonly<Record<string, unknown>>,
  answer: (body: Buffer) => string,
])[] = [
  ['a whole body', 'application/json', {}, longBody],
  ['an event stream', 'text/event-stream', { stream: true }, manyEvents],
  [
    'comments',
    'text/event-stream',
    { stream: true },
    (body) => `${':\n\n'.repeat(20_000)}${manyEvents(body)}`,
  ],
];

const LONG = 'x'.repeat(40_000);

function longBody(body: Buffer): string {
  const { usage, choices, ...rest } = COMPLETION;
  const choice = choices[0]!;
  const message = { ...choice.message, content: LONG };
  return sealedAnswers(body).object({ ...rest, choices: [{ ...choice, message }], usage });
}

function manyEvents(body: Buffer): string {
  const sealed = sealedAnswers(body);
  const tokens = Array.from({ length: 100 }, (_, i) => sealed.chunk(`<${i}>`));
  return `${tokens.join('')}${sealed.chunk('', 'stop')}${DONE}`;
}

describe('answers in pieces of one byte', { timeout: 600_000 }, () => {
  for (const [name, type, members, answer] of ANSWERS) {
    it(`arrive unchanged: ${name}`, async (t) => {
      const { upstream, ask } = await gatewayFixture(t);
      upstream.on(async (scripted) => {
        const text = answer(await scripted.body());
        await scripted.write(
          `HTTP/1.1 200 OK\r\nContent-Type: ${type}\r\nTransfer-Encoding: chunked\r\n\r\n`,
        );
        await scripted.write(Buffer.concat([inPieces(text), Buffer.from('0\r\n\r\n')]));
      });
      const { status, complete, body } = await ask(post(chatBody(members)));
      assert.deepEqual([status, complete], [200, true]);
      const last = type === 'application/json' ? LONG : '<99>';
      assert.ok(body.includes(`"content":"${last}"`), 'another text arrived');
    });
  }

  it('leave the upstream connection usable for the next request', async (t) => {
    const { upstream, ask } = await gatewayFixture(t);
    upstream.on(async (scripted) => {
      const answer = Buffer.concat([inPieces(manyEvents(await scripted.body())), Buffer.from('0\r\n\r\n')]);
      await scripted.write(Buffer.concat([Buffer.from(STREAM_HEAD), answer]));
    });
    const request = post(chatBody({ stream: true }));
    for (let i = 0; i < 2; i++) assert.ok((await ask(request)).complete);
    assert.equal(upstream.connections.total, 1);
  });

  it('end with stream_unfinished if the connection to the service ends before the last event', async (t) => {
    const { upstream, ask } = await gatewayFixture(t);
    upstream.on(async (scripted) => {
      const pieces = inPieces(manyEvents(await scripted.body()).slice(0, -400));
      await scripted.write(Buffer.concat([Buffer.from(STREAM_HEAD), pieces]));
      scripted.end();
    });
    const { complete, body } = await ask(post(chatBody({ stream: true })));
    assert.equal(complete, false);
    assert.match(body, /<90>[\s\S]*"code":"stream_unfinished"[^\n]*\n\n$/);
  });
});
