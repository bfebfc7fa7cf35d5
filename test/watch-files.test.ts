import assert from 'node:assert/strict';
import { it } from 'node:test';
import { PrivatemodeError } from '../lib/errors.ts';
import { watchFiles } from '../lib/watch-files.ts';

/** A watch of which each read takes until it is told what it found. */
function scene() {
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
    interval: 3_600_000,
  });
  return { watch, reads, told };
}

it('a watched file: a slow read does not bring back content that a later read has found replaced', async (t) => {
  const { watch, reads, told } = scene();
  t.after(watch.close);
  const [slow, quick] = [watch.reload(), watch.reload()];
  reads[1]?.resolve('second');
  await quick;
  reads[0]?.resolve('first');
  await slow;
  assert.deepEqual(told, ['second']);
});

it('a watched file: a slow read that fails is not reported if a later read has succeeded', async (t) => {
  const { watch, reads, told } = scene();
  t.after(watch.close);
  const [slow, quick] = [watch.reload(), watch.reload()];
  reads[1]?.resolve('second');
  await quick;
  reads[0]?.reject(new Error('the old file was half written'));
  await slow;
  assert.deepEqual(told, ['second']);
});

it('a watched file: reads that end in order are all reported', async (t) => {
  const { watch, reads, told } = scene();
  t.after(watch.close);
  const both = [watch.reload(), watch.reload()];
  for (const [i, read] of reads.entries()) read.resolve(`number ${i}`);
  await Promise.all(both);
  assert.deepEqual(told, ['number 0', 'number 1']);
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
