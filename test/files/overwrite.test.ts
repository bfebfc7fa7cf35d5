/** How a file gets new content where it stands. */
import assert from 'node:assert/strict';
import { readdirSync, readFileSync, statSync, symlinkSync, writeFileSync } from 'node:fs';
import { open } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, it, type TestContext } from 'node:test';
import { overwrite } from '../../lib/files/overwrite.ts';
import { temporaryDirectory } from '../support/processes/temporary-directory.ts';

describe('overwrite', () => {
  const directory = temporaryDirectory('overwrite-');
  const NEW = Buffer.from('{"new":"text that is longer than the old one"}');
  const fileNamed = (name: string, content = '{"old":1}'): string => {
    const path = join(directory, name);
    writeFileSync(path, content, { mode: 0o640 });
    return path;
  };
  const left = (name: string): string[] => readdirSync(directory).filter((each) => each.startsWith(name));

  /** Has the handles of files fail or look at each write to them. */
  async function onWrite(t: TestContext, look: (written: number) => void): Promise<void> {
    const probe = await open(directory);
    const prototype = Object.getPrototypeOf(probe);
    await probe.close();
    const { write } = prototype;
    let written = 0;
    t.mock.method(prototype, 'write', function (this: unknown, ...args: unknown[]) {
      look(written++);
      return write.apply(this, args);
    });
  }

  it('keeps the inode and the mode of the file, cuts off the rest of a longer text, and leaves no copy', async () => {
    const path = fileNamed('kept', `{"old":"${'x'.repeat(1000)}"}`);
    const { ino } = statSync(path);
    await overwrite(path, NEW);
    const now = statSync(path);
    assert.deepEqual([now.ino, now.mode & 0o777, readFileSync(path).equals(NEW)], [ino, 0o640, true]);
    assert.deepEqual(left('kept'), ['kept']);
  });

  it('writes the whole text to a copy first, and keeps the file invalid as JSON while it writes the file', async (t) => {
    const path = fileNamed('watched');
    const seen: string[] = [];
    await onWrite(t, (written) => {
      assert.equal(readFileSync(`${path}.privatemode-proxy-new`, 'utf8'), NEW.toString());
      seen.push(written === 0 ? readFileSync(path, 'utf8') : readFileSync(path, 'utf8').slice(0, 1));
    });
    await overwrite(path, NEW);
    assert.deepEqual(seen, ['{"old":1}', '#', '#']);
  });

  it('leaves the whole text in the copy if a write fails, and succeeds the next time despite that copy', async (t) => {
    const path = fileNamed('cut');
    let broken = true;
    await onWrite(t, (written) => {
      if (broken && written === 2) throw Object.assign(new Error('EIO'), { code: 'EIO' });
    });
    await assert.rejects(overwrite(path, NEW), { code: 'EIO' });
    assert.match(readFileSync(path, 'utf8'), /^#/);
    assert.equal(readFileSync(`${path}.privatemode-proxy-new`, 'utf8'), NEW.toString());
    broken = false;
    await overwrite(path, NEW);
    assert.deepEqual([readFileSync(path).equals(NEW), left('cut')], [true, ['cut']]);
  });

  it('leaves nothing if the copy cannot be written, and a file of the operator with .new at its end', async (t) => {
    const path = fileNamed('full');
    fileNamed('full.new', 'an edit that is being prepared');
    const probe = await open(directory);
    t.mock.method(Object.getPrototypeOf(probe), 'sync', async () => {
      throw Object.assign(new Error('ENOSPC'), { code: 'ENOSPC' });
    });
    await probe.close();
    await assert.rejects(overwrite(path, NEW), { code: 'ENOSPC' });
    t.mock.restoreAll();
    assert.deepEqual(
      [readFileSync(path, 'utf8'), left('full').toSorted()],
      ['{"old":1}', ['full', 'full.new']],
    );
    await overwrite(path, NEW);
    assert.equal(readFileSync(`${path}.new`, 'utf8'), 'an edit that is being prepared');
  });

  it('follows no link in the place of the copy', async () => {
    const path = fileNamed('linked');
    const other = fileNamed('other');
    symlinkSync(other, `${path}.privatemode-proxy-new`);
    await overwrite(path, NEW);
    assert.equal(readFileSync(other, 'utf8'), '{"old":1}');
  });
});
