/** The real program behind real ones: tinyproxy, which knows CONNECT only, and mitmproxy, which opens TLS. */
import assert from 'node:assert/strict';
import { readFileSync, writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { join } from 'node:path';
import { before, describe, it, type TestContext } from 'node:test';
import { eventually } from '../support/processes/eventually.ts';
import {
  freePort,
  program,
  type RunningProgram,
  runBeside,
  waitFor,
} from '../support/processes/foreign-programs.ts';
import { serveInspector } from '../support/processes/inspector.ts';
import { type Program, startProxyProcess } from '../support/processes/program.ts';
import { serveConnectProxy } from '../support/remote/loopback.ts';
import { hostsAt, outboundScene, streamChat } from '../support/remote/outbound-scene.ts';
import {
  createTestAuthority,
  type ServerCertificate,
  type TestAuthority,
} from '../support/remote/tls-authority.ts';

const CANARY = 'canary-programs-0ad7';
const TINYPROXY = program('tinyproxy');
const MITMDUMP = program('mitmdump');
function listens(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(port, '127.0.0.1', () => {
      socket.destroy();
      resolve(true);
    });
    socket.on('error', () => resolve(false));
  });
}

async function programScene(t: TestContext) {
  const scene = await outboundScene(t);
  const host = `localhost:${scene.simulator.port}`;
  return {
    ...scene,
    host,
    /** The real program, started with this environment. */
    async run(env: Record<string, string>): Promise<Program> {
      const running = await startProxyProcess(
        [
          '--api-key=k',
          '--listen-address=127.0.0.1',
          '--port=0',
          `--unsafe-trust-roots=${join(scene.directory, 'roots')}`,
          `--workspace=${join(scene.directory, 'workspace')}`,
          ...hostsAt(host, host, host),
        ],
        env,
      );
      t.after(() => running.stop());
      return running;
    },
  };
}

async function answersWithCanary(running: Program): Promise<void> {
  const { status, text } = await streamChat(running, CANARY);
  assert.equal(status, 200, `${text}\n${running.log()}`);
  assert.ok(text.includes(CANARY) && text.endsWith('data: [DONE]\n\n'), text);
}

const logs = (running: Program, words: string): Promise<void> =>
  eventually(
    () => `${words} in the log:\n${running.log()}`,
    () => running.log().includes(words),
  ).then(() => {});

describe('behind tinyproxy,', { skip: TINYPROXY.skip }, () => {
  async function tinyproxy(t: TestContext, directory: string, port: number): Promise<RunningProgram> {
    const file = join(directory, 'tinyproxy.conf');
    const settings = [`Port ${port}`, 'Listen 127.0.0.1', 'LogLevel Connect', 'MaxClients 50', 'Timeout 60'];
    writeFileSync(file, `${settings.join('\n')}\n`);
    const running = runBeside(t, TINYPROXY, ['-d', '-c', file]);
    await waitFor('tinyproxy', () => listens(port), running);
    return running;
  }

  it('attestation, manifest, collateral and requests go through the HTTP proxy, and none past it', async (t) => {
    const scene = await programScene(t);
    const port = await freePort();
    const tiny = await tinyproxy(t, scene.directory, port);
    const running = await scene.run({
      SSL_CERT_FILE: scene.bundle(scene.simulator.caPem),
      https_proxy: `http://127.0.0.1:${port}`,
    });
    await logs(running, 'Coordinator manifest fetched successfully');
    await answersWithCanary(running);
    // One connection at least of the control path, and one of the data path; nothing that goes past it.
    const connections = tiny.output().split(`CONNECT ${scene.host}`).length - 1;
    assert.ok(connections >= 2, tiny.output());

    const { inference } = scene.simulator.counts;
    await tiny.stop();
    assert.notEqual((await streamChat(running, CANARY)).status, 200);
    assert.equal(scene.simulator.counts['inference'], inference);
  });
});

describe('behind mitmproxy,', { skip: MITMDUMP.skip }, () => {
  it('the proxy works only if SSL_CERT_FILE names its authority, and mitmproxy reads no word of a prompt or answer', async (t) => {
    const scene = await programScene(t);
    const port = await freePort();
    const settings = join(scene.directory, 'mitmproxy');
    const flows = join(scene.directory, 'flows');
    const mitm = runBeside(t, MITMDUMP, [
      '--listen-host=127.0.0.1',
      `--listen-port=${port}`,
      '--set',
      `confdir=${settings}`,
      '--set',
      `ssl_verify_upstream_trusted_ca=${scene.bundle(scene.simulator.caPem)}`,
      '-w',
      flows,
    ]);
    await waitFor('mitmproxy', () => listens(port), mitm, 40_000);
    const https_proxy = `http://127.0.0.1:${port}`;

    const strict = await scene.run({ SSL_CERT_FILE: scene.bundle(scene.simulator.caPem), https_proxy });
    await logs(strict, 'certificate signed by unknown authority');
    assert.match(
      strict.log(),
      /localhost presented a certificate for \\"localhost\\" issued by \\"mitmproxy\\"/,
    );
    assert.match(strict.log(), /SSL_CERT_FILE/);
    assert.equal(scene.simulator.counts['attest'], 0);
    await strict.stop();

    const trusting = await scene.run({ SSL_CERT_FILE: join(settings, 'mitmproxy-ca-cert.pem'), https_proxy });
    await logs(trusting, 'Coordinator manifest fetched successfully');
    await answersWithCanary(trusting);
    assert.equal(scene.simulator.exchanges.last()?.opened.includes(CANARY), true);
    await trusting.stop();
    await mitm.stop();

    const seen = readFileSync(flows);
    for (const words of ['/privatemode/v1/secret', '/v1/chat/completions', 'data: [DONE]', 'sim-echo']) {
      assert.ok(seen.includes(words), `it did not open ${words}`);
    }
    assert.ok(!seen.includes(CANARY), 'it read the prompt or the answer');
    assert.ok(!mitm.output().includes(CANARY));
  });
});

const HOSTS = { api: 'api.sim.test', cdn: 'cdn.sim.test', vendor: 'vendor.sim.test' };
const EVERY_HOST = Object.values(HOSTS);
let appliance: TestAuthority;
let shown: ServerCertificate;
before(() => {
  appliance = createTestAuthority('Corp TLS Inspection');
  shown = appliance.issue(EVERY_HOST);
});

/** An HTTP proxy that opens the TLS of the hosts in `opens` and passes on the rest. */
async function behindAppliance(t: TestContext, opens: readonly string[]) {
  const scene = await outboundScene(t, { hostNames: EVERY_HOST });
  const { simulator } = scene;
  const inspector = await serveInspector(t, shown, simulator);
  const opened = new Set(opens);
  const { port } = await serveConnectProxy(t, {
    route: (target) => (opened.has(target.split(':')[0] as string) ? inspector : simulator),
  });
  return {
    ...scene,
    opened,
    inspector,
    https_proxy: `http://127.0.0.1:${port}`,
    flags: hostsAt(HOSTS.api, HOSTS.cdn, HOSTS.vendor),
  };
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
  const paths: readonly (readonly [what: string, host: keyof typeof HOSTS, flags: readonly string[]])[] = [
    ['the manifest source', 'cdn', []],
    ['the API, at attestation', 'api', []],
    ["the hardware vendor's service", 'vendor', []],
  ];
  for (const [what, host] of paths) {
    it(`between the proxy and ${what} is named in the log, and nothing is encrypted for it`, async (t) => {
      const scene = await behindAppliance(t, [HOSTS[host]]);
      const SSL_CERT_FILE = scene.bundle(scene.simulator.caPem);
      const { proxy, lines } = await scene.start(
        { SSL_CERT_FILE, https_proxy: scene.https_proxy },
        scene.flags,
      );
      assertExplains(await logged(lines, /unknown authority/), HOSTS[host]);
      assert.equal(proxy.session.current(), undefined);
      const { secret, inference } = scene.simulator.counts;
      assert.deepEqual([secret, inference], [0, 0]);
    });
  }

  it('is named in the 502 response and in the log if it appears in front of the API after verification', async (t) => {
    const scene = await behindAppliance(t, []);
    const SSL_CERT_FILE = scene.bundle(scene.simulator.caPem);
    const { proxy, lines } = await scene.start(
      { SSL_CERT_FILE, https_proxy: scene.https_proxy },
      [...scene.flags, '--warm-connections=0'], // the request needs a new connection
    );
    await proxy.session.acquire({ timeoutMs: 20_000 });
    scene.opened.add(HOSTS.api);
    const { status, text } = await streamChat(proxy, CANARY);
    assert.equal(status, 502);
    assertExplains(text, HOSTS.api);
    assertExplains(await logged(lines, /unknown authority/), HOSTS.api);
    assert.equal(scene.simulator.counts['inference'], 0);
    assert.equal(scene.inspector.read().length, 0);
  });
});

describe('a TLS inspection appliance that SSL_CERT_FILE names', () => {
  it('lets attestation and requests through, as the log says, and reads no word of prompt or answer', async (t) => {
    const scene = await behindAppliance(t, EVERY_HOST);
    const SSL_CERT_FILE = scene.bundle(appliance.pem);
    const { proxy, lines } = await scene.start(
      { SSL_CERT_FILE, https_proxy: scene.https_proxy },
      scene.flags,
    );
    await logged(lines, /Coordinator manifest fetched successfully/);
    const { status, text } = await streamChat(proxy, CANARY);
    assert.equal(status, 200);
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
});
