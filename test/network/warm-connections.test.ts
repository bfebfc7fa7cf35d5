/** Connections opened ahead: when, how many, how they are used, and that they cost no request anything. */

import assert from 'node:assert/strict';
import { EventEmitter, once } from 'node:events';
import { writeFileSync } from 'node:fs';
import type { IncomingMessage } from 'node:http';
import { Agent, createServer as createHttpsServer, request as httpsRequest } from 'node:https';
import { type AddressInfo, createServer as createTcpServer, type Server, type Socket } from 'node:net';
import { join } from 'node:path';
import { before, describe, it, type TestContext } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import type { TLSSocket, TlsOptions } from 'node:tls';
import { systemClock } from '../../lib/clock.ts';
import { createControlCall } from '../../lib/network/control-call.ts';
import { createOutbound, type Outbound } from '../../lib/network/outbound.ts';
import { openedAhead, WarmConnections } from '../../lib/network/warm-connections.ts';
import { eventually } from '../support/processes/eventually.ts';
import { temporaryDirectory } from '../support/processes/temporary-directory.ts';
import { serveConnectProxy } from '../support/remote/loopback.ts';
import {
  createTestAuthority,
  type ServerCertificate,
  type TestAuthority,
} from '../support/remote/tls-authority.ts';

let authority: TestAuthority;
let genuine: ServerCertificate;

before(() => {
  authority = createTestAuthority('Warm Root');
  genuine = authority.issue(['localhost', 'api.example']);
});

/** ms in which an opening that must not happen would have happened. */
const QUIET = 400;

/** Listens on a free port of 127.0.0.1 until the test ends; `open` are its connections. */
async function listening(t: TestContext, server: Server): Promise<Pick<Service, 'port' | 'open' | 'total'>> {
  const open = new Set<Socket>();
  let total = 0;
  server.on('connection', (socket: Socket) => {
    total++;
    open.add(socket);
    socket.on('error', () => {}).once('close', () => open.delete(socket));
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.after(() => {
    for (const socket of open) socket.destroy();
    server.close();
  });
  return { port: (server.address() as AddressInfo).port, open, total: () => total };
}

interface Service {
  readonly port: number;
  readonly open: ReadonlySet<Socket>;
  /** TCP connections so far. */
  readonly total: () => number;
  /** TLS connections it accepted, in order. */
  readonly accepted: TLSSocket[];
  /** How many others were open when it accepted each of them. */
  readonly others: number[];
  readonly paths: (string | undefined)[];
}

/** Answers 'ok' to everything; /close ends the connection, /wait waits for the next request of that kind. */
async function service(
  t: TestContext,
  certificate: ServerCertificate,
  options: TlsOptions = {},
): Promise<Service> {
  const accepted: TLSSocket[] = [];
  const others: number[] = [];
  const paths: (string | undefined)[] = [];
  const server = createHttpsServer({ ...certificate, ...options }, (request, response) => {
    paths.push(request.url);
    if (request.url === '/close') response.setHeader('Connection', 'close');
    response.end('ok');
  });
  const place = await listening(t, server);
  server.on('secureConnection', (socket: TLSSocket) => {
    accepted.push(socket);
    others.push(place.open.size - 1);
  });
  server.on('tlsClientError', () => {});
  return { ...place, accepted, others, paths };
}

function outbound(t: TestContext, env: Record<string, string> = {}, timeout = 5_000): Outbound {
  const directory = temporaryDirectory('warm-');
  const path = join(directory, 'ca.pem');
  writeFileSync(path, authority.pem);
  const created = createOutbound(
    { SSL_CERT_FILE: path, ...env },
    { connectTimeout: timeout, clock: systemClock },
  );
  t.after(async () => {
    await created.close();
  });
  return created;
}

function warm(out: Outbound, port: number, limit: number, host = 'localhost') {
  const agent = out.warmAgent({ host, port, limit }, { keepAlive: true });
  return { agent, keep: (verified: boolean) => agent.connections.keep(verified) };
}

interface Answer {
  readonly status: number | undefined;
  /** The connection was opened ahead of its first request. */
  readonly ahead: boolean;
}

async function get(agent: Agent, port: number, path = '/', host = 'localhost'): Promise<Answer> {
  const request = httpsRequest({ agent, host, port, path }).end();
  const [response] = (await once(request, 'response')) as [IncomingMessage];
  const ahead = openedAhead(response.socket);
  response.resume();
  await once(response, 'end');
  return { status: response.statusCode, ahead };
}

async function control(out: Outbound, port: number): Promise<void> {
  const call = createControlCall(out.dispatcher, systemClock);
  await call({ method: 'GET', url: `https://localhost:${port}/control`, maxBytes: 100, timeout: 5_000 });
}

describe('connections opened ahead', { concurrency: true }, () => {
  it('are none until the control path has reached the service, then one, and all once the service is verified', async (t) => {
    const remote = await service(t, genuine);
    const out = outbound(t);
    const { keep } = warm(out, remote.port, 3);
    keep(false);
    await delay(QUIET);
    assert.equal(remote.accepted.length, 0);

    await control(out, remote.port);
    await eventually('the control connection and one ahead', () => remote.accepted.length === 2);
    await delay(QUIET);
    assert.equal(remote.accepted.length, 2);

    keep(true);
    await eventually('all that are allowed', () => remote.accepted.length === 4);
    await delay(QUIET);
    assert.equal(remote.accepted.length, 4);
    assert.deepEqual(remote.paths, ['/control']);
  });

  it('begin with one if the control path has reached the service before', async (t) => {
    const remote = await service(t, genuine);
    const out = outbound(t);
    await control(out, remote.port);
    warm(out, remote.port, 3);
    await eventually('the control connection and one ahead', () => remote.accepted.length === 2);
  });

  it('carry requests, and are replaced after the responses have closed them', async (t) => {
    const remote = await service(t, genuine);
    const { agent, keep } = warm(outbound(t), remote.port, 3);
    keep(true);
    await eventually('three connections', () => remote.accepted.length === 3);
    const answers = await Promise.all([1, 2, 3].map(() => get(agent, remote.port, '/close')));
    assert.deepEqual(answers, Array(3).fill({ status: 200, ahead: true }));
    await eventually('three new ones', () => remote.accepted.length === 6 && remote.open.size === 3);
    assert.equal((await get(agent, remote.port)).ahead, true);
  });

  it('stay open in the agent for the next request after they have carried one', async (t) => {
    const remote = await service(t, genuine);
    const { agent, keep } = warm(outbound(t), remote.port, 2);
    keep(true);
    await eventually('two connections', () => remote.accepted.length === 2);
    for (let round = 0; round < 3; round++) {
      await Promise.all([1, 2, 3].map(() => get(agent, remote.port)));
      await delay(QUIET);
      assert.equal(remote.open.size, remote.accepted.length, 'none was closed');
    }
    assert.ok(remote.accepted.length <= 4, `${remote.accepted.length} connections`);
  });

  it('are notified of every request, whichever connection it gets', async (t) => {
    const remote = await service(t, genuine);
    const { agent } = warm(outbound(t), remote.port, 2);
    const { mock } = t.mock.method(agent.connections, 'began');
    for (const requests of [1, 2]) {
      await get(agent, remote.port);
      await eventually('the connection back in the agent', () => Object.keys(agent.freeSockets).length === 1);
      assert.deepEqual([mock.callCount(), remote.accepted.length], [requests, 1]);
    }
  });

  it('go through the HTTP proxy', async (t) => {
    const remote = await service(t, genuine);
    const proxy = await serveConnectProxy(t, { route: () => remote });
    const { agent, keep } = warm(
      outbound(t, { https_proxy: `http://127.0.0.1:${proxy.port}` }),
      8443,
      2,
      'api.example',
    );
    keep(true);
    await eventually('two connections', () => remote.accepted.length === 2);
    assert.equal((await get(agent, 8443, '/', 'api.example')).ahead, true);
    assert.deepEqual(
      proxy.seen.map(({ target }) => target),
      ['api.example:8443', 'api.example:8443'],
    );
  });

  it('carry no request for another server', async (t) => {
    const [remote, other] = [await service(t, genuine), await service(t, genuine)];
    const { agent, keep } = warm(outbound(t), remote.port, 2);
    keep(true);
    await eventually('two connections', () => remote.accepted.length === 2);
    assert.equal((await get(agent, other.port)).ahead, false);
    assert.deepEqual([remote.paths, other.paths], [[], ['/']]);
  });

  it('are replaced if the service closes them, or sends bytes before a request', async (t) => {
    const remote = await service(t, genuine);
    const { agent, keep } = warm(outbound(t), remote.port, 1);
    keep(true);
    await eventually('the first', () => remote.accepted.length === 1);
    remote.accepted[0]?.end();
    await eventually('its successor', () => remote.accepted.length === 2);
    remote.accepted[1]?.write('HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n');
    await eventually('the third', () => remote.accepted.length === 3);
    assert.deepEqual(await get(agent, remote.port), { status: 200, ahead: true });
    assert.equal(remote.accepted.length, 3);
    // One that is replaced because of its age is closed after its successor has been opened.
    assert.deepEqual(remote.others, [0, 0, 0]);
  });

  it('are not opened if their limit is 0', async (t) => {
    const remote = await service(t, genuine);
    const out = outbound(t);
    const { agent, keep } = warm(out, remote.port, 0);
    await control(out, remote.port);
    keep(true);
    await delay(QUIET);
    assert.equal(remote.accepted.length, 1);
    assert.equal((await get(agent, remote.port)).ahead, false);
  });

  it('are retried slowly if the certificate of the service is refused, and carry no request', async (t) => {
    const remote = await service(t, authority.issue(['elsewhere.example']));
    const { agent, keep } = warm(outbound(t), remote.port, 4);
    keep(true);
    await eventually('a first attempt', () => remote.total() > 0);
    await delay(1_000);
    assert.ok(remote.total() <= 6, `${remote.total()} attempts in a second`);
    await assert.rejects(get(agent, remote.port), { code: 'ERR_TLS_CERT_ALTNAME_INVALID' });
    assert.deepEqual(remote.paths, []);
  });

  for (const version of ['TLSv1.2', 'TLSv1.3'] as const) {
    it(`do not make a refused certificate accepted by resuming its session (${version})`, async (t) => {
      const remote = await service(t, authority.issue(['elsewhere.example']), {
        minVersion: version,
        maxVersion: version,
      });
      const agent = outbound(t).agent({ keepAlive: true });
      for (let attempt = 0; attempt < 3; attempt++) {
        await assert.rejects(get(agent, remote.port), { code: 'ERR_TLS_CERT_ALTNAME_INVALID' });
      }
    });
  }

  it('are closed at the end, in whatever stage they are', async (t) => {
    const remote = await service(t, genuine);
    const mute = await listening(
      t,
      createTcpServer((socket) => socket.resume()),
    );
    const proxy = await listening(
      t,
      createTcpServer((socket) => socket.resume()),
    );
    const [ready, opening, tunnelled] = [
      outbound(t),
      outbound(t, {}, 60_000),
      outbound(t, { https_proxy: `http://127.0.0.1:${proxy.port}` }, 60_000),
    ];
    warm(ready, remote.port, 2).keep(true);
    warm(opening, mute.port, 2).keep(true);
    warm(tunnelled, 8443, 2).keep(true);
    const [a, b, c] = [remote.open, mute.open, proxy.open];
    await eventually('two of each', () => remote.accepted.length === 2 && b.size === 2 && c.size === 2);
    await Promise.all([ready.close(), opening.close(), tunnelled.close()]);
    await eventually('their end', () => a.size + b.size + c.size === 0);
    await delay(QUIET);
    assert.equal(remote.total(), 2);
  });

  it('are given up if they are not established in time', async (t) => {
    const mute = await listening(
      t,
      createTcpServer((socket) => socket.resume()),
    );
    warm(outbound(t, {}, 200), mute.port, 1).keep(true);
    await eventually('an attempt', () => mute.open.size === 1);
    await eventually('its end', () => mute.open.size === 0);
  });
});

/** A connection without a network. */
class FakeSocket extends EventEmitter {
  writable = true;
  ref(): this {
    return this;
  }
  unref(): this {
    return this;
  }
  resume(): this {
    return this;
  }
  destroy(): void {
    if (!this.writable) return;
    this.writable = false;
    this.emit('close');
  }
}

/** Connections without a network, under a clock that the test moves. */
function scene(t: TestContext, limit: number, open?: () => Promise<FakeSocket>) {
  t.mock.timers.enable({ apis: ['setTimeout', 'Date'], now: 1_000_000 });
  const opened: FakeSocket[] = [];
  const agent = new Agent({ keepAlive: true });
  let attempts = 0;
  const connections = new WarmConnections({
    limit,
    agent,
    clock: systemClock,
    open: async () => {
      attempts++;
      const socket = (await open?.()) ?? new FakeSocket();
      opened.push(socket);
      return socket as unknown as TLSSocket;
    },
  });
  t.after(() => connections.close());
  return {
    agent,
    connections,
    opened,
    attempts: () => attempts,
    alive: () => opened.filter(({ writable }) => writable).length,
    /** Lets seconds pass, with everything that happens in them. */
    async pass(seconds: number): Promise<void> {
      for (let ms = 0; ms < 1000 * seconds; ms += 100) {
        t.mock.timers.tick(100);
        for (let turn = 0; turn < 8; turn++) await Promise.resolve();
      }
    },
  };
}

describe('connections opened ahead, over time,', () => {
  it('are replaced after 45 s of idling, the old one ended once the new one is there', async (t) => {
    const { connections, opened, alive, pass } = scene(t, 1);
    connections.keep(true);
    await pass(44);
    assert.deepEqual([opened.length, alive()], [1, 1]);
    await pass(10);
    assert.deepEqual([opened.length, alive(), opened[0]?.writable], [2, 1, false]);
  });

  it('are replaced so that there is always one', async (t) => {
    const { connections, opened, alive, pass } = scene(t, 1, async () => {
      await new Promise((resolve) => setTimeout(resolve, 500));
      return new FakeSocket();
    });
    connections.keep(true);
    await pass(2);
    for (let tenths = 0; tenths < 1_200; tenths++) {
      assert.ok(alive() >= 1, `none after ${2 + tenths / 10} s`);
      await pass(0.1);
    }
    assert.equal(opened.length, 3);
  });

  it('are closed at once if they are established only after the end', async (t) => {
    const { promise, resolve } = Promise.withResolvers<FakeSocket>();
    const { connections, opened, alive, pass } = scene(t, 1, () => promise);
    connections.keep(true);
    await pass(1);
    connections.close();
    resolve(new FakeSocket());
    await pass(1);
    assert.deepEqual([opened.length, alive()], [1, 0]);
  });

  it('become as few as were in use at once in the last five minutes, but at least one', async (t) => {
    const { connections, alive, pass } = scene(t, 8);
    connections.keep(true);
    await pass(10);
    assert.equal(alive(), 8);
    await pass(290);
    assert.equal(alive(), 8);
    await pass(110); // the minute that began the five, and the time for which each idles
    assert.equal(alive(), 1);
    await pass(1_200);
    assert.equal(alive(), 1);
  });

  for (const [what, limit, period] of [
    ['closes them after a minute', 60, 45],
    ['announces that it closes them after 20 s', 20, 18],
  ] as const) {
    it(`are ready for an hour if the service ${what}, and the next request waits for no handshake`, async (t) => {
      const { connections, attempts, alive, pass } = scene(t, 1, async () => {
        await new Promise((resolve) => setTimeout(resolve, 150));
        const socket = new FakeSocket();
        setTimeout(() => socket.destroy(), 1_000 * limit);
        return socket;
      });
      if (limit < 45) connections.announce(1_000 * limit);
      connections.keep(true);
      await pass(1);
      for (let seconds = 0; seconds < 3_600; seconds++) {
        assert.ok(alive() >= 1, `none after ${seconds} s`);
        await pass(1);
      }
      assert.ok(attempts() <= 3_600 / period + 1, `${attempts()} attempts`);
      const socket = connections.take();
      assert.ok(socket?.writable && openedAhead(socket));
    });
  }

  it('become more when more are in use at once, but never more than allowed', async (t) => {
    const { agent, connections, alive, pass } = scene(t, 4);
    connections.keep(true);
    await pass(420);
    assert.equal(alive(), 1);
    const inUse = agent.sockets as Record<string, unknown[]>;
    inUse['service'] = Array(5).fill({});
    connections.began();
    inUse['service'] = [];
    await pass(60);
    assert.equal(alive(), 4);
  });

  it('include a ready one even if more connections than the limit are in use', async (t) => {
    const { agent, connections, alive, pass } = scene(t, 4);
    (agent.sockets as Record<string, unknown[]>)['service'] = Array(9).fill({});
    connections.keep(true);
    await pass(10);
    assert.equal(alive(), 1);
  });

  it('are fewer by the connections that wait in the agent after a request', async (t) => {
    const { agent, connections, alive, pass } = scene(t, 3);
    const waiting = new FakeSocket();
    (agent.freeSockets as Record<string, unknown[]>)['service'] = [waiting];
    connections.idles(waiting);
    connections.keep(true);
    await pass(10);
    assert.equal(alive(), 2);
    let removed = false;
    waiting.once('agentRemove', () => {
      removed = true;
    });
    await pass(50);
    assert.deepEqual([waiting.writable, removed, alive()], [false, true, 3]);
  });

  it('are replaced before the time that the service announces', async (t) => {
    const { connections, opened, pass } = scene(t, 1);
    connections.keep(true);
    connections.announce(10_000);
    await pass(7);
    assert.equal(opened.length, 1);
    await pass(2.5);
    assert.equal(opened.length, 2);
  });

  it('are replaced some 20 to 30 times a minute if the service announces an idle time of 1 s', async (t) => {
    const { connections, opened, pass } = scene(t, 1);
    connections.keep(true);
    connections.announce(1_000);
    await pass(60);
    assert.ok(opened.length >= 20 && opened.length <= 31, `${opened.length} connections in a minute`);
  });

  it('are replaced at once when the service closes them', async (t) => {
    const { connections, opened, pass } = scene(t, 1);
    connections.keep(true);
    await pass(20);
    opened[0]?.destroy();
    await pass(0.3);
    assert.equal(opened.length, 2);
  });

  it('are retried ever more slowly while the service is down, at last once a minute, until it is back', async (t) => {
    let down = true;
    const { connections, attempts, alive, pass } = scene(t, 1, async () => {
      if (down) throw new Error('unreachable');
      return new FakeSocket();
    });
    connections.keep(true);
    await pass(60);
    assert.ok(attempts() >= 5 && attempts() <= 8, `${attempts()} attempts in a minute`);
    const before = attempts();
    await pass(600);
    assert.ok(attempts() - before >= 9 && attempts() - before <= 11, `${attempts() - before} in ten minutes`);
    down = false;
    await pass(61);
    assert.equal(alive(), 1);
  });

  it('are retried ever more slowly also if the service closes them as soon as they are open', async (t) => {
    const { connections, attempts, pass } = scene(t, 1, async () => {
      const socket = new FakeSocket();
      setTimeout(() => socket.destroy(), 50);
      return socket;
    });
    connections.keep(true);
    await pass(60);
    assert.ok(attempts() >= 5 && attempts() <= 8, `${attempts()} attempts in a minute`);
  });

  it('are not used after the machine slept', async (t) => {
    const { connections, opened, pass } = scene(t, 1);
    connections.keep(true);
    await pass(1);
    t.mock.timers.setTime(Date.now() + 3_600_000);
    assert.equal(connections.take(), undefined);
    assert.equal(opened[0]?.writable, false);
  });

  for (const limit of [0, 1]) {
    it(`are ended before the next request if the agent kept them while the machine slept (limit ${limit})`, async (t) => {
      const { agent, connections, pass } = scene(t, limit);
      const kept = [new FakeSocket(), new FakeSocket()];
      const removed: FakeSocket[] = [];
      for (const socket of kept) socket.once('agentRemove', () => removed.push(socket));
      (agent.freeSockets as Record<string, unknown[]>)['service'] = kept;
      for (const socket of kept) connections.idles(socket);
      connections.dropOutlived();
      await pass(1);
      connections.dropOutlived();
      assert.deepEqual(removed, []);
      t.mock.timers.setTime(Date.now() + 3_600_000);
      connections.idles(kept[1] as FakeSocket); // the response on it ended after the sleep
      connections.dropOutlived();
      assert.deepEqual(removed, [kept[0]]);
      assert.deepEqual(
        kept.map(({ writable }) => writable),
        [false, true],
      );
    });
  }

  it('are not used, and are opened anew, after the clock was set back', async (t) => {
    const { agent, connections, opened, alive, pass } = scene(t, 1);
    connections.keep(true);
    await pass(1);
    const kept = new FakeSocket();
    (agent.freeSockets as Record<string, unknown[]>)['service'] = [kept];
    connections.idles(kept);
    connections.dropOutlived();
    t.mock.timers.setTime(Date.now() - 600_000);
    connections.dropOutlived();
    assert.equal(kept.writable, false, 'nobody knows how long it has idled');
    assert.equal(connections.take(), undefined);
    delete (agent.freeSockets as Record<string, unknown[]>)['service'];
    await pass(2);
    assert.deepEqual([opened.length, alive()], [2, 1]);
  });

  it('are retried in time if the clock is set back while the service is down', async (t) => {
    const { connections, attempts, pass } = scene(t, 1, async () => {
      throw new Error('down');
    });
    connections.keep(true);
    await pass(60);
    t.mock.timers.setTime(Date.now() - 600_000);
    connections.keep(true); // starts its timer anew: a mocked one waits for the mocked clock
    const before = attempts();
    await pass(70);
    assert.ok(attempts() > before, 'an hour without a connection');
  });

  it('are not used if they are about to end', async (t) => {
    const { connections, opened, pass } = scene(t, 1);
    connections.keep(true);
    await pass(1);
    if (opened[0]) opened[0].writable = false; // its 'close' is still to come
    assert.equal(connections.take(), undefined);
  });

  it('are not renewed while the service is not verified', async (t) => {
    const { connections, opened, pass } = scene(t, 2);
    connections.keep(true);
    await pass(10);
    connections.keep(false);
    for (const socket of opened) socket.destroy();
    await pass(120);
    assert.equal(opened.length, 2);
  });
});
