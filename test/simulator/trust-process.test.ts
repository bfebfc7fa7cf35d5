/** The simulator as the program that a person starts: what it prints, what it writes, and how it ends. */
import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { X509Certificate } from 'node:crypto';
import { once } from 'node:events';
import { existsSync, readdirSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { describe, it, type TestContext } from 'node:test';
import { INFERENCE_FAULTS } from '../../simulator/inference/faults.ts';
import { eventually } from '../support/processes/eventually.ts';
import { startProgram } from '../support/processes/program.ts';
import { temporaryDirectory } from '../support/processes/temporary-directory.ts';
import { ROOT } from '../support/processes/tools.ts';
import { call, post } from '../support/remote/simulator.ts';

interface Launched {
  readonly child: ChildProcess;
  readonly stdout: () => string;
  readonly stderr: () => string;
  /** Its exit code, once everything it printed has been read. */
  readonly ended: Promise<number>;
}

/** It is gone at the end of the test at the latest. */
function launch(t: TestContext, ...args: readonly string[]): Launched {
  const child = spawn(process.execPath, [join(ROOT, 'bin/privatemode-simulator.ts'), ...args], {
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  const ended = once(child, 'close').then(([code]) => code as number);
  t.after(() => {
    child.kill('SIGKILL');
    return ended;
  });
  let [stdout, stderr] = ['', ''];
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    stdout += text;
  });
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    stderr += text;
  });
  return { child, stdout: () => stdout, stderr: () => stderr, ended };
}

interface Running extends Launched {
  readonly ready: { readonly port: number; readonly url: string; readonly dir: string };
}

async function run(t: TestContext, ...args: readonly string[]): Promise<Running> {
  const launched = launch(t, ...args);
  await Promise.race([once(launched.child.stdout!, 'data'), launched.ended]);
  assert.match(launched.stdout(), /\n$/, launched.stderr());
  return { ...launched, ready: JSON.parse(launched.stdout()) };
}

describe('the simulator as a process', { timeout: 60_000 }, () => {
  const directory = temporaryDirectory('simulator-test-');
  /** One machine for several tests: making its keys takes 1.5 s of CPU. */
  const dir = join(directory, 'kept');
  const read = (...names: string[]): string => readFileSync(join(dir, ...names), 'utf8');

  it('prints one line, writes its files, keeps its keys to their owner, and ends with 0 on SIGTERM', async (t) => {
    const { child, ready, ended, stdout, stderr } = await run(t, '--dir', dir, '--quiet');
    assert.deepEqual(Object.keys(ready), ['ready', 'port', 'url', 'dir', 'manifestSha256']);
    assert.deepEqual([ready.url, ready.dir], [`https://localhost:${ready.port}`, dir]);
    const roots = readdirSync(join(dir, 'roots')).sort();
    assert.deepEqual(roots, ['ARK-Genoa.pem', 'Intel-SGX-Root-CA.pem', 'SEV-Genoa.pem']);
    for (const file of roots) {
      const commonName = /CN=(.*)/.exec(new X509Certificate(read('roots', file)).subject)?.[1];
      assert.equal(`${commonName?.replaceAll(' ', '-')}.pem`, file);
    }
    assert.equal(statSync(join(dir, 'hardware.json')).mode & 0o777, 0o600);

    const simulator = { port: ready.port, caPem: read('ca.pem') };
    const published = async () =>
      String((await call(simulator, 'GET', '/privatemode/v2/manifest.json')).body);
    const first = read('manifest.json');
    assert.equal(await published(), first);
    await call(simulator, 'POST', '/_simulator/rotate-manifest');
    assert.notEqual(read('manifest.json'), first);
    assert.equal(await published(), read('manifest.json'));

    const setFaults = async (inference: string) =>
      (await call(simulator, 'PUT', '/_simulator/faults', { body: JSON.stringify({ inference }) })).status;
    assert.deepEqual([await setFaults('gzip'), await setFaults('gzip+bogus')], [200, 400]);

    child.kill('SIGTERM');
    assert.equal(await ended, 0);
    assert.deepEqual([stdout().trimEnd().split('\n').length, stderr()], [1, '']);
  });

  it('is the same machine after a restart in the same directory, and ends with 1 where its port is taken', async (t) => {
    const filesOf = () => ['ca.pem', 'roots/ARK-Genoa.pem', 'manifest.json'].map((file) => read(file));
    const first = await run(t, '--dir', dir, '--quiet');
    const before = filesOf();
    first.child.kill('SIGINT');
    assert.equal(await first.ended, 0);
    const { ready } = await run(t, '--dir', dir, '--quiet');
    assert.deepEqual(filesOf(), before);
    const third = launch(t, '--port', String(ready.port), '--dir', dir);
    assert.equal(await third.ended, 1);
    assert.match(third.stderr(), /EADDRINUSE/);
  });

  it('keeps nothing without --dir, and says on stderr how to use it and what was asked', async (t) => {
    const { child, ready, ended, stderr } = await run(
      t,
      '--tee',
      'tdx',
      '--api-key',
      'k',
      '--fault',
      'attest-status=418',
    );
    const simulator = { port: ready.port, caPem: readFileSync(join(ready.dir, 'ca.pem'), 'utf8') };
    assert.equal((await post(simulator, '/privatemode/v1/attest', {}, 'k')).status, 418);
    child.kill('SIGTERM');
    assert.equal(await ended, 0);
    assert.match(stderr(), /:\n\nPOST \/privatemode\/v1\/attest 418\n$/);
    assert.equal(existsSync(ready.dir), false);
  });

  it('says how to start a proxy in front of it, which answers for models of these names only', async (t) => {
    const { stderr } = await run(t, '--dir', dir, '--api-key', 'k');
    const said = await eventually('the next steps', () => /^ {2}npm start -- (.+\n.+)$/m.exec(stderr())?.[1]);
    const flags = said.split(/[\s\\]+/);
    const env = [...stderr().matchAll(/^ {2}export (\w+)=(.+)$/gm)].map(([, name, value]) => [name, value]);
    const program = [process.execPath, join(ROOT, 'bin/privatemode-proxy.ts'), ...flags, '--port=0'];
    const proxy = await startProgram(program, { ...Object.fromEntries(env), TMPDIR: directory });
    t.after(() => proxy.stop());
    assert.match(proxy.log(), /--unsafe-trust-roots/);
    for (const [model, status, words] of [
      ['sim-echo', 200, /hello/],
      ['gpt-5', 404, /The model `gpt-5` does not exist/],
    ] as const) {
      const body = JSON.stringify({ model, messages: [{ role: 'user', content: 'hello' }] });
      const answer = await fetch(`${proxy.url}/v1/chat/completions`, { method: 'POST', body });
      assert.equal(answer.status, status);
      assert.match(await answer.text(), words);
    }
  });

  for (const [args, words] of [
    [['--no-such-option'], /no-such-option/],
    [['--port', '65536'], /--port/],
    [['--secret-lifetime', '1h'], /--secret-lifetime/],
    [['--tee', 'sgx'], /--tee/],
    [['--fault', 'no-such=1'], /no-such/],
    [['--fault', 'inference=flip_tag:3+bogus'], /no fault of inference named bogus; --help lists them/],
    [['--host', '192.0.2.1', '--dir'], /dir/],
  ] as const) {
    it(`ends with 1 and says why: ${args.join(' ')}`, async (t) => {
      const { ended, stdout, stderr } = launch(t, ...args);
      assert.deepEqual([await ended, stdout()], [1, '']);
      assert.match(stderr(), words);
      assert.equal(stderr().split('\n').length, 2);
    });
  }

  it('lists every option and fault in its help', async (t) => {
    const { ended, stdout } = launch(t, '--help');
    assert.equal(await ended, 0);
    const inference = Object.keys(INFERENCE_FAULTS).map((name) => `\n  ${name} `);
    assert.ok(inference.length > 30);
    for (const word of ['--dir', '--api-key', '--secret-lifetime', 'evidence-debug=flag', ...inference]) {
      assert.ok(stdout().includes(word), word);
    }
  });
});
