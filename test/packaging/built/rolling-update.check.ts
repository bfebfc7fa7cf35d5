import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, writeFileSync } from 'node:fs';
import { type AddressInfo, connect, createServer } from 'node:net';
import { dirname, join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { eventually } from '../../support/processes/eventually.ts';
import { type Program, startProgram } from '../../support/processes/program.ts';
import { temporaryDirectory } from '../../support/processes/temporary-directory.ts';
import { type Remote, startRemote } from '../../support/remote/remote.ts';
import { binary, HOST } from '../support/built.ts';
import type { PodSpec } from '../support/chart-levels.ts';
import { render } from '../support/helm.ts';
import { streamsUnderLoad, tally } from '../support/streams-under-load.ts';

const REPLICAS = 2;
const VALUES = {
  replicaCount: REPLICAS,
  log: { format: 'text' },
  config: { sharedPromptCache: { enabled: true, promptCacheSalt: { enabled: true } } },
};
const SALT = 'a salt of at least 32 bytes that all pods are given';
/** What the secrets that the chart mounts hold. */
const SECRETS = { 'api-key/apiKey': 'test-key', 'prompt-cache-salt/promptCacheSalt': SALT };

/** A Service in small: each new connection goes to the next of the pods, and stays with it. */
async function serveService() {
  const pods: Program[] = [];
  let turn = 0;
  const server = createServer((client) => {
    const { port } = new URL(pods[turn++ % pods.length]!.url);
    const pod = connect(Number(port), '127.0.0.1');
    for (const socket of [client, pod])
      socket.on('error', () => {}).on('close', () => (socket === pod ? client : pod).destroy());
    client.pipe(pod).pipe(client);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return { pods, port: (server.address() as AddressInfo).port, close: () => server.close() };
}

describe('replicas of the chart', { timeout: 600_000 }, () => {
  let remote: Remote;
  let scratch: string;
  let service: Awaited<ReturnType<typeof serveService>>;
  before(async () => {
    remote = await startRemote();
    scratch = temporaryDirectory('pods-');
    for (const [name, content] of Object.entries(SECRETS)) {
      mkdirSync(dirname(join(scratch, name)), { recursive: true });
      writeFileSync(join(scratch, name), content);
    }
    service = await serveService();
  });
  after(async () => {
    for (const pod of service.pods) await pod.stop('SIGKILL');
    service.close();
    await remote.close();
  });

  const rendered = render(VALUES).objects.find(({ kind }) => kind === 'Deployment')!;
  const [container] = (rendered.spec['template'] as { spec: PodSpec }).spec.containers;

  /**
   * Starts one with the chart's own arguments, at places of this machine; resolves when its readiness probe
   * succeeds.
   */
  async function startPod(): Promise<Program> {
    const args = container.args.map((arg) =>
      arg
        .replace('/etc/privatemode-proxy', scratch)
        .replace('--workspace=/workspace', `--workspace=${mkdtempSync(join(scratch, 'workspace-'))}`)
        .replace('--listen-address=0.0.0.0', '--listen-address=127.0.0.1')
        .replace(/^--port=.*/, '--port=0'),
    );
    const simulated = remote.flags.filter((flag) =>
      /^--(api-endpoint|manifest-path|unsafe-trust-roots)=/.test(flag),
    );
    const pod = await startProgram([binary(HOST), ...args, ...simulated], remote.env);
    const probe = `${pod.url}${container.readinessProbe.httpGet.path}`;
    const isReady = async (): Promise<boolean> => (await fetch(probe)).status === 204;
    await eventually(() => `readiness:\n${pod.log()}`, isReady, 30_000, 100);
    return pod;
  }

  it('complete all of 150 streams while they are updated one by one', async () => {
    for (let i = 0; i < REPLICAS; i++) service.pods.push(await startPod());
    const load = streamsUnderLoad({ port: service.port, count: 150, everyMs: 30, model: 'sim-20x50' });
    for (let i = 0; i < REPLICAS; i++) {
      service.pods.push(await startPod());
      const [old] = service.pods as [Program];
      const stopped = old.stop();
      await delay(200); // shutdownDelaySeconds: it is still routed to
      service.pods.shift();
      assert.equal(await stopped, 0, old.log());
    }
    assert.deepEqual(tally(await load), { complete: 150 });
  });

  it('send the cache salt of the chart with every request', () => {
    const salts = remote.simulator.exchanges
      .all()
      .filter(({ opened }) => opened !== '')
      .map(({ opened }) => (JSON.parse(opened) as { cache_salt: string }).cache_salt);
    assert.equal(salts.length, 150);
    assert.deepEqual([...new Set(salts)], [SALT]);
  });
});
