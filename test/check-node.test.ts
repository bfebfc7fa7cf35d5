/** bin/check-node.js: what npm start says where the sources cannot run, in place of a stack trace. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { cpSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { cleanEnvironment } from './support/processes/program.ts';
import { temporaryDirectory } from './support/processes/temporary-directory.ts';

const ROOT = join(import.meta.dirname, '..');
const asNode = (version: string): string =>
  `data:text/javascript,Object.defineProperty(process,"versions",{value:{...process.versions,node:"${version}"}})`;

describe('bin/check-node.js', () => {
  /** A checkout of one line, started as npm scripts start the program. */
  function started({ packages, version }: { readonly packages: boolean; readonly version: string }) {
    const directory = join(temporaryDirectory('check-node-'), 'with a blank');
    cpSync(join(ROOT, 'bin/check-node.js'), join(directory, 'bin/check-node.js'), { recursive: true });
    writeFileSync(join(directory, 'package.json'), '{"type":"module"}');
    writeFileSync(join(directory, 'bin', 'main.ts'), 'const word: string = "ran"; console.log(word);');
    if (packages) {
      mkdirSync(join(directory, 'node_modules/mri'), { recursive: true });
      writeFileSync(join(directory, 'node_modules/mri/package.json'), '{}');
    }
    const argv = ['--import', asNode(version), '--import', './bin/check-node.js', join('bin', 'main.ts')];
    const { status, stdout, stderr } = spawnSync(process.execPath, argv, {
      cwd: directory,
      env: cleanEnvironment(),
      encoding: 'utf8',
    });
    return {
      status,
      stdout,
      stderr: stderr.replaceAll(directory, 'DIR').replaceAll(process.execPath, 'NODE'),
    };
  }

  it('lets Node 24.11 and newer run the sources', () => {
    for (const version of ['24.11.0', '26.10.0', '30.0.0'])
      assert.deepEqual(started({ packages: true, version }), { status: 0, stdout: 'ran\n', stderr: '' });
  });

  it('says to run npm ci if the packages are not installed, with any version of Node', () => {
    for (const version of ['20.20.2', '26.10.0']) {
      const { status, stderr } = started({ packages: false, version });
      assert.equal(status, 1);
      assert.equal(
        stderr,
        'Error: its packages are not installed. Run npm ci in DIR/ first, then this again.\n',
      );
    }
  });

  it('names the version of Node that is too old, and says to run npm ci for a newer one', () => {
    for (const version of ['18.19.0', '20.20.2', '24.10.0']) {
      const { status, stderr } = started({ packages: true, version });
      assert.equal(status, 1);
      assert.ok(
        stderr.startsWith(`Error: this needs Node 24.11 or newer, and got ${version} (NODE). `),
        stderr,
      );
      assert.ok(stderr.endsWith('Run npm ci in DIR/ first, then this again.\n'), stderr);
    }
  });

  it('runs before the program in the npm scripts start, simulator and demo', () => {
    const { scripts } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8'));
    for (const name of ['start', 'simulator', 'demo'])
      assert.match(scripts[name], /^node --import \.\/bin\/check-node\.js bin\/[a-z-]+\.ts$/, name);
  });
});
