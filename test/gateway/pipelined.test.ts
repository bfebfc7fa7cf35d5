/**
 * Requests that a client sends ahead of their responses: one runs at a time, how many may wait, and that none
 * is lost.
 */
import assert from 'node:assert/strict';
import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo, Socket } from 'node:net';
import { describe, it, type TestContext } from 'node:test';
import { oneAtATime } from '../../lib/gateway/pipelined-requests.ts';
import { chatBody, gatewayFixture, get, post } from '../support/doors/gateway-fixture.ts';
import { type RawClient, rawClient, readAnswer } from '../support/doors/raw-client.ts';
import { eventually } from '../support/processes/eventually.ts';
import {
  COMPLETION,
  chunked,
  completion,
  http,
  LAST_CHUNK,
  openedRequest,
  sealedAnswers,
} from '../support/remote/sealed-answers.ts';

const MODELS = '{"object":"list","data":[]}';
const times = <T>(count: number, make: (index: number) => T): T[] =>
  Array.from({ length: count }, (_, i) => make(i));

/** A server that begins one request of a connection at a time, and connections to it. */
async function serving(t: TestContext, begin: (req: IncomingMessage, res: ServerResponse) => void) {
  const gaveUp: true[] = [];
  const sockets: Socket[] = [];
  const server = createServer(oneAtATime(begin, () => gaveUp.push(true)));
  server.on('connection', (socket: Socket) => sockets.push(socket));
  await new Promise<void>((listening) => server.listen(0, '127.0.0.1', listening));
  const clients: RawClient[] = [];
  t.after(() => {
    for (const { socket } of clients) socket.destroy();
    server.close();
    server.closeAllConnections();
  });
  const client = (): RawClient => {
    const opened = rawClient((server.address() as AddressInfo).port);
    clients.push(opened);
    return opened;
  };
  const sending = (request: string | Uint8Array): RawClient => {
    const opened = client();
    opened.send(request);
    return opened;
  };
  return {
    client,
    sending,
    gaveUp,
    bytesRead: () => sockets.reduce((sum, { bytesRead }) => sum + bytesRead, 0),
  };
}

/** How much a figure grew in each turn of the event loop, until it is `end`. */
async function byTurn(read: () => number, end: number): Promise<number[]> {
  const turns: number[] = [];
  for (let before = read(); before < end; ) {
    await new Promise((turn) => setImmediate(turn));
    turns.push(read() - before);
    before = read();
  }
  return turns;
}

const SMALL = 'GET /x HTTP/1.1\r\nHost: x\r\n\r\n';
const responsesIn = (text: string): number => text.split('HTTP/1.1 ').length - 1;

describe('pipelined requests', { timeout: 600_000 }, () => {
  it('a request that is alone on its connection is begun at once', async (t) => {
    let begun = false;
    let atOnce: boolean | undefined;
    const { client } = await serving(t, (_, res) => {
      begun = true;
      res.end();
    });
    const seen = (): void => queueMicrotask(() => (atOnce ??= begun));
    subscribe('http.server.request.start', seen);
    t.after(() => unsubscribe('http.server.request.start', seen));
    client().send(SMALL);
    await eventually('its begin', () => begun);
    assert.equal(atOnce, true);
  });

  it('run one at a time on a connection, and are begun in their order', async (t) => {
    const open = new Set<ServerResponse>();
    const paths: string[] = [];
    let most = 0;
    const { sending } = await serving(t, (req, res) => {
      paths.push(req.url as string);
      open.add(res);
      most = Math.max(most, open.size);
      res.once('close', () => open.delete(res));
    });
    const asking = sending(times(500, (i) => get(`/${i}`)).join(''));
    await eventually('the first to be begun', () => open.size === 1);
    await new Promise((later) => setTimeout(later, 50));
    assert.equal(paths.length, 1);
    while (paths.length < 500 || open.size > 0) {
      for (const res of open) res.end();
      await new Promise((turn) => setImmediate(turn));
    }
    await eventually('all answers', () => responsesIn(asking.received()) === 500);
    assert.deepEqual([most, paths], [1, times(500, (i) => `/${i}`)]);
  });

  it('of one connection are begun one per turn of the event loop', async (t) => {
    let done = 0;
    const { client } = await serving(t, (_, res) => {
      done += 1;
      res.end();
    });
    client().send(SMALL.repeat(200));
    const turns = await byTurn(() => done, 200);
    // The first one is begun when it comes.
    assert.ok(Math.max(...turns) <= 2, `${Math.max(...turns)} in one turn`);
  });

  it('are parsed one read per turn of the event loop if a connection has many', async (t) => {
    let done = 0;
    const { client, bytesRead } = await serving(t, (_, res) => {
      done += 1;
      res.end();
    });
    const large = get('/x', [`x: ${'x'.repeat(1_000)}`]).toString();
    client().send(large.repeat(3_000));
    const turns = await byTurn(bytesRead, 3_000 * large.length);
    await eventually('all to be begun', () => done === 3_000);
    assert.ok(Math.max(...turns) <= 2 * 64 * 1024, `${Math.max(...turns)} bytes in one turn`);
  });

  it('of eight connections are read per turn of the event loop as often as those of one', async (t) => {
    const { client, bytesRead } = await serving(t, () => {});
    const large = get('/x', [`x: ${'x'.repeat(1_000)}`]).toString();
    const clients = times(8, client);
    await eventually('the connections', () => clients.every(({ socket }) => !socket.connecting));
    for (const { send } of clients) send(large.repeat(1_000));
    const turns = await byTurn(bytesRead, 8 * 1_000 * large.length);
    // Each may come with its first read in the same turn.
    const crowded = turns.filter((bytes) => bytes > 2 * 64 * 1024);
    assert.ok(crowded.length <= 2, `${crowded} bytes read in one turn`);
  });

  for (const [name, request, most] of [
    ['4,096', SMALL, 4_096 * SMALL.length],
    ['4 MiB', get('/x', [`x: ${'x'.repeat(10_000)}`]).toString(), 4 * 1024 * 1024],
  ] as const) {
    it(`end their connection if more than ${name} of them wait`, async (t) => {
      let begun = 0;
      const { client, gaveUp, bytesRead } = await serving(t, () => {
        begun += 1;
      });
      const asking = client();
      const wait = request.repeat(Math.floor(most / request.length) - 10);
      asking.send(wait);
      await eventually('all to be read', () => bytesRead() === wait.length);
      await new Promise((later) => setTimeout(later, 50));
      assert.equal(gaveUp.length, 0);
      asking.send(request.repeat(Math.ceil(most / request.length)));
      await asking.ended;
      assert.deepEqual([begun, gaveUp.length], [1, 1]);
      assert.ok(bytesRead() < most + 3 * 64 * 1024, `${bytesRead()} bytes were read`);
    });
  }

  it('are limited by how many wait at a time, not by how many a connection brings', async (t) => {
    const begun: ServerResponse[] = [];
    const { client, gaveUp, bytesRead } = await serving(t, (_, res) => begun.push(res));
    const asking = client();
    const large = get('/x', [`x: ${'x'.repeat(14_000)}`]).toString();
    asking.send(large);
    for (let i = 1; i < 600; i++) {
      asking.send(large); // waits for the one before it
      while (bytesRead() < (i + 1) * large.length || begun.length < i) await new Promise(setImmediate);
      begun[i - 1]?.end();
    }
    assert.equal(gaveUp.length, 0);
  });

  for (const [name, end] of Object.entries<(res: ServerResponse, socket: Socket) => void>({
    'with the previous response': (res) => res.writeHead(200, { connection: 'close' }).end(),
    'right after the previous response': (res, socket) => {
      res.once('close', () => socket.destroy());
      res.end();
    },
  })) {
    it(`are not begun if their connection ends ${name}`, async (t) => {
      const paths: string[] = [];
      const { sending } = await serving(t, (req, res) => {
        paths.push(req.url as string);
        setTimeout(end, 20, res, req.socket);
      });
      const asking = sending(get('/0') + get('/1') + get('/2'));
      await asking.ended;
      await new Promise((turn) => setImmediate(turn));
      assert.deepEqual(paths, ['/0']);
    });
  }

  const numbers = times(300_000, (i) => i).join();
  for (const [name, request] of [
    ['the body', post(numbers)],
    [
      'the body in short pieces',
      Buffer.concat([
        post('', { headers: ['Transfer-Encoding: chunked'] }),
        Buffer.from((numbers.match(/.{1,4000}/g) ?? []).map(chunked).join('') + LAST_CHUNK),
      ]),
    ],
  ] as const) {
    it(`wait with ${name} unread beyond a buffer, and have all of it once they are begun`, async (t) => {
      const open: ServerResponse[] = [];
      let body = '';
      const { sending, bytesRead } = await serving(t, (req, res) => {
        if (req.method === 'GET') open.push(res);
        else {
          req.on('data', (chunk: Buffer) => (body += chunk));
          req.on('end', () => res.end());
        }
      });
      const asking = sending(SMALL);
      asking.send(SMALL);
      asking.send(request);
      await eventually('the first to be begun', () => open.length === 1);
      await new Promise((later) => setTimeout(later, 50));
      assert.ok(bytesRead() < 512 * 1024, `${bytesRead()} bytes were read`);
      open[0]?.end();
      await eventually('the next to be begun', () => open.length === 2);
      open[1]?.end();
      await eventually('the whole body', () => body.length === numbers.length);
      assert.equal(body, numbers);
      await eventually('all answers', () => responsesIn(asking.received()) === 3);
    });
  }

  it('have the short pieces of their bodies joined while they wait', async (t) => {
    const open: ServerResponse[] = [];
    let pieces = 0;
    let bytes = 0;
    const { sending } = await serving(t, (req, res) => {
      open.push(res);
      if (req.method === 'POST')
        req.on('data', (chunk: Buffer) => {
          pieces += 1;
          bytes += chunk.length;
        });
    });
    const asking = sending(SMALL);
    asking.send(post('', { headers: ['Transfer-Encoding: chunked'] }));
    asking.send(chunked('x').repeat(5_000) + LAST_CHUNK);
    await eventually('the first to be begun', () => open.length === 1);
    await new Promise((later) => setTimeout(later, 50));
    open[0]?.end();
    await eventually('the whole body', () => bytes === 5_000);
    assert.ok(pieces < 50, `${pieces} pieces were kept`);
  });
});

describe('a gateway with pipelined requests', { timeout: 600_000 }, () => {
  it('sends only the first of 1,000 requests to the service, and drops the others when their client closes', async (t) => {
    for (const leave of ['destroy', 'end', 'resetAndDestroy'] as const) {
      const { upstream, gateway, sending } = await gatewayFixture(t);
      upstream.on(async (scripted) => void (await scripted.body()));
      const asking = sending(get('/v1/models').repeat(1_000));
      await eventually('one request at the service', () => upstream.requests.length === 1);
      await new Promise((later) => setTimeout(later, 300));
      assert.deepEqual([upstream.requests.length, gateway.active()], [1, 1]);
      asking.socket[leave]();
      await eventually(`the end after ${leave}`, () => gateway.active() === 0);
      assert.equal(upstream.requests.length, 1);
    }
  });

  const refused = {
    'an unknown path': get('/nothing'),
    'no JSON': post('{'),
    'a path of the proxy itself': get('/healthz'),
  };
  for (const [name, request] of Object.entries(refused)) {
    it(`answers 2,000 requests with ${name} in their order, and another client meanwhile`, async (t) => {
      const { client, ask } = await gatewayFixture(t, { answers: completion });
      const asking = client();
      const [line, ...rest] = request.toString().split('\r\n');
      asking.send(times(2_000, (i) => [line, `x-request-id: r${i}`, ...rest].join('\r\n')).join(''));
      assert.equal((await ask(post())).status, 200);
      const answered = responsesIn(asking.received());
      assert.ok(answered < 2_000, 'the neighbour waited for all of them');
      await eventually('all answers', () => responsesIn(asking.received()) === 2_000, 30_000);
      const ids = [...asking.received().matchAll(/\r\nx-request-id: r(\d+)\r\n/gi)].map(([, id]) =>
        Number(id),
      );
      assert.deepEqual(
        ids,
        times(2_000, (i) => i),
      );
    });
  }

  it('answers 200 requests, with and without bodies, each with its own response and in their order', async (t) => {
    const { client, upstream } = await gatewayFixture(t);
    upstream.on(async (scripted) => {
      const body = await scripted.body();
      if (scripted.request.method === 'GET') return scripted.write(http(200, MODELS));
      const content = JSON.parse(openedRequest(body).get('user')!) as string;
      const choices = [{ index: 0, message: { role: 'assistant', content }, finish_reason: 'stop' }];
      const answer = sealedAnswers(body).object({ ...COMPLETION, choices });
      return scripted.write(http(200, answer, { 'Content-Type': 'application/json' }));
    });
    const asking = client();
    const userOf = (i: number): string => `${i}${'x'.repeat(i * 300)}`;
    for (let i = 0; i < 100; i++) {
      asking.send(post(chatBody({ user: userOf(i) })));
      asking.send(get('/v1/models'));
    }
    const isAll = (text: string): boolean => responsesIn(text) === 200 && text.endsWith(MODELS);
    await eventually('all answers', () => isAll(asking.received()));
    const said: unknown[] = [];
    for (let rest = asking.received(); said.length < 200; ) {
      const answer = readAnswer(rest);
      assert.ok(answer?.complete && answer.status === 200, rest.slice(0, 500));
      said.push(answer.body === MODELS ? MODELS : JSON.parse(answer.body).choices[0].message.content);
      rest = answer.rest;
    }
    assert.deepEqual(said, times(100, (i) => [userOf(i), MODELS]).flat());
    assert.equal(upstream.requests.length, 200);
  });
});
