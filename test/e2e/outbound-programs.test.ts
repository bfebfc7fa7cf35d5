/** The real program behind real ones: tinyproxy, which knows CONNECT only, and mitmproxy, which opens TLS. */
import assert from 'node:assert/strict';
import { readFileSync, writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { join } from 'node:path';
import { describe, it, type TestContext } from 'node:test';
import { freePort, program, type RunningProgram, runBeside, waitFor } from '../support/foreign-programs.ts';
import { hostsAt, outboundScene, streamChat } from '../support/outbound-scene.ts';
import { type ProxyProcess, startProxyProcess } from '../support/proxy-process.ts';

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
    async run(env: Record<string, string>): Promise<ProxyProcess> {
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

async function answersWithCanary(running: ProxyProcess): Promise<void> {
  const { status, text } = await streamChat(running, CANARY);
  assert.equal(status, 200, `${text}\n${running.log()}`);
  assert.ok(text.includes(CANARY) && text.endsWith('data: [DONE]\n\n'), text);
}

const logs = (running: ProxyProcess, words: string): Promise<void> =>
  waitFor(words, () => running.log().includes(words), {
    process: running.process,
    output: running.log,
    stop: async () => {},
  });

describe('behind tinyproxy', { skip: TINYPROXY.skip }, () => {
  async function tinyproxy(t: TestContext, directory: string, port: number): Promise<RunningProgram> {
    const file = join(directory, 'tinyproxy.conf');
    const settings = [`Port ${port}`, 'Listen 127.0.0.1', 'LogLevel Connect', 'MaxClients 50', 'Timeout 60'];
    writeFileSync(file, `${settings.join('\n')}\n`);
    const running = runBeside(t, TINYPROXY, ['-d', '-c', file]);
    await waitFor('tinyproxy', () => listens(port), running);
    return running;
  }

  it('attestation, manifest, collateral and requests go through it', async (t) => {
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

describe('behind mitmproxy', { skip: MITMDUMP.skip }, () => {
  it('its authority has to be named; then everything works, and it reads no word', async (t) => {
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
