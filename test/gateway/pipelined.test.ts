/** Requests that a client sends ahead of their responses: how many run, who has a turn meanwhile, and that none is lost. */
import assert from 'node:assert/strict';
import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo, Socket } from 'node:net';
import { describe, it, type TestContext } from 'node:test';
import { inTurns } from '../../lib/gateway/request-turns.ts';
import { chatBody, gatewayFixture, get, post, until } from '../support/gateway-fixture.ts';
import { type RawClient, rawClient } from '../support/raw-client.ts';
import { chunked, completion, http, LAST_CHUNK } from '../support/sealed-answers.ts';

const MODELS = '{"object":"list","data":[]}';
const times = <T>(count: number, make: (index: number) => T): T[] =>
  Array.from({ length: count }, (_, i) => make(i));
const spin = (ms: number): void => {
  for (const end = performance.now() + ms; performance.now() < end; );
};

/** A server whose requests are begun in turns, and connections to it. */
async function turning(t: TestContext, begin: (req: IncomingMessage, res: ServerResponse) => void) {
  const gaveUp: true[] = [];
  const sockets: Socket[] = [];
  const server = createServer(inTurns(begin, () => gaveUp.push(true)));
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
  return { client, gaveUp, bytesRead: () => sockets.reduce((sum, { bytesRead }) => sum + bytesRead, 0) };
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

describe('the turns of pipelined requests', { timeout: 30_000 }, () => {
  it('one that is alone on its connection is begun at once', async (t) => {
    let begun = false;
    let atOnce: boolean | undefined;
    const { client } = await turning(t, (_, res) => {
      begun = true;
      res.end();
    });
    const seen = (): void => queueMicrotask(() => (atOnce ??= begun));
    subscribe('http.server.request.start', seen);
    t.after(() => unsubscribe('http.server.request.start', seen));
    client().send(SMALL);
    await until(() => begun, 'it was not begun');
    assert.equal(atOnce, true);
  });

  it('16 of a connection are open at a time, and all are begun in their order', async (t) => {
    const open = new Set<ServerResponse>();
    const paths: string[] = [];
    let most = 0;
    const { client } = await turning(t, (req, res) => {
      paths.push(req.url as string);
      open.add(res);
      most = Math.max(most, open.size);
      res.once('close', () => open.delete(res));
    });
    const asking = client();
    asking.send(times(500, (i) => get(`/${i}`)).join(''));
    await until(() => open.size === 16, 'not 16 were begun');
    await new Promise((later) => setTimeout(later, 50));
    assert.equal(paths.length, 16);
    while (paths.length < 500 || open.size > 0) {
      for (const res of open) res.end();
      await new Promise((turn) => setImmediate(turn));
    }
    await until(() => responsesIn(asking.received()) === 500, 'not all are answered');
    assert.deepEqual([most, paths], [16, times(500, (i) => `/${i}`)]);
  });

  for (const [name, connections, requests] of [
    ['one connection', 1, 200],
    ['twenty connections', 20, 10],
  ] as const) {
    it(`${name} with ${requests} requests of 5 ms: others have their turns in between`, async (t) => {
      let done = 0;
      const { client } = await turning(t, (_, res) => {
        spin(5);
        done += 1;
        res.end();
      });
      const clients = times(connections, client);
      await until(() => clients.every(({ socket }) => !socket.connecting), 'not connected');
      for (const { send } of clients) send(SMALL.repeat(requests));
      const turns = await byTurn(() => done, connections * requests);
      // Two take longer than a turn may. The first of each connection is begun when it comes.
      assert.ok(Math.max(...turns) <= connections + 2, `${Math.max(...turns)} in one turn`);
      const busy = turns.filter((begun) => begun > 0).length;
      assert.ok(busy >= 50, `all in ${busy} turns`);
    });
  }

  it('of a connection with many, one read is parsed in a turn', async (t) => {
    let done = 0;
    const { client, bytesRead } = await turning(t, (_, res) => {
      done += 1;
      res.end();
    });
    const asking = client();
    asking.send(SMALL.repeat(20_000));
    const turns = await byTurn(bytesRead, 20_000 * SMALL.length);
    await until(() => done === 20_000, 'not all were begun', 10_000);
    assert.ok(Math.max(...turns) <= 2 * 64 * 1024, `${Math.max(...turns)} bytes in one turn`);
  });

  it('with thousands that wait, nothing more is read, and the connection is ended', async (t) => {
    let begun = 0;
    const { client, gaveUp, bytesRead } = await turning(t, () => {
      begun += 1;
    });
    const asking = client();
    asking.send(SMALL.repeat(100_000));
    await until(() => gaveUp.length === 1, 'it was not ended', 10_000);
    await asking.ended;
    assert.equal(begun, 16);
    assert.ok(bytesRead() < 4_096 * SMALL.length + 3 * 64 * 1024, `${bytesRead()} bytes were read`);
  });

  it('the body of one that waits is not read beyond its buffer, and is whole once it has its turn', async (t) => {
    const open: ServerResponse[] = [];
    let body = '';
    const { client, bytesRead } = await turning(t, (req, res) => {
      if (req.method === 'GET') open.push(res);
      else {
        req.on('data', (chunk: Buffer) => (body += chunk));
        req.on('end', () => res.end());
      }
    });
    const asking = client();
    const sent = times(300_000, (i) => i).join();
    asking.send(SMALL.repeat(16));
    asking.send(post(sent));
    await until(() => open.length === 16, 'not 16 were begun');
    await new Promise((later) => setTimeout(later, 50));
    assert.ok(bytesRead() < 512 * 1024, `${bytesRead()} bytes were read`);
    for (const res of open) res.end();
    await until(() => body.length === sent.length, 'the body is not there');
    assert.equal(body, sent);
    await until(() => responsesIn(asking.received()) === 17, 'not all are answered');
  });

  it('short pieces of one that waits are joined: each would cost hundreds of bytes', async (t) => {
    const open: ServerResponse[] = [];
    let pieces = 0;
    let bytes = 0;
    const { client } = await turning(t, (req, res) => {
      open.push(res);
      if (req.method === 'POST')
        req.on('data', (chunk: Buffer) => {
          pieces += 1;
          bytes += chunk.length;
        });
    });
    const asking = client();
    asking.send(SMALL.repeat(16));
    asking.send(post('', { headers: ['Transfer-Encoding: chunked'] }));
    asking.send(chunked('x').repeat(5_000) + LAST_CHUNK);
    await until(() => open.length === 16, 'not 16 were begun');
    await new Promise((later) => setTimeout(later, 50));
    open[0]?.end();
    await until(() => bytes === 5_000, 'the body is not there');
    assert.ok(pieces < 50, `${pieces} pieces were kept`);
  });
});

describe('a gateway with pipelined requests', { timeout: 60_000 }, () => {
  it('of 3,000 that wait for the service 16 reach it, and none is left when their client closes', async (t) => {
    for (const leave of ['destroy', 'end', 'resetAndDestroy'] as const) {
      const { upstream, gateway, client } = await gatewayFixture(t);
      upstream.on(async (scripted) => void (await scripted.body()));
      const asking = client();
      asking.send(get('/v1/models').repeat(3_000));
      await until(() => upstream.requests.length === 16, 'not 16 reach the service');
      await new Promise((later) => setTimeout(later, 300));
      assert.deepEqual([upstream.requests.length, gateway.active()], [16, 16]);
      asking.socket[leave]();
      await until(() => gateway.active() === 0, `${leave} was not noticed`);
      assert.equal(upstream.requests.length, 16);
    }
  });

  const refused = {
    'an unknown path': get('/nothing'),
    'two hosts': get('/v1/models', ['Host: other']),
    'a foreign page': get('/v1/models', ['Origin: https://evil.example']),
    'no JSON': post('{'),
    'what the proxy says about itself': get('/healthz'),
  };
  for (const [name, request] of Object.entries(refused)) {
    it(`answers 3,000 with ${name}, in their order, and others in between`, async (t) => {
      const { client, ask } = await gatewayFixture(t, { answers: completion });
      const asking = client();
      const [line, ...rest] = request.toString().split('\r\n');
      asking.send(times(3_000, (i) => [line, `x-request-id: r${i}`, ...rest].join('\r\n')).join(''));
      assert.equal((await ask(post())).status, 200);
      const answered = responsesIn(asking.received());
      assert.ok(answered < 3_000, 'the neighbour waited for all of them');
      await until(() => responsesIn(asking.received()) === 3_000, 'not all are answered', 30_000);
      const ids = [...asking.received().matchAll(/\r\nx-request-id: r(\d+)\r\n/gi)].map(([, id]) =>
        Number(id),
      );
      assert.deepEqual(
        ids,
        times(3_000, (i) => i),
      );
    });
  }

  it('answers 200 with bodies, each with its own', async (t) => {
    const { client, upstream } = await gatewayFixture(t);
    upstream.on(async (scripted) => {
      const body = await scripted.body();
      await scripted.write(scripted.request.method === 'GET' ? http(200, MODELS) : completion(body));
    });
    const asking = client();
    for (let i = 0; i < 100; i++) {
      asking.send(post(chatBody({ user: 'x'.repeat(i * 300) })));
      asking.send(get('/v1/models'));
    }
    await until(() => responsesIn(asking.received()) === 200, 'not all are answered', 20_000);
    const statuses = [...asking.received().matchAll(/HTTP\/1.1 (\d+)/g)].map(([, status]) => status);
    assert.deepEqual(new Set(statuses), new Set(['200']));
    assert.equal(upstream.requests.length, 200);
  });
});
