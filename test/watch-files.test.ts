import assert from 'node:assert/strict';
import { it } from 'node:test';
import { PrivatemodeError } from '../lib/errors.ts';
import { watchFiles } from '../lib/watch-files.ts';
import { createFakeClock, settle } from './support/remote/fake-clock.ts';

it('a watched file that is read slowly: no other read begins, and one follows for all that was asked for meanwhile', async () => {
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
    failed: assert.fail,
    interval: 1_000,
    clock,
  });
  await clock.advance(60_000);
  const both = [watch.reload(), watch.reload()];
  assert.equal(reads.length, 1);
  reads[0]?.resolve('first');
  await settle();
  reads[1]?.resolve('second');
  await Promise.all(both);
  assert.deepEqual([reads.length, told], [2, ['second']]);
});

it('a watched file: a failure is told once, its end before the changed content, and nothing after the close', async () => {
  const found = ['first', undefined, undefined, 'first', undefined, 'second', 'second', 'after the close'];
  const told: string[] = [];
  const watch = watchFiles({
    known: 'first',
    read() {
      const next = found.shift();
      if (next === undefined) throw new PrivatemodeError('config_invalid', 'gone');
      return next;
    },
    changed: (next) => told.push(next),
    failed: ({ message }) => told.push(message),
    recovered: () => told.push('recovered'),
    interval: 1_000,
    clock: createFakeClock(),
  });
  while (found.length > 1) await watch.reload();
  const last = watch.reload();
  watch.close();
  await last;
  assert.deepEqual(told, ['gone', 'recovered', 'gone', 'recovered', 'second']);
});
