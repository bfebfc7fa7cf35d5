/** The gateway's tests a second time, over HTTP/2: the same files, the same assertions, with a service that speaks it (test/support/stack.ts). */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { startSimulator } from '../../simulator/simulator.ts';
import { cleanEnvironment, startProxyProcess } from '../support/proxy-process.ts';
import { sharedHardware, startStack } from '../support/stack.ts';
import { ROOT } from '../support/tools.ts';

/** ms for one file, on a busy machine. */
const PATIENCE = 240_000;

const RUNS: readonly (readonly [file: string, least: number])[] = [
  ['test/clients/openai.test.ts', 43],
  ['test/clients/anthropic.test.ts', 29],
  ['test/clients/aborts.test.ts', 32],
  ['test/clients/usage.test.ts', 52],
  ['test/clients/errors.test.ts', 184],
  ['test/faults/sdk.test.ts', 456],
  ['test/e2e/gateway-attacks.test.ts', 361],
  ['test/e2e/honest-transcripts.test.ts', 240],
  ['test/gateway/all-endpoints.test.ts', 47],
  ['test/gateway/keys.test.ts', 37],
  ['test/gateway/http2-suites.test.ts', 3],
];

const IN_HTTP2 = process.env['TEST_REMOTE'] === 'h2';

/** Runs one test file in a process of its own, against a service that speaks HTTP/2; kills it after PATIENCE. */
function runFile(file: string): Promise<{ readonly status: number | null; readonly output: string }> {
  const { promise, resolve } = Promise.withResolvers<Awaited<ReturnType<typeof runFile>>>();
  const child = spawn(
    process.execPath,
    ['--test', '--test-isolation=none', '--test-reporter=spec', '--test-timeout=60000', file],
    {
      cwd: ROOT,
      env: cleanEnvironment({ TEST_REMOTE: 'h2' }, /^NODE_TEST_CONTEXT$/),
      stdio: ['ignore', 'pipe', 'pipe'],
      timeout: PATIENCE,
      killSignal: 'SIGKILL',
    },
  );
  let output = '';
  for (const stream of [child.stdout, child.stderr]) {
    stream.setEncoding('utf8').on('data', (text: string) => {
      output += text;
    });
  }
  child.once('close', (status) => resolve({ status, output }));
  return promise;
}

if (!IN_HTTP2) {
  describe('over HTTP/2 to the service', { concurrency: 2 }, () => {
    for (const [file, least] of RUNS) {
      it(file, { timeout: PATIENCE + 30_000 }, async () => {
        const { status, output } = await runFile(file);
        assert.equal(
          status,
          0,
          output.slice(Math.max(output.indexOf('failing tests:'), output.length - 20_000)),
        );
        const passed = Number(/^ℹ pass (\d+)$/m.exec(output)?.[1]);
        assert.ok(passed >= least, `${passed} tests passed, not ${least}`);
      });
    }
  });
} else {
  describe('a stack whose service speaks HTTP/2', { timeout: 60_000 }, () => {
    const chat = (url: string, content = 'x', stream = false): Promise<Response> =>
      fetch(`${url}/v1/chat/completions`, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify({ model: 'sim-20x0', stream, messages: [{ role: 'user', content }] }),
      });

    it('gets every kind of request over it, and honest ones', async (t) => {
      const stack = await startStack();
      t.after(() => stack.close());
      const form = new FormData();
      form.set('model', 'sim-transcribe');
      form.set('file', new Blob(['audio']), 'a.wav');
      const requests = [
        () => chat(stack.url, 'x', true),
        () => chat(stack.url),
        () => fetch(`${stack.url}/v1/models`),
        () => fetch(`${stack.url}/v1/models`, { method: 'HEAD' }),
        () => fetch(`${stack.url}/v1/audio/transcriptions`, { method: 'POST', body: form }),
      ];
      for (const [at, request] of requests.entries()) {
        const response = await request();
        await response.text();
        assert.ok(response.ok, `request ${at}: ${response.status}`);
        assert.equal(stack.simulator.http2.requests, at + 1);
      }
      const exchanges = stack.simulator.exchanges.all();
      assert.deepEqual(
        exchanges.flatMap(({ violations }) => violations),
        [],
      );
    });

    it('has one session with each of two workers', async (t) => {
      const directory = mkdtempSync(join(tmpdir(), 'privatemode-http2-'));
      t.after(() => rmSync(directory, { recursive: true, force: true }));
      const simulator = await startSimulator({ directory, hardware: await sharedHardware(), http2: true });
      t.after(() => simulator.close());
      const flags = [
        `--api-endpoint=localhost:${simulator.port}`,
        `--manifest-path=${join(directory, 'manifest.json')}`,
        `--unsafe-trust-roots=${join(directory, 'roots')}`,
        `--workspace=${join(directory, 'workspace')}`,
        '--api-key=key',
        '--listen-address=127.0.0.1',
        '--port=0',
        '--workers=2',
        '--warm-connections=1',
      ];
      const proxy = await startProxyProcess(flags, { SSL_CERT_FILE: join(directory, 'ca.pem') });
      t.after(() => proxy.stop('SIGKILL'));
      const { http2 } = simulator;
      for (const deadline = Date.now() + 10_000; http2.sessions < 2; await delay(20)) {
        assert.ok(Date.now() < deadline, `${http2.sessions} sessions`);
      }
      for (const answer of await Promise.all(Array.from({ length: 8 }, () => chat(proxy.url, 'x', true)))) {
        assert.match(await answer.text(), /data: \[DONE\]\n\n$/);
      }
      assert.deepEqual([http2.sessions, http2.requests], [2, 8]);
    });

    it('gets a prompt beyond its window over HTTP/1.1', async (t) => {
      const stack = await startStack({ simulator: { hardware: await sharedHardware() } });
      t.after(() => stack.close());
      const response = await chat(stack.url, 'x'.repeat(200_000));
      await response.text();
      assert.equal(response.status, 200);
      assert.equal(stack.simulator.http2.requests, 0);
      assert.equal(stack.simulator.counts['inference'], 1);
    });
  });
}
