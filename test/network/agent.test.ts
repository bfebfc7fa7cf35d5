/** Connections that are ready before a request: when, how many, how they are used, and how they end. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import type { IncomingMessage } from 'node:http';
import { createServer as createHttpsServer, request as httpsRequest } from 'node:https';
import type { Server } from 'node:net';
import { describe, it, type TestContext } from 'node:test';
import type { TLSSocket } from 'node:tls';
import { type Clock, systemClock } from '../../lib/clock.ts';
import { ServiceAgent } from '../../lib/network/agent.ts';
import { createOutbound, type Outbound } from '../../lib/network/outbound.ts';
import type { Through } from '../../lib/network/outbound-proxy.ts';
import { eventually } from '../support/processes/eventually.ts';
import { createFakeClock, type FakeClock, settle } from '../support/remote/fake-clock.ts';
import { type Listening, listening, serveNobody } from '../support/remote/loopback.ts';
import { createTestAuthority, type ServerCertificate } from '../support/remote/tls-authority.ts';

const authority = createTestAuthority('Warm Root');
const genuine = authority.issue(['localhost', 'api.example']);

interface Service extends Listening {
  /** TLS connections it accepted, in order. */
  readonly accepted: TLSSocket[];
  readonly paths: (string | undefined)[];
  readonly server: Server;
}

/** Answers 'ok' to everything; /close ends the connection. */
async function service(t: TestContext, certificate: ServerCertificate): Promise<Service> {
  const accepted: TLSSocket[] = [];
  const paths: (string | undefined)[] = [];
  const server = createHttpsServer(certificate, (request, response) => {
    paths.push(request.url);
    if (request.url === '/close') response.setHeader('Connection', 'close');
    response.end('ok');
  });
  const place = await listening(t, server);
  server.on('secureConnection', (socket: TLSSocket) => accepted.push(socket));
  server.on('tlsClientError', () => {});
  return { ...place, accepted, paths, server };
}

function outbound(t: TestContext, env: Record<string, string> = {}, clock: Clock = systemClock): Outbound {
  const created = createOutbound(env, { connectTimeout: 60_000, clock, authorities: [authority.pem] });
  t.after(() => created.close());
  return created;
}

const ready = (out: Outbound, port: number, count: number, host = 'localhost'): ServiceAgent =>
  out.agent({ keepAlive: true }, { host, port, count });

/** Asks the service; returns whether the connection was there before the request, and the status. */
async function get(agent: ServiceAgent, port: number, path = '/', host = 'localhost') {
  agent.dropOutlived();
  const request = httpsRequest({ agent, host, port, path }).end();
  const [socket] = (await once(request, 'socket')) as [TLSSocket];
  const waited = socket.authorized;
  const [response] = (await once(request, 'response')) as [IncomingMessage];
  response.resume();
  await once(response, 'end');
  await settle(); // the agent keeps the connection
  return { status: response.statusCode, waited };
}

/** Has a connection opened ahead, and waits until the agent has it. */
async function openAhead(agent: ServiceAgent, clock: FakeClock, remote: Service): Promise<void> {
  agent.keep(true);
  await clock.advance(0);
  await eventually('a connection', () => remote.accepted.length === 1);
  await settle(64);
}

const WAITED = { status: 200, waited: true };
const OPENED = { status: 200, waited: false };

describe('connections that are kept ready', { concurrency: true, timeout: 60_000 }, () => {
  it('are none until the service is verified, then as many as wanted, and carry nothing but requests', async (t) => {
    const clock = createFakeClock();
    const remote = await service(t, genuine);
    const out = outbound(t, {}, clock);
    const agent = ready(out, remote.port, 3);
    agent.keep(false);
    ready(out, remote.port, 0).keep(true);
    await clock.advance(60_000);
    assert.equal(remote.total(), 0);
    agent.keep(true);
    await clock.advance(2_000);
    await eventually('three connections', () => remote.accepted.length === 3);
    assert.deepEqual(remote.paths, []);
    assert.deepEqual(
      await Promise.all([1, 2, 3].map(() => get(agent, remote.port, '/close'))),
      Array(3).fill(WAITED),
    );
    await clock.advance(3_000);
    await eventually('three new ones', () => remote.accepted.length === 6 && remote.open.size === 3);
    agent.keep(false);
    for (const socket of remote.accepted) socket.destroy();
    await eventually('their end', () => remote.open.size === 0);
    await clock.advance(120_000);
    assert.equal(remote.total(), 6);
  });

  it('go to the service, whatever a request says', async (t) => {
    const [remote, other] = [await service(t, genuine), await service(t, genuine)];
    await get(ready(outbound(t), remote.port, 0), other.port);
    assert.deepEqual([remote.paths, other.paths], [['/'], []]);
  });

  it('are replaced if the service closes them, or sends bytes before a request', async (t) => {
    const clock = createFakeClock();
    const remote = await service(t, genuine);
    const agent = ready(outbound(t, {}, clock), remote.port, 1);
    agent.keep(true);
    for (const [last, unasked] of [
      '',
      'HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n',
    ].entries()) {
      await clock.advance(11_000);
      await eventually('a connection', () => remote.accepted.length === last + 1);
      await settle(64);
      if (unasked === '') remote.accepted[last]?.end();
      else remote.accepted[last]?.write(unasked);
      await eventually('its end', () => remote.open.size === 0);
    }
    await settle(64);
    await clock.advance(11_000);
    await eventually('the third', () => remote.accepted.length === 3);
    await settle(64);
    assert.deepEqual(await get(agent, remote.port), WAITED);
    assert.equal(remote.accepted.length, 3);
  });

  it('are opened every ten seconds while the service is not trusted or closes them at once, and carry no request', async (t) => {
    for (const certificate of [authority.issue(['elsewhere.example']), genuine]) {
      const clock = createFakeClock();
      const remote = await service(t, certificate);
      remote.server.on('secureConnection', (socket: TLSSocket) => socket.destroy());
      let ended = 0;
      const through: Through = async (_host, _port, secure) => secure().once('close', () => ended++);
      const options = { ca: authority.pem, ALPNProtocols: ['http/1.1'] };
      const agent = new ServiceAgent(
        options,
        { host: 'localhost', port: remote.port, count: 1 },
        through,
        clock,
      );
      t.after(() => agent.destroy());
      agent.keep(true);
      for (let attempts = 1; attempts <= 3; attempts++) {
        await eventually('the end of the attempt', () => ended === attempts);
        await clock.advance(9_000);
        assert.equal(remote.total(), attempts);
        await clock.advance(1_000);
      }
      assert.deepEqual(remote.paths, []);
    }
  });

  it('are replaced after 45 s', async (t) => {
    const clock = createFakeClock();
    const remote = await service(t, genuine);
    await openAhead(ready(outbound(t, {}, clock), remote.port, 1), clock, remote);
    await clock.advance(44_000);
    assert.equal(remote.total(), 1);
    await clock.advance(1_000);
    await eventually('its successor', () => remote.accepted.length === 2);
    await eventually('the end of the first', () => remote.open.size === 1);
    assert.equal(remote.accepted[0]?.destroyed, true);
  });

  for (const kept of ['opened ahead', 'that Node kept'] as const) {
    it(`carry no request after the machine slept, or the clock was set back: one ${kept}`, async (t) => {
      for (const ms of [3_600_000, -600_000]) {
        const clock = createFakeClock();
        const remote = await service(t, genuine);
        const agent = ready(outbound(t, {}, clock), remote.port, 1);
        if (kept === 'opened ahead') await openAhead(agent, clock, remote);
        else await get(agent, remote.port);
        clock.jump(ms);
        assert.deepEqual(await get(agent, remote.port), OPENED);
        await eventually('the end of the first', () => remote.accepted[0]?.destroyed === true);
        assert.equal(remote.accepted.length, 2);
      }
    });
  }

  it('are closed at the end, in whatever stage they are', async (t) => {
    const [remote, silent, proxy] = [await service(t, genuine), await serveNobody(t), await serveNobody(t)];
    const env = { https_proxy: `http://127.0.0.1:${proxy.port}` };
    const [open, opening, tunnelled] = [outbound(t), outbound(t), outbound(t, env)];
    ready(open, remote.port, 1).keep(true);
    ready(opening, silent.port, 1).keep(true);
    ready(tunnelled, 8443, 1).keep(true);
    const [a, b, c] = [remote.open, silent.open, proxy.open];
    await eventually('one of each', () => remote.accepted.length === 1 && b.size === 1 && c.size === 1);
    await Promise.all([open.close(), opening.close(), tunnelled.close()]);
    await eventually('their end', () => a.size + b.size + c.size === 0);
    assert.equal(remote.total(), 1);
  });
});
