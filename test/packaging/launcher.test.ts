import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdirSync, readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { before, describe, it } from 'node:test';
import { launcher } from '../../scripts/launcher.ts';
import { temporaryDirectory } from '../support/processes/temporary-directory.ts';

describe('the first module of the npm package', () => {
  let directory: string;
  before(() => {
    directory = temporaryDirectory('privatemode-launcher-');
    writeFileSync(join(directory, 'start.mjs'), launcher('privatemode-proxy', '>=24.11', './program.mjs'));
    // As a program of names that an older Node does not have.
    writeFileSync(
      join(directory, 'program.mjs'),
      'console.log("ran", process.argv[2]); process.exitCode = 7;',
    );
  });

  /** With this as the version of Node. */
  function start(version: string): { status: number | null; stdout: string; stderr: string } {
    const versions = `{ ...process.versions, node: ${JSON.stringify(version)} }`;
    const disguise = `Object.defineProperty(process, 'versions', { value: ${versions} })`;
    const args = ['--import', `data:text/javascript,${encodeURIComponent(disguise)}`];
    const start = [...args, join(directory, 'start.mjs'), '--version'];
    const { status, stdout, stderr } = spawnSync(process.execPath, start, {
      encoding: 'utf8',
      timeout: 30_000,
    });
    return { status, stdout, stderr };
  }

  for (const version of ['18.20.8', '20.20.2', '24.10.9', '22.22.0', '9.99.0']) {
    it(`says in one line that Node ${version} is too old, and does not load the program`, () => {
      const stderr = `Error: privatemode-proxy needs Node 24.11 or newer, and this is Node ${version}\n`;
      assert.deepEqual(start(version), { status: 1, stdout: '', stderr });
    });
  }
  for (const version of ['24.11.0', '24.100.0', '25.0.0', '26.10.0', '100.0.0']) {
    it(`runs the program on Node ${version}`, () => {
      assert.deepEqual(start(version), { status: 7, stdout: 'ran --version\n', stderr: '' });
    });
  }

  it('writes no file into the workspace', () => {
    const workspace = join(directory, 'workspace');
    mkdirSync(workspace, { mode: 0o700 });
    const { status } = spawnSync(process.execPath, [join(directory, 'start.mjs'), '--workspace', workspace], {
      env: { PATH: process.env['PATH'], PRIVATEMODE_PROXY_WORKSPACE: workspace },
      timeout: 30_000,
    });
    assert.deepEqual([status, readdirSync(workspace)], [7, []]);
  });

  it('cannot be made for a range of engines that is not of the form ">=24.11"', () => {
    for (const engines of ['^24.11', '>=24', '>=24.11.0', '24.11'])
      assert.throws(() => launcher('x', engines, './x'), /engines\.node/);
  });
});
