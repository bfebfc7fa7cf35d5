/** Batches for a disk that fails or hangs. */
import assert from 'node:assert/strict';
import { describe, it, type TestContext } from 'node:test';
import { writeInBatches } from '../../lib/files/line-files.ts';

/** Batches of which each write takes until the test ends it. */
function scene(t: TestContext) {
  const alive = setInterval(() => {}, 10); // the batches keep no process alive
  t.after(() => clearInterval(alive));
  const writes: PromiseWithResolvers<number>[] = [];
  const told: string[] = [];
  const failure = Promise.withResolvers<void>();
  const batches = writeInBatches({
    ...{ interval: 1, patience: 20 },
    write() {
      const write = Promise.withResolvers<number>();
      writes.push(write);
      return write.promise;
    },
    onFailure(reason) {
      told.push(String((reason as NodeJS.ErrnoException).code));
      failure.resolve();
    },
    onRecovery: (lost) => told.push(`recovered, ${lost} lost`),
  });
  return { batches, writes, told, failed: failure.promise };
}

describe('a batch of lines', { timeout: 5_000 }, () => {
  it('that the disk does not take in time is reported while it waits, and once it is written', async (t) => {
    const { batches, writes, told, failed } = scene(t);
    const flushed = batches.flush();
    await failed;
    assert.deepEqual(told, ['ETIMEDOUT']);
    writes[0]?.resolve(2);
    await flushed;
    assert.deepEqual(told, ['ETIMEDOUT', 'recovered, 2 lost']);
  });

  it('that the disk hangs on and then refuses is reported once', async (t) => {
    const { batches, writes, told, failed } = scene(t);
    const flushed = batches.flush();
    await failed;
    writes[0]?.reject(Object.assign(new Error('full'), { code: 'ENOSPC' }));
    await flushed;
    batches.stop();
    assert.deepEqual(told, ['ETIMEDOUT']);
  });
});
