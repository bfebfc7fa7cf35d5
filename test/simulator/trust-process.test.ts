import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { Writable } from 'node:stream';
import { text } from 'node:stream/consumers';
import { before, describe, it } from 'node:test';
import { parseConfig } from '../../lib/config/config.ts';
import { startProxy } from '../../lib/proxy.ts';
import { runSimulator } from '../../simulator/cli.ts';
import { saveHardware } from '../../simulator/hardware.ts';
import { namesOf } from '../../simulator/inference/models/list.ts';
import { recordingLogger } from '../support/doors/logger.ts';
import { sharedHardware } from '../support/evidence/hardware.ts';
import { temporaryDirectory } from '../support/processes/temporary-directory.ts';
import { ROOT } from '../support/processes/tools.ts';
import { call, post } from '../support/remote/simulator.ts';

/** A stream that keeps what is written; `first` resolves with the first text. */
function sink() {
  const { promise: first, resolve } = Promise.withResolvers<string>();
  let written = '';
  const stream = new Writable({
    write(chunk, _, done) {
      written += chunk;
      resolve(written);
      done();
    },
  });
  return { stream, first, text: () => written };
}

type Ready = { readonly url: string; readonly port: number };

/** Runs it in this process until `use` is done with its first line: its exit code, and what it writes. */
async function run(argv: readonly string[], use?: (ready: Ready, steps: Promise<string>) => unknown) {
  const [stdout, stderr, stop] = [sink(), sink(), new AbortController()];
  const streams = { stdout: stdout.stream, stderr: stderr.stream };
  const ended = runSimulator(argv, { ...streams, ended: stop.signal, proxy: './privatemode-proxy' });
  await Promise.race([stdout.first, ended]);
  await use?.(JSON.parse(stdout.text()), stderr.first);
  stop.abort();
  return { code: await ended, line: stdout.text(), said: stderr.text() };
}

const directory = temporaryDirectory('simulator-test-');
/** A machine that has its keys already: making them takes 1.5 s of CPU. */
const dir = join(directory, 'kept');
const read = (...names: string[]): string => readFileSync(join(dir, ...names), 'utf8');

describe('the simulator', { timeout: 600_000 }, () => {
  before(async () => {
    mkdirSync(dir);
    await saveHardware(join(dir, 'hardware.json'), await sharedHardware());
  });

  it('prints one line, keeps its files true while it runs, and is the same service after a restart', async () => {
    let rotated = '';
    const { code, line, said } = await run(['--dir', dir, '--quiet'], async ({ port, url }) => {
      assert.equal(url, `https://localhost:${port}`);
      const simulator = { port, caPem: read('ca.pem') };
      const first = read('manifest.json');
      await call(simulator, 'POST', '/_simulator/rotate-manifest');
      rotated = read('manifest.json');
      assert.notEqual(rotated, first);
      assert.equal(String((await call(simulator, 'GET', '/privatemode/v2/manifest.json')).body), rotated);
    });
    const keys = Object.keys(JSON.parse(line));
    assert.deepEqual(keys, ['ready', 'port', 'url', 'dir', 'manifestSha256']);
    assert.deepEqual([code, said], [0, '']);
    const roots = ['ARK-Genoa.pem', 'Intel-SGX-Root-CA.pem', 'SEV-Genoa.pem'];
    assert.deepEqual(readdirSync(join(dir, 'roots')).sort(), roots);
    const anchors = () => [
      read('ca.pem'),
      ...roots.map((file) => read('roots', file)),
      read('manifest.json'),
    ];
    const kept = anchors();
    await run(['--dir', dir, '--quiet'], () => assert.deepEqual(anchors(), kept));
  });

  it('as a process leaves no file behind, ends with 0 on SIGTERM, and tells which requests failed and why', async (t) => {
    const faults = ['attest-status=418', 'inference=gzip', 'inference=informational:1'];
    const options = ['--tee', 'tdx', '--api-key', 'k', '--backend', 'http://127.0.0.1:2'];
    const args = [...options, ...faults.flatMap((fault) => ['--fault', fault])];
    const child = spawn(process.execPath, [join(ROOT, 'bin/privatemode-simulator.ts'), ...args]);
    t.after(() => child.kill('SIGKILL'));
    const [stderr, ended] = [text(child.stderr), once(child, 'close')];
    const ready = JSON.parse(String((await once(child.stdout, 'data'))[0]));
    const simulator = { port: ready.port, caPem: readFileSync(join(ready.dir, 'ca.pem'), 'utf8') };
    assert.equal((await post(simulator, '/privatemode/v1/attest', {}, 'k')).status, 418);
    const state = (await call(simulator, 'GET', '/_simulator/state')).json() as { faults: object };
    assert.deepEqual(state.faults, { 'attest-status': 418, inference: 'gzip+informational:1' });
    const headers = { authorization: 'Bearer k' };
    assert.equal((await call(simulator, 'GET', '/v1/models', { headers })).status, 502);
    assert.equal(statSync(join(ready.dir, 'hardware.json')).mode & 0o777, 0o600);
    child.kill('SIGTERM');
    assert.deepEqual(await ended, [0, null]);
    const lines = (await stderr).split(':\n\n').at(-1);
    const failed = 'GET /v1/models 502 (the backend cannot be reached: ECONNREFUSED)';
    assert.equal(lines, `POST /privatemode/v1/attest 418\n${failed}\n`);
    assert.equal(existsSync(ready.dir), false);
  });

  it('says how to start a proxy in front of it, also at an address that localhost does not reach', async (t) => {
    for (const host of ['127.0.0.1', '127.0.0.2']) {
      await run(['--dir', dir, '--api-key', 'k', '--host', host, '--tee', 'tdx'], async ({ url }, next) => {
        const steps = await next;
        assert.match(read('service.mjs'), new RegExp(`"apiEndpoint":"${url}"`));
        const flags = /^ {2}\.\/privatemode-proxy (.+?)\n\n/ms.exec(steps)?.[1]?.split(/[\s\\]+/) ?? [];
        assert.ok(flags.includes('--intel-pcs-url'), steps);
        const env = Object.fromEntries(
          [...steps.matchAll(/^ {2}export (\w+)=(.+)$/gm)].map(([, name, value]) => [name, value]),
        );
        const { config } = parseConfig([...flags, '--port=0', `--workspace=${directory}`], env);
        const proxy = await startProxy(config, { env, log: recordingLogger().log });
        t.after(() => proxy.close());
        assert.equal((await fetch(`${proxy.url}/v1/models`)).status, 200);
        await proxy.close();
      });
    }
  });

  it('is documented in docs/simulator.md, which names every option, every model of its list and every file', async () => {
    const { line: help } = await run(['--help']);
    const options = [...help.matchAll(/^ {2}(--[a-z-]+) /gm)].map(([, name]) => name as string);
    assert.ok(options.length > 10);
    const page = readFileSync(join(ROOT, 'docs/simulator.md'), 'utf8');
    const models = namesOf([]).filter((name) => name !== 'sim-200x0'); // as sim-20x50
    const files = readdirSync(dir).map((name) => (name === 'roots' ? 'roots/' : name));
    for (const name of [...options.filter((each) => each !== '--help'), ...models, ...files])
      assert.ok(page.includes(`\`${name}`), name);
  });
});

describe('a mistake on the command line of the simulator', { timeout: 600_000 }, () => {
  const taken = join(directory, 'taken.json');
  writeFileSync(taken, '{');
  const mistakes: [argv: string[], words: RegExp][] = [
    [['--prot', '1'], /unknown option --prot: write --port/],
    [['foo'], /Unexpected argument 'foo'/],
    [['--port'], /argument missing/],
    [['--port', '65536'], /--port must be a whole number up to 65535, not "65536"/],
    [['--tee', 'sgx'], /--tee must be snp or tdx, not sgx/],
    [['--secret-lifetime', '10m'], /--secret-lifetime must be a whole number of seconds up to/],
    [['--fault', 'nosuch'], /there is no fault named nosuch/],
    [['--fault', 'inference=gzip+bogus'], /there is no fault named bogus/],
    [['--fault', 'attest-status=500', '--fault', 'attest-status=503'], /attest-status is given twice/],
    [['--api-key', '@/x/key.txt'], /--api-key takes the key itself here/],
    [['--backend', 'http://127.0.0.1:1/v1'], /--backend must be the URL of a server without a path/],
    [['--dir', dir, '--transcripts', taken], /cannot read the transcripts in .*: it is no JSON/],
    [['--dir', taken], /taken\.json cannot be used: EEXIST/],
    [['--dir', dir, '--host', '192.0.2.1', '--port', '18'], /EADDRNOTAVAIL/],
  ];
  for (const [argv, words] of mistakes) {
    it(`ends it with code 1 and a line about the mistake: ${argv.join(' ').replaceAll(directory, 'DIR')}`, async () => {
      const { code, said } = await run(argv);
      assert.equal(code, 1);
      assert.match(said, /^privatemode-simulator: .+\n$/);
      assert.match(said, words);
    });
  }
});
