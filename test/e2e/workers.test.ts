/** Several processes behind one port (docs/decisions.md 11). */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import type { StatusReport } from '../../lib/observe/status-report.ts';
import type { VerificationDocument } from '../../lib/transparency/verification-document.ts';
import { wrongInVerification } from '../support/doors/verification-schema.ts';
import { runCommand } from '../support/processes/command.ts';
import { eventually } from '../support/processes/eventually.ts';
import { type Program, startProxyProcess } from '../support/processes/program.ts';
import { type Remote, startRemote } from '../support/remote/remote.ts';

const METRICS_PORT = 29_464;

describe('--workers 2', { timeout: 60_000 }, () => {
  let remote: Remote;
  let proxy: Program;
  before(async () => {
    remote = await startRemote({ apiKey: null });
    const observed = [`--admin-address=127.0.0.1:${METRICS_PORT}`, '--expose-verification'];
    proxy = await startProxyProcess(
      [...remote.flags, '--workers=2', '--port=0', '--shutdown-grace=5s', ...observed],
      remote.env,
    );
  });
  after(async () => {
    await proxy.stop('SIGKILL');
    await remote.close();
  });

  const ask = (model: string, stream = false): Promise<Response> =>
    fetch(`${proxy.url}/v1/chat/completions`, {
      method: 'POST',
      headers: { authorization: 'Bearer some-key', 'content-type': 'application/json', connection: 'close' },
      body: JSON.stringify({ model, stream, messages: [{ role: 'user', content: 'hello' }] }),
    });

  /** One connection each, so that every worker is asked. */
  const verifications = (): Promise<VerificationDocument[]> =>
    Promise.all(
      Array.from({ length: 6 }, async () => {
        const response = await fetch(`${proxy.url}/verification`, { headers: { connection: 'close' } });
        assert.equal(response.status, 200);
        return (await response.json()) as VerificationDocument;
      }),
    );

  it('says that nothing is verified before the first key, whichever worker is asked', async () => {
    for (const document of await verifications()) {
      assert.deepEqual(wrongInVerification(document), []);
      assert.deepEqual([document.verified, document.epoch, document.verdict], [false, null, null]);
    }
  });

  it("attests once, with the first client's key, for all workers", async () => {
    assert.equal(proxy.children().length, 2);
    const answers = await Promise.all(Array.from({ length: 8 }, () => ask('sim-echo')));
    assert.deepEqual(
      answers.map(({ status }) => status),
      Array.from({ length: 8 }, () => 200),
    );
    const secrets = new Set(answers.map(({ headers }) => headers.get('privatemode-proxy-secret-id')));
    assert.equal(secrets.size, 1);
    assert.equal(remote.simulator.counts['attest'], 1);
    assert.equal(remote.simulator.counts['secret'], 1);
  });

  it('renews a forgotten secret once, whichever worker noticed', async () => {
    remote.simulator.secrets.dropAll();
    const answers = await Promise.all(Array.from({ length: 6 }, () => ask('sim-echo')));
    assert.deepEqual([...new Set(answers.map(({ status }) => status))], [200]);
    assert.equal(remote.simulator.counts['secret'], 2);
  });

  it('adds the metrics of all workers', async () => {
    const text = await (await fetch(`http://127.0.0.1:${METRICS_PORT}/metrics`)).text();
    assert.match(text, /privatemode_proxy_requests_total\{route="chat",method="POST",code="200"\} 14\n/);
    assert.match(text, /privatemode_proxy_manifest_info\{digest="[0-9a-f]{64}"\} 1\n/);
  });

  it('shows the verification document of the one session, whichever worker is asked', async () => {
    const digests = new Set<string | undefined>();
    for (const document of await verifications()) {
      assert.deepEqual(wrongInVerification(document), []);
      const { verified, epoch, chain, manifests } = document;
      digests.add(epoch?.verdictSha256);
      assert.deepEqual([verified, manifests.length], [true, 1]);
      assert.deepEqual([...new Set(chain.map(({ outcome }) => outcome))], ['pass']);
    }
    assert.equal(digests.size, 1);
  });

  it('adds the traffic of all workers, and tells it the command status', async () => {
    const stream = await ask('sim-20x50', true);
    const status = async (): Promise<StatusReport> =>
      (await fetch(`http://127.0.0.1:${METRICS_PORT}/status`)).json() as Promise<StatusReport>;
    const during = await status();
    assert.deepEqual([during.traffic.inFlight, during.workers, during.standing.state], [1, 2, 'verified']);
    await stream.text();
    const { finished, seconds } = await eventually('the end of the stream in the status', async () => {
      const { traffic } = await status();
      return traffic.inFlight === 0 && traffic;
    });
    assert.equal(finished.length, 15);
    assert.deepEqual([finished[0]?.model, finished[0]?.outcome], ['sim-20x50', 'answered']);
    assert.ok(seconds.reduce((sum, { chunks }) => sum + chunks, 0) >= 20);
    const env = { PRIVATEMODE_PROXY_ADMIN_ADDRESS: `127.0.0.1:${METRICS_PORT}` };
    const { code, stdout, stderr } = await runCommand(['status'], { env });
    assert.deepEqual([code, stderr], [35, '']); // verified, under the roots of a simulator
    assert.match(stdout, /2 workers[\s\S]*sim-20x50/);
  });

  it('replaces a worker that dies, and the other one goes on', async () => {
    const [victim] = proxy.children();
    process.kill(victim as number, 'SIGKILL');
    await eventually('the end of the worker', () => proxy.log().includes('A worker ended'));
    const answers = await Promise.all(Array.from({ length: 4 }, () => ask('sim-echo')));
    assert.deepEqual([...new Set(answers.map(({ status }) => status))], [200]);
    const others = (): number[] => proxy.children().filter((pid) => pid !== victim);
    await eventually('a worker in its place', () => others().length === 2);
  });

  it('lets streams finish on SIGTERM, and ends with 0', async () => {
    const answer = await ask('sim-20x50', true);
    const toldAt = performance.now();
    const stopped = proxy.stop('SIGTERM');
    const text = await answer.text();
    assert.match(text, /data: \[DONE\]\n\n$/);
    assert.equal(await stopped, 0);
    assert.ok(performance.now() - toldAt < 4_000, 'no worker had to be waited for');
    const history = readFileSync(join(remote.directory, 'workspace/manifests/log.txt'), 'utf8');
    assert.equal(history.trim().split('\n').length, 1);
  });
});

describe('--workers 2 with a configured key', { timeout: 60_000 }, () => {
  it('is ready in every worker where the session stands before they listen', async () => {
    const remote = await startRemote();
    const proxy = await startProxyProcess([...remote.flags, '--workers=2', '--port=0'], remote.env);
    try {
      await eventually('a proxy that is ready', async () => {
        const { status } = await fetch(`${proxy.url}/readyz`, { headers: { connection: 'close' } });
        return status === 204;
      });
    } finally {
      await proxy.stop('SIGKILL');
      await remote.close();
    }
  });
});

describe('--workers 2 and a service that is rejected', { timeout: 60_000 }, () => {
  it('answer alike from every worker, also while the service is silent, until it passes', async (t) => {
    const remote = await startRemote({ faults: { 'secret-expired-certificate': true } });
    const { simulator, flags, env } = remote;
    const proxy = await startProxyProcess([...flags, '--workers=2', '--port=0'], env);
    t.after(async () => {
      await proxy.stop('SIGKILL');
      await remote.close();
    });
    /** Statuses and codes of six requests, each on a connection of its own, so that every worker is asked. */
    const answers = async (path: string, body?: object): Promise<string[]> => {
      const asked = Array.from({ length: 6 }, async () => {
        const init = { method: 'POST', body: JSON.stringify(body) };
        const headers = { 'content-type': 'application/json', connection: 'close' };
        const response = await fetch(proxy.url + path, { ...(body && init), headers });
        const text = await response.text();
        const retry = response.headers.get('x-should-retry');
        const clock = text.includes('Check the clock of this machine first');
        return `${response.status} ${response.headers.get('privatemode-proxy-error')} ${retry} ${clock}`;
      });
      return [...new Set(await Promise.all(asked))];
    };
    const chat = { model: 'sim-echo', messages: [{ role: 'user', content: 'hello' }] };

    assert.deepEqual(await answers('/v1/chat/completions', chat), ['400 attestation_failed false true']);
    simulator.faults.set('attest-status', 503);
    await delay(1_000);
    assert.deepEqual(await answers('/v1/chat/completions', chat), ['400 attestation_failed false true']);
    assert.deepEqual(await answers('/readyz'), ['503 attestation_failed null false']);
    assert.equal(simulator.counts['inference'], 0);
    simulator.faults.clear();
    const refused = async (): Promise<boolean> =>
      (await answers('/v1/chat/completions', chat))[0]?.startsWith('400') ?? false;
    await eventually('a service that passes', async () => !(await refused()));
    assert.deepEqual(await answers('/readyz'), ['204 null null false']);
  });
});
