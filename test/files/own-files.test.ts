/** Files of this user: who may read them, and that nothing is read or written through a link. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import {
  chmodSync,
  existsSync,
  mkdirSync,
  readFileSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { beforeEach, describe, it } from 'node:test';
import { openOwnToAppend, readOwnKey, requireOwnDirectory } from '../../lib/files/own-files.ts';
import { temporaryDirectory } from '../support/processes/temporary-directory.ts';

describe('files of our own', () => {
  let directory = '';
  const path = (name: string): string => join(directory, name);
  const modeOf = (name: string): number => statSync(path(name)).mode & 0o777;
  beforeEach(() => {
    directory = temporaryDirectory('own-files-');
    chmodSync(directory, 0o700);
    writeFileSync(path('other'), 'as it was');
  });

  it('are made for this user alone, with their directory', async () => {
    const file = await openOwnToAppend(path('a/b/file'));
    await file.write('text');
    await file.close();
    assert.deepEqual([modeOf('a'), modeOf('a/b'), modeOf('a/b/file')], [0o700, 0o700, 0o600]);
    const again = await openOwnToAppend(path('a/b/file'));
    await again.write('more');
    await again.close();
    assert.equal(readFileSync(path('a/b/file'), 'utf8'), 'textmore');
  });

  it('are neither written nor read through a link', async () => {
    symlinkSync(path('other'), path('link'));
    symlinkSync(path('new'), path('dangling'));
    for (const name of ['link', 'dangling'])
      await assert.rejects(openOwnToAppend(path(name)), { code: 'ELOOP' });
    await assert.rejects(readOwnKey(path('link')), { code: 'ELOOP' });
    assert.deepEqual([readFileSync(path('other'), 'utf8'), existsSync(path('new'))], ['as it was', false]);
  });

  it('are not written in a directory that a link has replaced', async () => {
    mkdirSync(path('elsewhere'));
    symlinkSync(path('elsewhere'), path('mine'));
    await assert.rejects(openOwnToAppend(path('mine/file')), { code: 'ENOTDIR' });
    await assert.rejects(requireOwnDirectory(path('other')), { code: 'ENOTDIR' });
    assert.equal(existsSync(path('elsewhere/file')), false);
  });

  it('wait for no FIFO', async () => {
    execFileSync('mkfifo', ['-m', '600', path('fifo')]);
    await assert.rejects(openOwnToAppend(path('fifo')), { code: 'ENXIO' });
    await assert.rejects(readOwnKey(path('fifo')), { code: 'EFBIG' });
  });

  it('are not read if they are too long', async () => {
    writeFileSync(path('long'), Buffer.alloc(64 * 1024 + 1), { mode: 0o600 });
    await assert.rejects(readOwnKey(path('long')), { code: 'EFBIG' });
  });

  for (const [directoryMode, keyMode, isRead] of [
    [0o700, 0o600, true],
    [0o700, 0o400, true],
    [0o700, 0o640, false],
    [0o700, 0o604, false],
    [0o700, 0o602, false],
    [0o770, 0o660, false],
    [0o2775, 0o660, true], // as the fsGroup of a pod leaves them
    [0o2775, 0o664, false],
  ] as const) {
    const [inside, mode] = [directoryMode, keyMode].map((each) => each.toString(8));
    it(`a key of mode ${mode} in a directory of mode ${inside} is ${isRead ? 'read' : 'refused'}`, async () => {
      chmodSync(directory, directoryMode);
      chmodSync(path('other'), keyMode);
      const message = new RegExp(`^${path('other')} can be read or written to by others \\(mode ${mode}\\)$`);
      const key = readOwnKey(path('other'));
      if (isRead) assert.equal((await key).toString(), 'as it was');
      else
        await assert.rejects(key, { code: 'receipts_unavailable', message, remedy: /^Run chmod 600 on it/ });
    });
  }
});
