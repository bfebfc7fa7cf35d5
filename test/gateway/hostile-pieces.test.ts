/**
 * Bodies and answers in pieces of one byte: for the price of six bytes on the wire, none may cost more than
 * its share.
 */
import assert from 'node:assert/strict';
import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import type { Socket } from 'node:net';
import { describe, it, type TestContext } from 'node:test';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import type { Upstream } from '../../lib/network/upstream.ts';
import type { Session } from '../../lib/session/session.ts';
import { EPOCH, fakeSession } from '../support/doors/gateway.ts';
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

setFlagsFromString('--expose-gc');
const collect = runInNewContext('gc') as () => void;

/** Everything that is held after a collection. */
function held(): number {
  collect();
  const { heapUsed, arrayBuffers } = process.memoryUsage();
  return heapUsed + arrayBuffers;
}

/** What a TLS record of 16 KiB holds. */
const RECORD_PIECES = 2_731;

const filler = 'x'.repeat(BYTES);
const form = (name: string, rest: string, value: string): string =>
  `--b\r\nContent-Disposition: form-data; name="${name}"${rest}\r\n\r\n${value}\r\n`;

/** One body for each way of taking one in. */
const BODIES: readonly (readonly [name: string, path: string, contentType: string, body: string])[] = [
  ['JSON', '/v1/chat/completions', 'application/json', chatBody({ user: filler })],
  [
    'a form',
    '/v1/audio/transcriptions',
    'multipart/form-data; boundary=b',
    `${form('model', '', 'm')}${form('file', '; filename="f"', filler)}--b--\r\n`,
  ],
  ['raw bytes', '/unstructured/general/v0/general', 'application/octet-stream', filler],
];

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

/** How much a figure grew in each turn of the event loop, until `over`. */
async function byTurn(read: () => number, over: () => boolean): Promise<number[]> {
  const turns: number[] = [];
  for (let before = read(); !over(); ) {
    await new Promise((turn) => setImmediate(turn));
    const now = read();
    turns.push(now - before);
    before = now;
  }
  return turns;
}

/** A session that is verified when it is told. */
function waitingSession(): { readonly session: Session; readonly ready: () => void } {
  const { promise, resolve } = Promise.withResolvers<typeof EPOCH>();
  return { session: fakeSession({ acquire: () => promise }), ready: () => resolve(EPOCH) };
}

describe('bodies in pieces of one byte', { timeout: 600_000 }, () => {
  for (const [name, path, contentType, body] of BODIES) {
    it(`${name}: takes at most three times its size in memory, and is read a little per turn of the event loop`, async (t) => {
      const { session, ready } = waitingSession();
      const settings = { maxBodyBytes: 10 * MIB };
      const { upstream, gateway, sending } = await gatewayFixture(t, { session, settings });
      const read = bytesRead(t, gateway);
      upstream.answers('HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n');
      const pieces = inPieces(body);
      const asking = sending(head(path, contentType));
      await eventually('the request', () => gateway.active() === 1);
      const before = held();
      asking.send(pieces);
      const arrived = (): boolean => gateway.counters.bufferedBytes === body.length;
      const turns = await byTurn(read, arrived);
      const taken = held() - before;
      assert.ok(taken < 3 * body.length + MIB, `${taken} bytes for ${body.length}`);
      assert.ok(Math.max(...turns) <= 2 * READ, `${Math.max(...turns)} bytes read in one turn`);
      asking.send('0\r\n\r\n');
      ready();
      await answerTo(asking);
      assert.equal(upstream.requests.length, 1);
    });
  }

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

  it('share the reads of a turn: eight bodies together are read as often as one', async (t) => {
    const { session, ready } = waitingSession();
    const { gateway, client, upstream } = await gatewayFixture(t, { session });
    const read = bytesRead(t, gateway);
    upstream.on((scripted) => scripted.write('HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n'));
    const body = 'x'.repeat(50_000);
    const pieces = inPieces(body);
    const clients = Array.from({ length: 8 }, () => client());
    for (const asking of clients) asking.send(head('/unstructured/general/v0/general', 'text/plain'));
    await eventually('all requests', () => gateway.active() === 8);
    for (const asking of clients) asking.send(pieces);
    const turns = await byTurn(read, () => gateway.counters.bufferedBytes === 8 * body.length);
    // Each may come with its first read in the same turn, before it is known for what it is.
    const crowded = turns.filter((bytes) => bytes > 2 * READ);
    assert.ok(crowded.length <= 2, `${crowded} bytes read in one turn`);
    for (const asking of clients) asking.send('0\r\n\r\n');
    ready();
    for (const asking of clients) await answerTo(asking);
    assert.equal(upstream.requests.length, 8);
  });

  it('are read a little per turn even if each read ends with a long piece', async (t) => {
    const { session, ready } = waitingSession();
    const { gateway, sending, upstream } = await gatewayFixture(t, {
      session,
      settings: { maxBodyBytes: 10 * MIB },
    });
    const read = bytesRead(t, gateway);
    upstream.on((scripted) => scripted.write('HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n'));
    const long = Buffer.from(`2000\r\n${'x'.repeat(8_192)}\r\n`);
    const short = (READ - long.length) / 6;
    const asking = sending(head('/unstructured/general/v0/general', 'text/plain'));
    await eventually('the request', () => gateway.active() === 1);
    asking.send(Buffer.concat(Array.from({ length: 40 }, () => [inPieces('x'.repeat(short)), long]).flat()));
    const turns = await byTurn(read, () => gateway.counters.bufferedBytes === 40 * (short + 8_192));
    assert.ok(Math.max(...turns) <= 2 * READ, `${Math.max(...turns)} bytes read in one turn`);
    asking.send('0\r\n\r\n');
    ready();
    await answerTo(asking);
    assert.equal(upstream.requests.length, 1);
  });

  it('are read a little per turn even if nobody consumes them, as with a GET', async (t) => {
    const { gateway, upstream, sending } = await gatewayFixture(t);
    const read = bytesRead(t, gateway);
    const all = Promise.withResolvers<void>();
    upstream.on(async (scripted) => {
      await all.promise;
      await scripted.write('HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n');
    });
    const asking = sending(get('/v1/models', ['Transfer-Encoding: chunked']));
    await eventually('the request', () => upstream.requests.length === 1);
    asking.send(inPieces(filler));
    const turns = await byTurn(read, () => read() >= 6 * BYTES);
    all.resolve();
    assert.equal((await answerTo(asking)).status, 200);
    assert.ok(Math.max(...turns) <= 2 * READ, `${Math.max(...turns)} bytes read in one turn`);
  });

  for (const [name, path, status] of [
    ['a body that is no JSON', '/v1/chat/completions', 400],
    ['an unknown path', '/nowhere', 404],
  ] as const) {
    it(`are not read to their end if ${name} is refused with ${status}`, async (t) => {
      const { gateway, sending } = await gatewayFixture(t);
      const read = bytesRead(t, gateway);
      const asking = sending(head(path, 'application/json'));
      await eventually('the request', () => read() > 0);
      asking.send(inPieces(filler));
      await asking.ended;
      assert.match(asking.received(), new RegExp(`^HTTP/1.1 ${status} `));
      assert.ok(read() < 5 * READ, `${read()} bytes were read`);
    });
  }
});

/** Counts the pieces of answers that Node's parser has given to their streams. */
function parsedPieces(): { readonly count: () => number; readonly wrap: (inner: Upstream) => Upstream } {
  let parsed = 0;
  const wrap = ({ authority, send }: Upstream): Upstream => ({
    authority,
    async send(res, attempt) {
      const sent = await send(res, attempt);
      const { push } = sent.response;
      sent.response.push = function counting(chunk) {
        parsed += 1;
        return push.call(this, chunk);
      };
      return sent;
    },
  });
  return { count: () => parsed, wrap };
}

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
    it(`arrive unchanged, with few pieces parsed per turn of the event loop: ${name}`, async (t) => {
      const { count, wrap } = parsedPieces();
      const { upstream, sending } = await gatewayFixture(t, { wrapUpstream: wrap });
      let pieces = 0;
      upstream.on(async (scripted) => {
        const text = answer(await scripted.body());
        pieces = text.length;
        await scripted.write(
          `HTTP/1.1 200 OK\r\nContent-Type: ${type}\r\nTransfer-Encoding: chunked\r\n\r\n`,
        );
        await scripted.write(Buffer.concat([inPieces(text), Buffer.from('0\r\n\r\n')]));
      });
      const asking = sending(post(chatBody(members)));
      const turns = await byTurn(count, () => pieces > 0 && count() >= pieces);
      const { status, complete, body } = await answerTo(asking);
      assert.deepEqual([status, complete], [200, true]);
      const last = type === 'application/json' ? LONG : '<99>';
      assert.ok(body.includes(`"content":"${last}"`), 'another text arrived');
      // The first pieces of a record pass, so that the stream asks for one more.
      const most = Math.max(...turns);
      assert.ok(most <= 2 * RECORD_PIECES, `${most} pieces parsed in one turn`);
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
