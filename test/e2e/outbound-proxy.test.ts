/**
 * Behind an HTTP proxy: attestation and secret, manifest, vendors' collateral and the requests themselves go
 * through it by CONNECT.
 */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { watchConnections } from '../support/doors/connections.ts';
import { eventually } from '../support/processes/eventually.ts';
import { serveConnectProxy } from '../support/remote/loopback.ts';
import { hostsAt, outboundScene, streamChat } from '../support/remote/outbound-scene.ts';

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
