/** Lines and batches for a disk that fails or hangs. */
import assert from 'node:assert/strict';
import { existsSync, linkSync, readFileSync, renameSync, rmSync } from 'node:fs';
import { open } from 'node:fs/promises';
import { join } from 'node:path';
import { beforeEach, describe, it } from 'node:test';
import { createLineWriter, writeInBatches } from '../../lib/files/line-files.ts';
import { TIMES } from '../../lib/times.ts';
import { errno } from '../support/processes/broken-file-system.ts';
import { temporaryDirectory } from '../support/processes/temporary-directory.ts';
import { createFakeClock } from '../support/remote/fake-clock.ts';

/** Batches of which each write takes until the test ends it. */
function scene() {
  const clock = createFakeClock();
  const writes: PromiseWithResolvers<number | undefined>[] = [];
  const told: string[] = [];
  const batches = writeInBatches({
    clock,
    write() {
      const write = Promise.withResolvers<number | undefined>();
      writes.push(write);
      return write.promise;
    },
    onFailure(reason) {
      told.push(String((reason as NodeJS.ErrnoException).code));
    },
    onRecovery: (lost) => told.push(`recovered, ${lost} lost`),
  });
  return { clock, batches, writes, told };
}

describe('the writer of lines in batches', { timeout: 600_000 }, () => {
  it('reports a batch that is not written in time, and reports the recovery once it is written', async () => {
    const { clock, batches, writes, told } = scene();
    const flushed = batches.flush();
    await clock.advance(TIMES.diskPatience);
    assert.deepEqual(told, ['ETIMEDOUT']);
    writes[0]?.resolve(2);
    await flushed;
    assert.deepEqual(told, ['ETIMEDOUT', 'recovered, 2 lost']);
  });

  it('reports one failure for a batch whose write takes too long and then fails', async () => {
    const { clock, batches, writes, told } = scene();
    const flushed = batches.flush();
    await clock.advance(TIMES.diskPatience);
    writes[0]?.reject(Object.assign(new Error('full'), { code: 'ENOSPC' }));
    await flushed;
    batches.stop();
    assert.deepEqual(told, ['ETIMEDOUT']);
  });

  it('reports a failure again when its reason changes, and no more often', async () => {
    const { batches, writes, told } = scene();
    for (const code of ['ENOSPC', 'ENOSPC', 'EROFS', 'EROFS']) {
      const flushed = batches.flush();
      await Promise.resolve();
      writes.at(-1)?.reject(errno(code));
      await flushed;
    }
    batches.stop();
    assert.deepEqual(told, ['ENOSPC', 'EROFS']);
  });

  it('reports a recovery only after a batch that was written, and none after a batch without records', async () => {
    const { batches, writes, told } = scene();
    for (const end of ['fail', undefined, undefined, 0] as const) {
      const flushed = batches.flush();
      await Promise.resolve();
      if (end === 'fail') writes.at(-1)?.reject(errno('ENOSPC'));
      else writes.at(-1)?.resolve(end);
      await flushed;
      assert.deepEqual(told, end === 0 ? ['ENOSPC', 'recovered, 0 lost'] : ['ENOSPC']);
    }
  });
});

describe('the writer of lines', () => {
  let first: string;
  let second: string;
  beforeEach(() => {
    const directory = temporaryDirectory('lines-');
    [first, second] = [join(directory, 'first'), join(directory, 'second')];
  });
  const textOf = (path: string): string => readFileSync(path, 'utf8');

  /** A writer on a disk that takes so many bytes of each write, and says whether it cuts files off. */
  function onDisk() {
    const disk = { takes: Number.POSITIVE_INFINITY, cutsOff: true };
    const writer = createLineWriter(async (path) => {
      const handle = await open(path, 'a');
      const write = handle.write.bind(handle) as (bytes: Buffer) => ReturnType<typeof handle.write<Buffer>>;
      const truncate = handle.truncate.bind(handle);
      handle.write = ((bytes: Buffer) => write(bytes.subarray(0, disk.takes))) as typeof handle.write;
      handle.truncate = async (length) => {
        if (!disk.cutsOff) throw errno('EIO');
        await truncate(length);
      };
      return handle;
    });
    return { disk, writer };
  }

  it('leaves nothing of a failed write in a file when it goes on in another one', async () => {
    const { disk, writer } = onDisk();
    await writer.append(first, 'a\n');
    disk.takes = 5; // a whole line, and a torn one
    await assert.rejects(writer.append(first, 'bbb\nccc\n'), { code: 'ENOSPC' });
    assert.equal(textOf(first), 'a\nbbb\nc');
    disk.takes = Number.POSITIVE_INFINITY;
    await writer.append(second, 'bbb\nccc\n');
    await writer.close();
    assert.deepEqual([textOf(first), textOf(second)], ['a\n', 'bbb\nccc\n']);
  });

  it('begins no other file as long as it cannot cut off what a failed write left', async () => {
    const { disk, writer } = onDisk();
    await writer.append(first, 'a\n');
    Object.assign(disk, { takes: 5, cutsOff: false });
    await assert.rejects(writer.append(first, 'bbb\nccc\n'), { code: 'ENOSPC' });
    disk.takes = Number.POSITIVE_INFINITY;
    for (let attempt = 0; attempt < 2; attempt++)
      await assert.rejects(writer.append(second, 'bbb\nccc\n'), { code: 'EIO' });
    assert.equal(existsSync(second), false);
    disk.cutsOff = true;
    await writer.append(second, 'bbb\nccc\n');
    await writer.close();
    assert.deepEqual([textOf(first), textOf(second)], ['a\n', 'bbb\nccc\n']);
  });

  for (const [what, take] of [
    ['was deleted', (path: string) => rmSync(path)],
    ['was moved away', (path: string) => renameSync(path, `${path}.old`)],
    [
      'was deleted and a backup has a hard link to it',
      (path: string) => {
        linkSync(path, `${path}.backup`);
        rmSync(path);
      },
    ],
  ] as const) {
    it(`creates the file again if it ${what}`, async () => {
      const { writer } = onDisk();
      await writer.append(first, 'a\n');
      take(first);
      await writer.append(first, 'b\n');
      await writer.close();
      assert.equal(textOf(first), 'b\n');
    });

    it(`goes on if the file with the rest of a failed write ${what}, whatever became of that rest`, async () => {
      const { disk, writer } = onDisk();
      Object.assign(disk, { takes: 1, cutsOff: false });
      await assert.rejects(writer.append(first, 'a\n'), { code: 'ENOSPC' });
      take(first);
      disk.takes = Number.POSITIVE_INFINITY;
      await writer.append(first, 'a\n');
      await writer.close();
      assert.equal(textOf(first), 'a\n');
    });
  }

  it('leaves nothing of a failed write when it is closed, and closes although that fails', async () => {
    for (const [cutsOff, left] of [
      [true, ''],
      [false, 'a\nb'],
    ] as const) {
      const { disk, writer } = onDisk();
      Object.assign(disk, { takes: 3, cutsOff });
      await assert.rejects(writer.append(first, 'a\nbb\n'), { code: 'ENOSPC' });
      await writer.close();
      assert.equal(textOf(first), left);
    }
  });
});
