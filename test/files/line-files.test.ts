/** Lines and batches for a disk that fails or hangs. */
import assert from 'node:assert/strict';
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeEach, describe, it, type TestContext } from 'node:test';
import { lineLog, linesOf } from '../../lib/files/line-files.ts';
import { TIMES } from '../../lib/times.ts';
import { breakFiles, errno } from '../support/processes/broken-file-system.ts';
import { temporaryDirectory } from '../support/processes/temporary-directory.ts';
import { createFakeClock, settle } from '../support/remote/fake-clock.ts';

/** A log of which each write takes until the test ends it. */
function scene() {
  const clock = createFakeClock();
  const writes: PromiseWithResolvers<void>[] = [];
  const told: string[] = [];
  const log = lineLog({
    clock,
    write() {
      const write = Promise.withResolvers<void>();
      writes.push(write);
      return write.promise;
    },
    onFailure: (reason) => told.push(String((reason as NodeJS.ErrnoException).code)),
    onRecovery: () => told.push('recovered'),
  });
  return { clock, log, writes, told };
}

describe('the batches of a log of lines', () => {
  it('are written after a pause, one at a time, and again after a failure', async () => {
    const { clock, log, writes } = scene();
    log.later();
    log.later();
    await clock.advance(TIMES.batchPause - 1);
    assert.equal(writes.length, 0);
    await clock.advance(1);
    assert.equal(writes.length, 1);
    log.later();
    await clock.advance(TIMES.batchPause);
    assert.equal(writes.length, 1, 'the first is not written yet');
    for (const tries of [2, 3]) {
      writes.at(-1)?.reject(errno('EIO'));
      await clock.advance(TIMES.batchPause);
      assert.equal(writes.length, tries);
    }
  });

  it('are told of once for a reason: if they fail, and if they take longer than 10 s, whatever follows', async () => {
    const { clock, log, writes, told } = scene();
    for (const code of ['ENOSPC', 'ENOSPC', 'EROFS', 'EROFS']) {
      log.later();
      await clock.advance(TIMES.batchPause);
      writes.at(-1)?.reject(errno(code));
      await settle();
    }
    assert.deepEqual(told, ['ENOSPC', 'EROFS']);
    await clock.advance(TIMES.batchPause + TIMES.diskPatience);
    writes.at(-1)?.reject(errno('EIO'));
    await clock.advance(TIMES.batchPause + TIMES.diskPatience);
    assert.deepEqual(told, ['ENOSPC', 'EROFS', 'ETIMEDOUT'], 'a dying disk has one reason');
  });
});

describe('the lines of a log', () => {
  let first: string;
  let second: string;
  beforeEach(() => {
    const directory = temporaryDirectory('lines-');
    [first, second] = [join(directory, 'first'), join(directory, 'second')];
  });
  const textOf = (path: string): string => readFileSync(path, 'utf8');

  /** A log on a disk that takes so many bytes of each write, and says whether it cuts files off. */
  function onDisk(t: TestContext) {
    const disk = { takes: Number.POSITIVE_INFINITY, cutsOff: true };
    breakFiles(t, /./, {
      write: (real, bytes: Buffer) => real(bytes.subarray(0, disk.takes)),
      async truncate(real, size: number) {
        if (!disk.cutsOff) throw errno('EIO');
        return real(size);
      },
    });
    const log = lineLog({
      clock: createFakeClock(),
      write: async () => {},
      onFailure: (reason) => assert.fail(reason),
      onRecovery: () => assert.fail('nothing failed'),
    });
    return { disk, log };
  }

  it('are written again after a torn write, of which nothing is left, in this file or another one', async (t) => {
    const { disk, log } = onDisk(t);
    await log.append(first, 'a\n');
    disk.takes = 5; // a whole line, and a torn one
    await assert.rejects(log.append(first, 'bbb\nccc\n'), { code: 'ENOSPC' });
    assert.equal(textOf(first), 'a\nbbb\nc');
    disk.takes = Number.POSITIVE_INFINITY;
    await log.append(first, 'bbb\nccc\n');
    assert.equal(textOf(first), 'a\nbbb\nccc\n');
    disk.takes = 1;
    await assert.rejects(log.append(first, 'dd\n'), { code: 'ENOSPC' });
    disk.takes = Number.POSITIVE_INFINITY;
    await log.append(second, 'dd\n');
    assert.deepEqual([textOf(first), textOf(second)], ['a\nbbb\nccc\n', 'dd\n']);
    disk.takes = 1;
    await assert.rejects(log.append(second, 'ee\n'), { code: 'ENOSPC' });
    await log.close();
    assert.equal(textOf(second), 'dd\n', 'nor is anything left at the end');
  });

  it('go to no other file as long as what a failed write left cannot be cut off', async (t) => {
    const { disk, log } = onDisk(t);
    await log.append(first, 'a\n');
    Object.assign(disk, { takes: 5, cutsOff: false });
    await assert.rejects(log.append(first, 'bbb\nccc\n'), { code: 'ENOSPC' });
    disk.takes = Number.POSITIVE_INFINITY;
    for (let attempt = 0; attempt < 2; attempt++)
      await assert.rejects(log.append(second, 'bbb\nccc\n'), { code: 'EIO' });
    assert.equal(existsSync(second), false);
    disk.cutsOff = true;
    await log.append(second, 'bbb\nccc\n');
    assert.deepEqual([textOf(first), textOf(second)], ['a\n', 'bbb\nccc\n']);
    await log.close();
  });

  it('are read one by one with their numbers; a long one is empty, and a last one may not be whole', async () => {
    const long = 'x'.repeat(3 * 1024 * 1024);
    writeFileSync(first, `a\n\n${long}\nä\nrest`);
    const read: object[] = [];
    for await (const line of linesOf(first)) read.push(line);
    const whole = ['a', '', '', 'ä'].map((text, i) => ({ number: i + 1, text, isWhole: true }));
    assert.deepEqual(read, [...whole, { number: 5, text: 'rest', isWhole: false }]);
    mkdirSync(second);
    await assert.rejects(linesOf(second).next(), { code: 'EISDIR' });
  });
});
