import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { before, describe, it } from 'node:test';
import { launcher } from '../../scripts/launcher.ts';
import { temporaryDirectory } from '../support/processes/temporary-directory.ts';

describe('the first module of the npm package', () => {
  let directory: string;
  before(() => {
    directory = temporaryDirectory('privatemode-launcher-');
    writeFileSync(join(directory, 'start.mjs'), launcher('>=24.11', './program.mjs'));
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
    it(`says in one line on Node ${version} what it needs, and loads nothing`, () => {
      const stderr = `Error: privatemode-proxy needs Node 24.11 or newer, and this is Node ${version}\n`;
      assert.deepEqual(start(version), { status: 1, stdout: '', stderr });
    });
  }
  for (const version of ['24.11.0', '24.100.0', '25.0.0', '26.10.0', '100.0.0']) {
    it(`runs the program on Node ${version}`, () => {
      assert.deepEqual(start(version), { status: 7, stdout: 'ran --version\n', stderr: '' });
    });
  }

  describe('the compiled code of the npm package', () => {
    const PLACES: Readonly<
      Record<string, (workspace: string) => [flags: string[], env?: Record<string, string>]>
    > = {
      'a workspace that is named': (workspace) => [['--workspace', workspace]],
      'a workspace that is named with =': (workspace) => [[`--workspace=${workspace}`]],
      'a workspace that the environment names': (workspace) => [
        [],
        { PRIVATEMODE_PROXY_WORKSPACE: workspace },
      ],
    };
    /** What lies in the workspace after a start there. */
    function leftBy(
      prepare: (workspace: string) => void,
      [flags, env]: readonly [string[], Record<string, string>?],
      cwd = directory,
    ): string[] {
      const workspace = join(directory, 'workspace');
      rmSync(workspace, { recursive: true, force: true });
      mkdirSync(workspace, { mode: 0o755 });
      prepare(workspace);
      const { status } = spawnSync(process.execPath, [join(directory, 'start.mjs'), ...flags], {
        cwd,
        env: { PATH: process.env['PATH'], ...env },
        timeout: 30_000,
      });
      assert.equal(status, 7);
      const compiled = join(workspace, 'compiled');
      return existsSync(compiled) ? readdirSync(compiled) : ['none'];
    }
    const workspaceIn = (): string => join(directory, 'workspace');
    const nothing = (): void => {};

    for (const [place, named] of Object.entries(PLACES)) {
      it(`is kept in ${place}, for its owner alone`, () => {
        assert.notDeepEqual(leftBy(nothing, named(workspaceIn())), ['none']);
        assert.notDeepEqual(leftBy(nothing, named(workspaceIn())), []);
        assert.equal(statSync(join(workspaceIn(), 'compiled')).mode & 0o777, 0o700);
      });
    }
    it('is kept nowhere where no workspace is named', () => {
      assert.deepEqual(leftBy(nothing, [[]], workspaceIn()), ['none']);
    });
    it('is not kept in a workspace that others can write', () => {
      const open = (workspace: string): void => chmodSync(workspace, 0o775);
      assert.deepEqual(leftBy(open, [['--workspace', workspaceIn()]]), ['none']);
    });
    it('is not kept in a directory of the workspace that others can read or write, or that lies elsewhere', () => {
      const flags = ['--workspace', workspaceIn()];
      const given = (workspace: string): void => mkdirSync(join(workspace, 'compiled'), { mode: 0o755 });
      assert.deepEqual(leftBy(given, [flags]), []);
      const elsewhere = mkdtempSync(join(directory, 'elsewhere-')); // 0700
      const linked = (workspace: string): void => symlinkSync(elsewhere, join(workspace, 'compiled'));
      assert.deepEqual(leftBy(linked, [flags]), []);
    });
  });

  it('cannot be made for a range of engines that it does not read', () => {
    for (const engines of ['^24.11', '>=24', '>=24.11.0', '24.11'])
      assert.throws(() => launcher(engines, './x'), /engines\.node/);
  });
});
