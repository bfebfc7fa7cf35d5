import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { X509Certificate } from 'node:crypto';
import { once } from 'node:events';
import { mkdtemp, readdir, readFile, rm, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { eventually } from '../support/processes/eventually.ts';
import { startProgram } from '../support/processes/program.ts';
import { ROOT } from '../support/processes/tools.ts';
import { createLiteralRecipient } from '../support/remote/literal-hpke.ts';
import { attestationDocument, call, post } from '../support/remote/simulator.ts';

const BIN = join(ROOT, 'bin/privatemode-simulator.ts');

interface Running {
  readonly child: ChildProcess;
  readonly stderr: () => string;
  readonly ready: { port: number; url: string; dir: string; manifestSha256: string };
  readonly caPem: string;
  /** Ends the process by a signal; its exit code and everything it printed. */
  end(signal: NodeJS.Signals): Promise<{ code: number | null; stdout: string; stderr: string }>;
}

function launch(args: readonly string[]): {
  child: ChildProcess;
  stdout: () => string;
  stderr: () => string;
} {
  const child = spawn(process.execPath, [BIN, ...args], {
    stdio: ['ignore', 'pipe', 'pipe'],
    timeout: 60_000,
  });
  let [stdout, stderr] = ['', ''];
  child.stdout?.setEncoding('utf8').on('data', (text: string) => {
    stdout += text;
  });
  child.stderr?.setEncoding('utf8').on('data', (text: string) => {
    stderr += text;
  });
  return { child, stdout: () => stdout, stderr: () => stderr };
}

async function run(...args: string[]): Promise<Running> {
  const { child, stdout, stderr } = launch(args);
  const closed = once(child, 'close');
  while (!stdout().includes('\n')) {
    const ended = await Promise.race([
      once(child.stdout!, 'data').then(() => false),
      closed.then(() => true),
    ]);
    if (ended) throw new Error(`the simulator ended: ${stderr()}`);
  }
  const ready = JSON.parse(stdout());
  return {
    child,
    stderr,
    ready,
    caPem: await readFile(join(ready.dir, 'ca.pem'), 'utf8'),
    async end(signal) {
      child.kill(signal);
      const [code] = await closed;
      return { code, stdout: stdout(), stderr: stderr() };
    },
  };
}

describe('the simulator as a process', { timeout: 60_000 }, () => {
  let directory: string;
  /** One machine for several tests: making its keys takes 1.5 s of CPU. */
  let dir: string;
  before(async () => {
    directory = await mkdtemp(join(tmpdir(), 'simulator-test-'));
    dir = join(directory, 'kept');
  });
  after(() => rm(directory, { recursive: true, force: true }));

  it('prints one line, writes its files, serves, warns of nothing, and ends with 0 on SIGTERM', async () => {
    const running = await run('--dir', dir, '--quiet');
    const { ready, caPem } = running;
    const simulator = { port: ready.port, caPem };
    assert.deepEqual(Object.keys(ready), ['ready', 'port', 'url', 'dir', 'manifestSha256']);
    assert.equal(ready.url, `https://localhost:${ready.port}`);
    assert.equal(ready.dir, dir);

    const roots = await readdir(join(dir, 'roots'));
    assert.deepEqual(roots.sort(), ['ARK-Genoa.pem', 'Intel-SGX-Root-CA.pem', 'SEV-Genoa.pem']);
    for (const file of roots) {
      const { subject } = new X509Certificate(await readFile(join(dir, 'roots', file)));
      const commonName = /CN=(.*)/.exec(subject)?.[1];
      assert.equal(`${commonName?.replaceAll(' ', '-')}.pem`, file);
    }
    assert.equal((await stat(join(dir, 'hardware.json'))).mode & 0o777, 0o600);

    const manifest = await call(simulator, 'GET', '/privatemode/v2/manifest.json');
    assert.deepEqual(manifest.body, await readFile(join(dir, 'manifest.json')));
    assert.ok((await attestationDocument(simulator, new Uint8Array(32))).length > 1000);
    const PublicKey = createLiteralRecipient().publicKey.toString('base64');
    assert.equal((await post(simulator, '/privatemode/v1/secret', { PublicKey })).status, 200);

    await call(simulator, 'POST', '/_simulator/rotate-manifest');
    const rotated = await call(simulator, 'GET', '/privatemode/v2/manifest.json');
    assert.deepEqual(rotated.body, await readFile(join(dir, 'manifest.json')));

    const { code, stdout, stderr } = await running.end('SIGTERM');
    assert.equal(code, 0);
    assert.equal(stdout.trimEnd().split('\n').length, 1);
    assert.equal(stderr, '');
  });

  it('is the same machine after a restart in the same directory', async () => {
    const read = () =>
      Promise.all(
        ['ca.pem', 'roots/ARK-Genoa.pem', 'manifest.json'].map((file) => readFile(join(dir, file))),
      );
    const first = await run('--dir', dir, '--quiet');
    const before = await read();
    await first.end('SIGINT');
    const second = await run('--dir', dir, '--quiet');
    assert.deepEqual(await read(), before);
    assert.equal(second.ready.manifestSha256, first.ready.manifestSha256);
    assert.equal((await second.end('SIGINT')).code, 0);
  });

  it('keeps nothing without --dir, and says on stderr how to use it and what was asked', async () => {
    const running = await run('--tee', 'tdx', '--api-key', 'k', '--fault', 'attest-status=418');
    const simulator = { port: running.ready.port, caPem: running.caPem };
    assert.equal((await post(simulator, '/privatemode/v1/attest', {}, 'k')).status, 418);
    const { code, stderr } = await running.end('SIGTERM');
    assert.equal(code, 0);
    assert.match(stderr, /:\n\nPOST \/privatemode\/v1\/attest 418\n$/);
    await assert.rejects(stat(running.ready.dir), { code: 'ENOENT' });
  });

  it('says how to start a proxy in front of it, which answers for models of these names only', async () => {
    const running = await run('--dir', dir, '--api-key', 'k');
    const said = await eventually(
      'the next steps',
      () => /^ {2}npm start -- (.+\n.+)$/m.exec(running.stderr())?.[1],
    );
    const flags = said.split(/[\s\\]+/);
    const env = [...running.stderr().matchAll(/^ {2}export (\w+)=(.+)$/gm)].map(([, name, value]) => [
      name,
      value,
    ]);
    const program = [process.execPath, join(ROOT, 'bin/privatemode-proxy.ts'), ...flags, '--port=0'];
    const proxy = await startProgram(program, { ...Object.fromEntries(env), TMPDIR: directory });
    try {
      assert.match(proxy.log(), /--unsafe-trust-roots/);
      const ask = async (model: string): Promise<[status: number, text: string]> => {
        const body = JSON.stringify({ model, messages: [{ role: 'user', content: 'hello' }] });
        const answer = await fetch(`${proxy.url}/v1/chat/completions`, { method: 'POST', body });
        return [answer.status, await answer.text()];
      };
      assert.equal((await ask('sim-echo'))[0], 200);
      const [status, text] = await ask('gpt-5');
      assert.equal(status, 404);
      assert.match(text, /The model `gpt-5` does not exist/);
    } finally {
      await proxy.stop();
      await running.end('SIGTERM');
    }
  });

  for (const [args, words] of [
    [['--no-such-option'], /no-such-option/],
    [['--port', '65536'], /--port/],
    [['--secret-lifetime', '1h'], /--secret-lifetime/],
    [['--tee', 'sgx'], /--tee/],
    [['--fault', 'no-such=1'], /no-such/],
    [['--host', '192.0.2.1', '--dir'], /dir/],
  ] as const) {
    it(`ends with 1 and says why: ${args.join(' ')}`, async () => {
      const { child, stdout, stderr } = launch(args);
      const [code] = await once(child, 'close');
      assert.equal(code, 1);
      assert.equal(stdout(), '');
      assert.match(stderr(), words);
      assert.equal(stderr().split('\n').length, 2);
    });
  }

  it('ends with 1 where its port is taken', async () => {
    const running = await run('--dir', dir, '--quiet');
    const { child, stderr } = launch(['--port', String(running.ready.port), '--dir', running.ready.dir]);
    const [code] = await once(child, 'close');
    assert.equal(code, 1);
    assert.match(stderr(), /EADDRINUSE/);
    await running.end('SIGTERM');
  });

  it('lists every option and fault in its help', async () => {
    const { child, stdout } = launch(['--help']);
    const [code] = await once(child, 'close');
    assert.equal(code, 0);
    for (const word of ['--dir', '--api-key', '--secret-lifetime', 'evidence-debug=flag']) {
      assert.ok(stdout().includes(word), word);
    }
  });
});
