import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { before, describe, it, type TestContext } from 'node:test';
import { parseConfig } from '../../lib/config/config.ts';
import { startProxy } from '../../lib/proxy.ts';
import { askChat } from '../support/doors/ask-chat.ts';
import { watchConnections } from '../support/doors/connections.ts';
import { recordingLogger } from '../support/doors/logger.ts';
import { eventually } from '../support/processes/eventually.ts';
import { serveInspector } from '../support/processes/inspector.ts';
import { temporaryDirectory } from '../support/processes/temporary-directory.ts';
import { serveConnectProxy } from '../support/remote/loopback.ts';
import { startTestSimulator } from '../support/remote/simulator.ts';
import {
  createTestAuthority,
  type ServerCertificate,
  type TestAuthority,
} from '../support/remote/tls-authority.ts';

const CANARY = 'canary-inspection-0ad7';
const HOSTS = { api: 'api.sim.test', cdn: 'cdn.sim.test', vendor: 'vendor.sim.test' };
const EVERY_HOST = Object.values(HOSTS);
let appliance: TestAuthority;
let shown: ServerCertificate;
before(() => {
  appliance = createTestAuthority('Corp TLS Inspection');
  shown = appliance.issue(EVERY_HOST);
});

/**
 * A whole proxy behind an HTTP proxy that opens the TLS of the hosts in `opens` and passes on the rest. The
 * evidence comes without a revocation list, so that the vendor is asked too.
 */
async function behindAppliance(t: TestContext, opens: readonly string[]) {
  const directory = temporaryDirectory('inspection-');
  const faults = { 'evidence-no-crl': true };
  const simulator = await startTestSimulator({ directory, faults, hostNames: EVERY_HOST });
  t.after(() => simulator.close());
  const inspector = await serveInspector(t, shown, simulator);
  const opened = new Set(opens);
  const { port, seen } = await serveConnectProxy(t, {
    route: (target) => (opened.has(target.split(':')[0] as string) ? inspector : simulator),
  });
  async function start(authority: string) {
    const { log, lines } = recordingLogger();
    const bundle = join(directory, 'bundle.pem');
    writeFileSync(bundle, authority);
    const flags = [
      ...['--api-key=k', '--listen-address=127.0.0.1', '--port=0'],
      ...[`--api-endpoint=${HOSTS.api}`, `--cdn-base-url=https://${HOSTS.cdn}`],
      `--amd-kds-url=https://${HOSTS.vendor}`,
      `--unsafe-trust-roots=${join(directory, 'roots')}`,
      `--workspace=${join(directory, 'workspace')}`,
    ];
    const env = { SSL_CERT_FILE: bundle, https_proxy: `http://127.0.0.1:${port}` };
    // No connection is opened ahead, so that they can be counted.
    const proxy = await startProxy(parseConfig(flags, {}).config, { env, log, warmConnections: 0 });
    t.after(() => proxy.close());
    return { proxy, lines };
  }
  return { simulator, opened, inspector, start, targets: () => seen.map(({ target }) => target) };
}

async function ask(proxy: { readonly url: string }) {
  const response = await askChat(proxy, { content: CANARY, stream: true });
  return { status: response.status, text: await response.text() };
}

const logged = (lines: readonly Record<string, unknown>[], words: RegExp): Promise<string> =>
  eventually(
    () => `${words} in the log:\n${lines.map((line) => line['msg']).join('\n')}`,
    () => lines.map((entry) => JSON.stringify(entry)).find((text) => words.test(text)),
  );

/** The words of a refused certificate, as people search for them. */
function assertExplains(text: string, host: string): void {
  assert.match(text, /certificate signed by unknown authority/);
  assert.ok(text.includes(`${host} presented a certificate`), text);
  assert.match(text, /issued by \\*"Corp TLS Inspection\\*"/);
  assert.match(text, /SSL_CERT_FILE/);
}

describe('a TLS inspection appliance that SSL_CERT_FILE does not name', () => {
  it('is named in the log wherever it stands before verification, and nothing is encrypted for it', async (t) => {
    for (const host of EVERY_HOST) {
      const scene = await behindAppliance(t, [host]);
      const { proxy, lines } = await scene.start(scene.simulator.caPem);
      assertExplains(await logged(lines, /unknown authority.*"remedy"/), host);
      assert.equal(proxy.session.current(), undefined);
      const { secret, inference } = scene.simulator.counts;
      assert.deepEqual([secret, inference], [0, 0]);
    }
  });

  it('is named in the 502 response and in the log if it appears in front of the API after verification', async (t) => {
    const scene = await behindAppliance(t, []);
    const { proxy, lines } = await scene.start(scene.simulator.caPem);
    await proxy.session.acquire({ timeoutMs: 20_000 });
    scene.opened.add(HOSTS.api);
    const { status, text } = await ask(proxy);
    assert.equal(status, 502);
    assertExplains(text, HOSTS.api);
    assertExplains(await logged(lines, /unknown authority/), HOSTS.api);
    assert.equal(scene.simulator.counts['inference'], 0);
    assert.equal(scene.inspector.read().length, 0);
  });
});

it('a TLS inspection appliance that SSL_CERT_FILE names lets attestation and requests through by CONNECT, as the log says, and reads no word of prompt or answer', async (t) => {
  const scene = await behindAppliance(t, EVERY_HOST);
  const connections = watchConnections();
  t.after(() => connections.end());
  const { proxy, lines } = await scene.start(appliance.pem);
  await logged(lines, /Coordinator manifest fetched successfully/);
  await proxy.session.acquire({ timeoutMs: 20_000 });
  const expected = EVERY_HOST.map((host) => `${host}:443`);
  assert.deepEqual([...new Set(scene.targets())].sort(), expected);
  const control = scene.targets().length;
  const { status, text } = await ask(proxy);
  assert.equal(status, 200);
  assert.deepEqual(scene.targets().slice(control), [`${HOSTS.api}:443`]);
  // Names that resolve nowhere: only the HTTP proxy can know where they are.
  const direct = connections.targets().filter((target) => target.includes('sim.test'));
  assert.deepEqual(direct, []);
  assert.ok(text.includes(CANARY) && text.endsWith('data: [DONE]\n\n'), text);

  const read = scene.inspector.read();
  // It did open everything: of each path it knows the requests, and of ours the answer's frame.
  for (const line of [
    'GET /privatemode/v2/manifest.json',
    'POST /privatemode/v1/attest',
    'POST /privatemode/v1/secret',
    'POST /v1/chat/completions',
    'data: [DONE]',
  ]) {
    assert.ok(read.includes(line), `it did not read ${line}`);
  }
  assert.ok(!read.includes(CANARY), 'it read the prompt or the answer');
  assert.equal(scene.simulator.exchanges.last()?.opened.includes(CANARY), true);
});
