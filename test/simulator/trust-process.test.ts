/** The simulator as the program that a person starts: what it prints, what it writes, and how it ends. */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { X509Certificate } from 'node:crypto';
import { once } from 'node:events';
import { existsSync, mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { Writable } from 'node:stream';
import { before, describe, it, type TestContext } from 'node:test';
import { parseConfig } from '../../lib/config/config.ts';
import { startProxy } from '../../lib/proxy.ts';
import { runSimulator } from '../../simulator/cli.ts';
import { saveHardware } from '../../simulator/hardware.ts';
import { namesOf } from '../../simulator/inference/models/list.ts';
import { recordingLogger } from '../support/doors/logger.ts';
import { sharedHardware } from '../support/evidence/hardware.ts';
import { eventually } from '../support/processes/eventually.ts';
import { temporaryDirectory } from '../support/processes/temporary-directory.ts';
import { ROOT } from '../support/processes/tools.ts';
import { call, post } from '../support/remote/simulator.ts';

interface Running {
  readonly ready: { readonly port: number; readonly url: string; readonly dir: string };
  readonly stdout: () => string;
  readonly stderr: () => string;
  /** Ends it, and gives its exit code once everything it wrote has been read. */
  readonly end: () => Promise<number>;
}

/** What it says once it listens, as text of stdout. */
const readyOf = (stdout: string): Running['ready'] => JSON.parse(stdout);

/** The program itself, which ends by SIGTERM. */
async function startProcess(t: TestContext, ...args: readonly string[]): Promise<Running> {
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
  await Promise.race([once(child.stdout, 'data'), ended]);
  assert.match(stdout, /\n$/, stderr);
  const end = (): Promise<number> => {
    child.kill('SIGTERM');
    return ended;
  };
  return { ready: readyOf(stdout), stdout: () => stdout, stderr: () => stderr, end };
}

/** Keeps what is written. */
function sink(): { readonly stream: Writable; readonly text: () => string } {
  const written: string[] = [];
  const stream = new Writable({
    write(chunk, _, done) {
      written.push(String(chunk));
      done();
    },
  });
  return { stream, text: () => written.join('') };
}

/** Its command line in this process; it ends with the test at the latest. */
async function run(t: TestContext, ...argv: readonly string[]): Promise<Running> {
  const [stdout, stderr, stop] = [sink(), sink(), new AbortController()];
  const ended = runSimulator(argv, {
    ...{ stdout: stdout.stream, stderr: stderr.stream, ended: stop.signal },
    proxy: './privatemode-proxy',
  });
  const end = (): Promise<number> => {
    stop.abort();
    return ended;
  };
  t.after(end);
  await Promise.race([eventually('its first line', () => stdout.text().endsWith('\n')), ended]);
  return { ready: readyOf(stdout.text()), stdout: stdout.text, stderr: stderr.text, end };
}

/** Runs it in this process: its exit code, and what is written. */
async function said(argv: readonly string[]): Promise<[number, string]> {
  const { stream, text } = sink();
  const ended = AbortSignal.abort();
  const code = await runSimulator(argv, {
    ...{ stdout: stream, stderr: stream, ended },
    proxy: './privatemode-proxy',
  });
  return [code, text()];
}

const directory = temporaryDirectory('simulator-test-');
/** A machine that has its keys already: making them takes 1.5 s of CPU. */
const dir = join(directory, 'kept');

describe('the simulator', { timeout: 600_000 }, () => {
  before(async () => {
    mkdirSync(dir);
    saveHardware(join(dir, 'hardware.json'), await sharedHardware());
  });
  const read = (...names: string[]): string => readFileSync(join(dir, ...names), 'utf8');

  it('prints one line, writes its files and publishes the manifest in them, until its end', async (t) => {
    const { ready, end, stdout, stderr } = await run(t, '--dir', dir, '--quiet');
    assert.deepEqual(Object.keys(ready), ['ready', 'port', 'url', 'dir', 'manifestSha256']);
    assert.deepEqual([ready.url, ready.dir], [`https://localhost:${ready.port}`, dir]);
    const roots = readdirSync(join(dir, 'roots')).sort();
    assert.deepEqual(roots, ['ARK-Genoa.pem', 'Intel-SGX-Root-CA.pem', 'SEV-Genoa.pem']);
    for (const file of roots) {
      const commonName = /CN=(.*)/.exec(new X509Certificate(read('roots', file)).subject)?.[1];
      assert.equal(`${commonName?.replaceAll(' ', '-')}.pem`, file);
    }

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

    assert.equal(await end(), 0);
    assert.deepEqual([stdout().trimEnd().split('\n').length, stderr()], [1, '']);
  });

  it('has the same hardware and manifest after a restart in the same directory, also after a rotation', async (t) => {
    const filesOf = () => ['ca.pem', 'roots/ARK-Genoa.pem', 'manifest.json'].map((file) => read(file));
    const first = await run(t, '--dir', dir, '--quiet');
    const original = read('manifest.json');
    const simulator = { port: first.ready.port, caPem: read('ca.pem') };
    await call(simulator, 'POST', '/_simulator/rotate-manifest');
    const before = filesOf();
    assert.notEqual(read('manifest.json'), original);
    assert.equal(await first.end(), 0);
    await run(t, '--dir', dir, '--quiet');
    assert.deepEqual(filesOf(), before);
  });

  it('as a process makes keys that only the owner can read, leaves no file behind without --dir, ends with 0 on SIGTERM, and says on stderr how to use it, which requests came, and why one failed', async (t) => {
    const { ready, end, stderr } = await startProcess(
      t,
      '--tee',
      'tdx',
      '--api-key',
      'k',
      '--fault',
      'attest-status=418',
      '--backend',
      'http://127.0.0.1:1',
      '--fault',
      'inference=gzip',
      '--fault',
      'inference=informational:1',
    );
    const simulator = { port: ready.port, caPem: readFileSync(join(ready.dir, 'ca.pem'), 'utf8') };
    assert.equal((await post(simulator, '/privatemode/v1/attest', {}, 'k')).status, 418);
    const state = (await call(simulator, 'GET', '/_simulator/state')).json() as { faults: object };
    assert.deepEqual(state.faults, { 'attest-status': 418, inference: 'gzip+informational:1' });
    const headers = { authorization: 'Bearer k' };
    assert.equal((await call(simulator, 'GET', '/v1/models', { headers })).status, 502);
    assert.equal(statSync(join(ready.dir, 'hardware.json')).mode & 0o777, 0o600);
    assert.equal(await end(), 0);
    const [, lines] = stderr().split(':\n\nPOST ');
    assert.equal(
      lines,
      '/privatemode/v1/attest 418\nGET /v1/models 502 (the backend cannot be reached: ECONNREFUSED)\n',
    );
    assert.equal(existsSync(ready.dir), false);
  });

  it('says how to start a proxy that asks the simulator, and not Intel, for the collateral of TDX', async (t) => {
    const { ready, stderr } = await run(t, '--dir', dir, '--tee', 'tdx');
    const said = await eventually(
      'the next steps',
      () => / --unsafe-trust-roots .+?\n\n/s.exec(stderr())?.[0],
    );
    assert.match(said, new RegExp(`^ {4}--intel-pcs-url https://localhost:${ready.port} `, 'm'));
  });

  /** Follows the instructions of a simulator, and returns the proxy. */
  async function proxyInFront(t: TestContext, { stderr }: Running) {
    const said = await eventually(
      'the next steps',
      () => /^ {2}\.\/privatemode-proxy (.+\n.+)$/m.exec(stderr())?.[1],
    );
    const flags = said.split(/[\s\\]+/);
    const env = [...stderr().matchAll(/^ {2}export (\w+)=(.+)$/gm)].map(([, name, value]) => [name, value]);
    const { config } = parseConfig([...flags, '--port=0', `--workspace=${directory}`], {
      ...Object.fromEntries(env),
    });
    const proxy = await startProxy(config, { env: Object.fromEntries(env), log: recordingLogger().log });
    t.after(() => proxy.close());
    return proxy;
  }

  it('says how to start a proxy in front of it, and refuses other models than its own with status 404', async (t) => {
    const proxy = await proxyInFront(t, await run(t, '--dir', dir, '--api-key', 'k'));
    const asked = { messages: [{ role: 'user', content: 'hello' }] };
    for (const [model, status, words, request = asked] of [
      ['sim-echo', 200, /hello/],
      ['gpt-5', 404, /The model `gpt-5` does not exist/],
      ['sim-echo', 400, /messages: Field required/, { prompt: 'hello' }],
      ['sim-echo', 400, /messages: Input should be a valid list/, { messages: 'hello' }],
    ] as const) {
      const body = JSON.stringify({ model, ...request });
      const answer = await fetch(`${proxy.url}/v1/chat/completions`, { method: 'POST', body });
      assert.equal(answer.status, status);
      assert.match(await answer.text(), words);
    }
  });

  it('says how to start a proxy in front of it where --host is an address that localhost does not reach', async (t) => {
    const running = await run(t, '--dir', dir, '--host', '127.0.0.2');
    const { url, port } = running.ready;
    assert.equal(url, `https://127.0.0.2:${port}`);
    assert.match(read('service.mjs'), new RegExp(`"apiEndpoint":"${url}"`));
    const proxy = await proxyInFront(t, running);
    assert.equal((await fetch(`${proxy.url}/v1/models`)).status, 200);
  });

  it('is documented in docs/simulator.md, which names every option, every model of its list and every file that it writes', async () => {
    const [, help] = await said(['--help']);
    const page = readFileSync(join(ROOT, 'docs/simulator.md'), 'utf8');
    const options = [...help.matchAll(/^ {2}(--[a-z-]+) /gm)].map(([, name]) => name as string);
    assert.ok(options.length > 10);
    const models = namesOf([]).filter((name) => name !== 'sim-200x0'); // as sim-20x50
    const files = readdirSync(dir).map((name) => (name === 'roots' ? 'roots/' : name));
    assert.ok(files.includes('service.mjs'));
    for (const name of [...options, ...models, ...files].filter((each) => each !== '--help'))
      assert.ok(page.includes(`\`${name}`), name);
  });
});

describe('a mistake on the command line of the simulator', { timeout: 600_000 }, () => {
  const taken = join(directory, 'taken.json');
  writeFileSync(taken, '{');
  const spoilt = join(directory, 'spoilt');
  mkdirSync(spoilt);
  writeFileSync(join(spoilt, 'revision'), 'x');
  before(async () => saveHardware(join(spoilt, 'hardware.json'), await sharedHardware()));
  const mistakes: [argv: string[], words: string][] = [
    [['--prot', '1'], 'unknown option --prot: write --port; --help lists all options'],
    [['--nonsense=1'], 'unknown option --nonsense; --help lists all options'],
    [
      ['foo'],
      'unexpected argument "foo": every option begins with two hyphens, as --port 8443; --help lists all options',
    ],
    [['--port'], "Option '--port <value>' argument missing; --help lists all options"],
    [['--port', '65536'], '--port must be a whole number up to 65535, not "65536"'],
    [['--tee', 'sgx'], '--tee must be snp or tdx, not sgx'],
    [['--dir', spoilt], `${join(spoilt, 'revision')} does not hold the number of a manifest; remove it`],
    [
      ['--secret-lifetime', '10m'],
      '--secret-lifetime must be a whole number of seconds, without a unit, up to 1000000000, not "10m"',
    ],
    [['--fault', 'nosuch'], 'there is no fault named nosuch; --help lists them'],
    [['--fault', 'minimum-version=1.99.0'], 'fault minimum-version takes a version as v1.46.0, not "1.99.0"'],
    [
      ['--fault', 'attest-status=500', '--fault', 'attest-status=503'],
      '--fault attest-status is given twice: leave one out',
    ],
    [
      ['--api-key', '@/x/key.txt'],
      '--api-key takes the key itself here, not @FILE; leave it out to accept any key',
    ],
    [
      ['--backend', 'http://127.0.0.1:1/v1'],
      '--backend must be the URL of a server without a path, such as http://127.0.0.1:8000, not "http://127.0.0.1:1/v1"',
    ],
    [['--dir', dir, '--transcripts', taken], `cannot read the transcripts in ${taken}: it is no JSON`],
    [
      ['--dir', taken],
      `${taken} cannot be used: EEXIST: a file stands where a directory is needed; name a directory`,
    ],
    [
      ['--dir', dir, '--host', '192.0.2.1', '--port', '18'],
      'listening on 192.0.2.1 port 18: listen EADDRNOTAVAIL: address not available 192.0.2.1:18 (--host, --port)',
    ],
  ];
  for (const [argv, words] of mistakes) {
    it(`ends the simulator with code 1 and a line that explains the mistake: ${argv.join(' ').replaceAll(directory, 'DIR')}`, async () => {
      assert.deepEqual(await said(argv), [1, `privatemode-simulator: ${words}\n`]);
    });
  }
});
