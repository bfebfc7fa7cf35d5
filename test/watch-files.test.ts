import assert from 'node:assert/strict';
import { it } from 'node:test';
import { PrivatemodeError } from '../lib/errors.ts';
import { watchFiles } from '../lib/watch-files.ts';
import { createFakeClock, settle } from './support/remote/fake-clock.ts';

/** A watch of which each read takes until it is told what it found, and what the watch has told so far. */
function scene() {
  const clock = createFakeClock();
  const reads: PromiseWithResolvers<string>[] = [];
  const told: string[] = [];
  const watch = watchFiles({
    known: 'first',
    read() {
      reads.push(Promise.withResolvers<string>());
      return reads.at(-1)!.promise;
    },
    changed: (next) => told.push(next),
    failed: ({ message }) => told.push(message),
    recovered: () => told.push('recovered'),
    interval: 1_000,
    clock,
  });
  return { clock, watch, reads, told };
}

it('a watched file that is read slowly: no other read begins, and one follows for all that was asked for meanwhile', async () => {
  const { clock, watch, reads, told } = scene();
  await clock.advance(60_000);
  const both = [watch.reload(), watch.reload()];
  assert.equal(reads.length, 1);
  reads[0]?.resolve('first');
  await settle();
  reads[1]?.resolve('second');
  await Promise.all(both);
  assert.deepEqual([reads.length, told], [2, ['second']]);
});

it('a watched file: a failure is told once, and its end before the changed content; nothing after the close', async () => {
  const { watch, reads, told } = scene();
  for (const outcome of ['first', undefined, undefined, 'first', undefined, 'second', 'second', 'closed']) {
    const read = watch.reload();
    if (outcome === 'closed') watch.close();
    if (outcome === undefined) reads.at(-1)?.reject(new PrivatemodeError('config_invalid', 'gone'));
    else reads.at(-1)?.resolve(outcome);
    await read;
  }
  assert.deepEqual(told, ['gone', 'recovered', 'gone', 'recovered', 'second']);
});
