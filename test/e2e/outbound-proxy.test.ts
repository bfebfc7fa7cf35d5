/**
 * Behind an HTTP proxy: attestation and secret, manifest, vendors' collateral and the requests themselves go
 * through it by CONNECT; and nothing is ever sent to where a redirect points.
 */
import assert from 'node:assert/strict';
import { describe, it, type TestContext } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { watchConnections } from '../support/doors/connections.ts';
import { eventually } from '../support/processes/eventually.ts';
import { serveInspector } from '../support/processes/inspector.ts';
import { serveConnectProxy, serveHttps } from '../support/remote/loopback.ts';
import { hostsAt, outboundScene, streamChat } from '../support/remote/outbound-scene.ts';
import { createTestAuthority } from '../support/remote/tls-authority.ts';

const CANARY = 'canary-outbound-2b8e';
const WAIT = { timeoutMs: 20_000 };
/** Names that resolve nowhere: only a proxy can know where they are. */
const HOSTS = { api: 'api.sim.test', cdn: 'cdn.sim.test', vendor: 'vendor.sim.test' };

describe('behind an HTTP proxy (https_proxy),', () => {
  it('every connection goes through that proxy by CONNECT, and no host name is resolved on this machine', async (t) => {
    const scene = await outboundScene(t, {
      hostNames: Object.values(HOSTS),
      faults: { 'evidence-no-crl': true },
    });
    const { simulator } = scene;
    const connect = await serveConnectProxy(t, { route: () => simulator });
    const connections = watchConnections();
    t.after(() => connections.end());
    const { proxy } = await scene.start(
      { SSL_CERT_FILE: scene.bundle(simulator.caPem), https_proxy: `http://127.0.0.1:${connect.port}` },
      [...hostsAt(HOSTS.api, HOSTS.cdn, HOSTS.vendor)],
    );
    await proxy.session.acquire(WAIT);
    const targets = (): string[] => connect.seen.map(({ target }) => target);
    assert.deepEqual([...new Set(targets())].sort(), [
      'api.sim.test:443',
      'cdn.sim.test:443',
      'vendor.sim.test:443',
    ]);
    const control = targets().length;

    const { status, text } = await streamChat(proxy, CANARY);
    assert.equal(status, 200);
    assert.ok(text.includes(CANARY) && text.endsWith('data: [DONE]\n\n'), text);
    assert.deepEqual(targets().slice(control), ['api.sim.test:443']);
    assert.deepEqual(
      connections.targets().filter((target) => target.includes('sim.test')),
      [],
    );
    assert.equal(simulator.recorder.containing(CANARY).length, 0);
  });

  it('nothing is sent if that proxy cannot be reached', async (t) => {
    const scene = await outboundScene(t);
    const host = `localhost:${scene.simulator.port}`;
    const { proxy, lines } = await scene.start(
      { SSL_CERT_FILE: scene.bundle(scene.simulator.caPem), https_proxy: 'http://user:hunter2@127.0.0.1:1' },
      hostsAt(host, host, host),
    );
    const log = (): string => JSON.stringify(lines);
    const reason = /the HTTP proxy 127\.0\.0\.1:1 cannot be reached/;
    await eventually('the reason in the log', () => reason.test(log()));
    await assert.rejects(async () => proxy.session.acquire({ timeoutMs: 1_000 }));
    assert.equal(
      Object.values(scene.simulator.counts).reduce((sum, count) => sum + count),
      0,
    );
    assert.doesNotMatch(log(), /hunter2/);
  });
});

describe('connections for requests', () => {
  it('are reused, and a new one follows after they are lost', async (t) => {
    const scene = await outboundScene(t);
    const authority = createTestAuthority('Counting');
    const counting = await serveInspector(t, authority.issue(['localhost']), scene.simulator);
    const host = `localhost:${counting.port}`;
    const { proxy } = await scene.start({ SSL_CERT_FILE: scene.bundle(authority.pem) }, [
      ...hostsAt(host, host, host),
    ]);
    await proxy.session.acquire(WAIT);
    const { connections } = counting;
    const control = connections.total;
    const opened = (): number => connections.total - control;

    for (let sent = 0; sent < 10; sent++) await streamChat(proxy, CANARY);
    assert.equal(opened(), 1);

    // Streams at the same time need one connection each.
    await Promise.all(Array.from({ length: 5 }, () => streamChat(proxy, CANARY, 'sim-20x100')));
    assert.equal(opened(), 5);
    for (let sent = 0; sent < 10; sent++) await streamChat(proxy, CANARY);
    assert.equal(opened(), 5);

    counting.drop();
    await delay(50);
    assert.equal((await streamChat(proxy, CANARY)).status, 200);
    assert.equal(opened(), 6);
  });
});

describe('a redirect', { concurrency: 4 }, () => {
  /** A server that sends everything on to the simulator, by redirect, and counts how often it was asked. */
  async function redirecting(t: TestContext) {
    const scene = await outboundScene(t);
    const authority = createTestAuthority('Redirecting');
    const asked: string[] = [];
    const { port } = await serveHttps(t, authority.issue(['localhost']), (request, response) => {
      asked.push(`${request.method} ${request.url?.split('?')[0]}`);
      request.resume();
      response.writeHead(308, { location: `${scene.simulator.url}${request.url}` }).end();
    });
    const env = { SSL_CERT_FILE: scene.bundle(authority.pem, scene.simulator.caPem) };
    const there = `localhost:${scene.simulator.port}`;
    return { scene, asked, env, here: `localhost:${port}`, there };
  }

  type Where = Awaited<ReturnType<typeof redirecting>>;
  const paths: Record<'manifest' | 'attest' | 'collateral', (where: Where) => string[]> = {
    manifest: ({ here, there }) => hostsAt(there, here, there),
    attest: ({ here, there }) => hostsAt(here, there, there),
    collateral: ({ here, there }) => hostsAt(there, there, here),
  };
  for (const [what, flags] of Object.entries(paths)) {
    it(`is not followed: ${what}`, async (t) => {
      const where = await redirecting(t);
      const { proxy, lines } = await where.scene.start(where.env, flags(where));
      const reason = 'answered with a redirect (status 308)';
      await eventually(reason, () => JSON.stringify(lines).includes(reason));
      await assert.rejects(async () => proxy.session.acquire({ timeoutMs: 1_000 }));
      assert.ok(where.asked.length > 0, 'was not asked');
      const { counts } = where.scene.simulator;
      assert.deepEqual([counts[what], counts['secret'], counts['inference']], [0, 0, 0]);
    });
  }

  it('is not followed: requests', async (t) => {
    const scene = await outboundScene(t, { faults: {} });
    const { simulator } = scene;
    const host = `localhost:${simulator.port}`;
    const { proxy } = await scene.start(
      { SSL_CERT_FILE: scene.bundle(simulator.caPem) },
      hostsAt(host, host, host),
    );
    const answer = await streamChat(proxy, CANARY, 'sim-echo+fault=redirect:308');
    assert.equal(answer.status, 502);
    assert.match(answer.text, /upstream_redirect/);
    assert.equal(simulator.counts['inference'], 1);
  });
});
