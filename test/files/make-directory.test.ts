/** Making directories: what it makes, and that it always returns. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdirSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { makeDirectory, makeDirectorySync } from '../../lib/files/make-directory.ts';
import { temporaryDirectory } from '../support/processes/temporary-directory.ts';

const MODULE = join(import.meta.dirname, '../../lib/files/make-directory.ts');

describe('making a directory', { timeout: 600_000 }, () => {
  const variants: [name: string, make: (path: string, mode?: number) => Promise<unknown>][] = [
    ['makeDirectory', makeDirectory],
    ['makeDirectorySync', async (path, mode) => makeDirectorySync(path, mode)],
  ];
  for (const [name, make] of variants) {
    it(`fails with ENOENT, and returns, if the working directory was deleted (${name})`, () => {
      const directory = temporaryDirectory('make-directory-');
      const script = `
        const { rmdirSync } = await import('node:fs');
        const { ${name} } = await import(${JSON.stringify(MODULE)});
        rmdirSync(process.cwd());
        try { await ${name}('./a/b'); } catch ({ code }) { console.log(code); }`;
      const child = spawnSync(process.execPath, ['--input-type=module', '-e', script], {
        ...{ cwd: directory, encoding: 'utf8', timeout: 30_000, killSignal: 'SIGKILL' },
      });
      assert.equal(child.stdout, 'ENOENT\n', child.stderr);
    });

    it(`makes the missing ones around it too, all with the mode, and leaves existing ones as they are (${name})`, async () => {
      const directory = temporaryDirectory('make-directory-');
      const modeOf = (path: string): number => statSync(join(directory, path)).mode & 0o777;
      mkdirSync(join(directory, 'a'), { mode: 0o755 });
      for (const path of ['a/b/c', 'a', 'a/b/c']) await make(join(directory, path), 0o700);
      assert.deepEqual(['a', 'a/b', 'a/b/c'].map(modeOf), [0o755, 0o700, 0o700]);
    });

    it(`fails with EEXIST if a file has the name, with ENOTDIR below a file (${name})`, async () => {
      const file = join(temporaryDirectory('make-directory-'), 'file');
      writeFileSync(file, '');
      await assert.rejects(make(file), { code: 'EEXIST' });
      await assert.rejects(make(join(file, 'a')), { code: 'ENOTDIR' });
    });
  }

  it('resolves with the outermost directory that was missing, so that it can be synced to disk', async () => {
    const directory = temporaryDirectory('make-directory-');
    assert.equal(await makeDirectory(join(directory, 'a/b/c')), join(directory, 'a'));
    assert.equal(await makeDirectory(join(directory, 'a/b/d')), join(directory, 'a/b/d'));
    assert.equal(await makeDirectory(join(directory, 'a/b/d')), undefined);
  });

  it('succeeds for each of two callers that make the same directory at once', async () => {
    const path = join(temporaryDirectory('make-directory-'), 'a/b/c');
    await Promise.all([makeDirectory(path), makeDirectory(path)]);
    assert.ok(statSync(path).isDirectory());
  });
});
