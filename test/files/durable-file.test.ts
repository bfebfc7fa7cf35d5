/** Files come into being whole or not at all, and no link is followed. */
import assert from 'node:assert/strict';
import { execFileSync, spawnSync } from 'node:child_process';
import * as fs from 'node:fs';
import { open } from 'node:fs/promises';
import { join } from 'node:path';
import { beforeEach, describe, it, type TestContext } from 'node:test';
import * as files from '../../lib/files/durable-file.ts';
import { reasonOf } from '../../lib/files/path-refusal.ts';
import { temporaryDirectory } from '../support/processes/temporary-directory.ts';

let directory = '';
const path = (name: string): string => join(directory, name);
const textOf = (name: string): string => fs.readFileSync(path(name), 'utf8');
beforeEach(() => {
  directory = temporaryDirectory('durable-file-');
});

/** Has a method of the handles of files fail, from the call with this number on (from 0). */
async function failing(t: TestContext, method: 'sync' | 'truncate' | 'writeFile', from = 0): Promise<void> {
  const probe = await open(directory);
  const prototype = Object.getPrototypeOf(probe);
  await probe.close();
  const original = prototype[method];
  let calls = 0;
  t.mock.method(prototype, method, function (this: unknown, ...args: unknown[]) {
    if (calls++ >= from) throw Object.assign(new Error('ENOSPC'), { code: 'ENOSPC' });
    return original.apply(this, args);
  });
}

describe('a file that is stored', () => {
  it('has its name once, even if two are published at once, and is readable as asked', async () => {
    const won = await Promise.all(
      ['first', 'second'].map((text) => files.publish(path('file'), text, 0o600)),
    );
    assert.deepEqual(won.toSorted(), [false, true]);
    assert.equal(textOf('file'), won[0] ? 'first' : 'second');
    assert.equal(fs.statSync(path('file')).mode & 0o777, 0o600);
    assert.deepEqual(fs.readdirSync(directory), ['file']);
  });

  it('replaces a link of its name, and leaves what that names', async () => {
    fs.writeFileSync(path('other'), 'as it was');
    fs.symlinkSync(path('other'), path('file'));
    await files.replace(path('file'), 'new', 0o600);
    assert.deepEqual([textOf('file'), textOf('other')], ['new', 'as it was']);
  });

  it('is not there, nor a part of it, if the disk does not take it', async (t) => {
    await failing(t, 'sync');
    await assert.rejects(files.publish(path('file'), 'text', 0o600), { code: 'ENOSPC' });
    await assert.rejects(files.replace(path('file'), 'text', 0o600), { code: 'ENOSPC' });
    assert.deepEqual(fs.readdirSync(directory), []);
  });
});

describe('making a directory', () => {
  for (const [name, make] of [
    ['makeDirectory', files.makeDirectory],
    ['makeDirectorySync', async (...args: [string, number?]) => files.makeDirectorySync(...args)],
  ] as const) {
    it(`makes the missing ones around it, with the mode, and gives the outermost (${name})`, async () => {
      assert.equal(await make(path('a/b/c'), 0o700), path('a'));
      assert.equal(await make(path('a/b/c'), 0o700), undefined);
      assert.deepEqual(
        ['a', 'a/b', 'a/b/c'].map((each) => fs.statSync(path(each)).mode & 0o777),
        [0o700, 0o700, 0o700],
      );
    });

    it(`returns if the working directory was deleted (${name})`, () => {
      const module = join(import.meta.dirname, '../../lib/files/durable-file.ts');
      const script = `
        const { rmdirSync } = await import('node:fs');
        const { ${name} } = await import(${JSON.stringify(module)});
        rmdirSync(process.cwd());
        try { await ${name}('./a/b'); } catch {}`;
      const child = spawnSync(process.execPath, ['--input-type=module', '-e', script], {
        ...{ cwd: directory, encoding: 'utf8', timeout: 30_000, killSignal: 'SIGKILL' },
      });
      assert.equal(child.status, 0, child.stderr);
    });
  }
});

describe('files of our own', () => {
  const modeOf = (name: string): number => fs.statSync(path(name)).mode & 0o777;
  beforeEach(() => fs.writeFileSync(path('other'), 'as it was'));

  it('are made for this user alone, with their directory', async () => {
    for (const text of ['text', 'more']) {
      await using file = await files.openOwnToAppend(path('a/b/file'));
      await file.write(text);
    }
    assert.deepEqual([modeOf('a'), modeOf('a/b'), modeOf('a/b/file')], [0o700, 0o700, 0o600]);
    assert.equal(textOf('a/b/file'), 'textmore');
  });

  it('are not written through a link, nor in a directory that a link has replaced; they wait for no FIFO', async () => {
    fs.symlinkSync(path('other'), path('link'));
    fs.symlinkSync(path('new'), path('dangling'));
    fs.mkdirSync(path('elsewhere'));
    fs.symlinkSync(path('elsewhere'), path('mine'));
    execFileSync('mkfifo', ['-m', '600', path('fifo')]);
    for (const [name, code] of [
      ['link', 'ELOOP'],
      ['dangling', 'ELOOP'],
      ['mine/file', 'ENOTDIR'],
      ['other/file', 'ENOTDIR'],
      ['fifo', 'ENXIO'],
    ] as const)
      await assert.rejects(files.openOwnToAppend(path(name)), { code });
    assert.equal(textOf('other'), 'as it was');
    for (const name of ['new', 'elsewhere/file']) assert.equal(fs.existsSync(path(name)), false);
  });
});

it('the lines of a file are read one by one with their numbers; a long one is empty, and a last one may not be whole', async () => {
  const long = 'x'.repeat(3 * 1024 * 1024);
  fs.writeFileSync(path('file'), `a\n\n${long}\nä\nrest`);
  const read: object[] = [];
  for await (const line of files.linesOf(path('file'))) read.push(line);
  const whole = ['a', '', '', 'ä'].map((text, i) => ({ number: i + 1, text, isWhole: true }));
  assert.deepEqual(read, [...whole, { number: 5, text: 'rest', isWhole: false }]);
  await assert.rejects(files.linesOf(directory).next(), { code: 'EISDIR' });
});

describe('the reason why the file system refuses something', () => {
  for (const [code, words] of [
    ['ENOENT', 'ENOENT: no such file or directory; check the path, and in a container what is mounted'],
    ['ENOSPC', 'ENOSPC: the disk is full'],
    ['ETIMEDOUT', 'ETIMEDOUT: the disk takes longer than 10 s'],
    ['constructor', 'its own message'],
    [undefined, 'its own message'],
  ] as const)
    it(`is, for ${code}, "${words}"`, () =>
      assert.equal(reasonOf(Object.assign(new Error('its own message'), { code })), words));
});
