import assert from 'node:assert/strict';
import { it } from 'node:test';
import { PrivatemodeError } from '../lib/errors.ts';
import { watchFiles } from '../lib/watch-files.ts';
import { eventually } from './support/processes/eventually.ts';
import { createFakeClock, settle } from './support/remote/fake-clock.ts';

/** A watch of which each read takes until it is told what it found. */
function scene(interval = 3_600_000) {
  const clock = createFakeClock();
  const reads: PromiseWithResolvers<string>[] = [];
  const told: string[] = [];
  const watch = watchFiles({
    known: 'first',
    read() {
      const read = Promise.withResolvers<string>();
      reads.push(read);
      return read.promise;
    },
    changed: (next) => told.push(next),
    failed: ({ message }) => told.push(message),
    recovered: () => told.push('recovered'),
    interval,
    clock,
  });
  return { clock, watch, reads, told };
}

it('a watched file: a reload during a read takes effect after it, once for several', async (t) => {
  const { watch, reads, told } = scene();
  t.after(watch.close);
  const slow = watch.reload();
  const [next, same] = [watch.reload(), watch.reload()];
  assert.equal(reads.length, 1);
  reads[0]?.resolve('first');
  await slow;
  await eventually('the next read', () => reads.length === 2);
  reads[1]?.resolve('second');
  await Promise.all([next, same]);
  assert.deepEqual([reads.length, told], [2, ['second']]);
});

it('a watched file: a read that fails does not keep the reload behind it from its turn', async (t) => {
  const { watch, reads, told } = scene();
  t.after(watch.close);
  const both = [watch.reload(), watch.reload()];
  reads[0]?.reject(new PrivatemodeError('config_invalid', 'half written'));
  await eventually('the next read', () => reads.length === 2);
  reads[1]?.resolve('second');
  await Promise.all(both);
  assert.deepEqual(told, ['half written', 'recovered', 'second']);
});

it('a watched file: a read that does not return is a failure after 10 s, and no other read begins', async (t) => {
  const { clock, watch, reads, told } = scene(1_000);
  t.after(watch.close);
  await clock.advance(1_000);
  await clock.advance(9_999);
  assert.deepEqual([reads.length, told], [1, []]);
  await clock.advance(1);
  assert.deepEqual(told, ['the file was not read within 10 s: its disk does not answer']);
  await clock.advance(60_000);
  assert.deepEqual([reads.length, told.length], [1, 1]);
  reads[0]?.resolve('second');
  await settle();
  assert.deepEqual(told.slice(1), ['recovered', 'second']);
  await clock.advance(1_000);
  assert.equal(reads.length, 2);
});

it('a watched file: a good read after failures reports the recovery once, before the changed content', async (t) => {
  const { watch, reads, told } = scene();
  t.after(watch.close);
  for (const outcome of ['first', undefined, undefined, 'first', undefined, 'second', 'second']) {
    const read = watch.reload();
    if (outcome === undefined) reads.at(-1)?.reject(new PrivatemodeError('config_invalid', 'gone'));
    else reads.at(-1)?.resolve(outcome);
    await read;
  }
  assert.deepEqual(told, ['gone', 'recovered', 'gone', 'recovered', 'second']);
});
