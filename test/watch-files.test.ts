import assert from 'node:assert/strict';
import { it } from 'node:test';
import { PrivatemodeError } from '../lib/errors.ts';
import { watchFiles } from '../lib/watch-files.ts';
import { createFakeClock, settle } from './support/remote/fake-clock.ts';

function watched(read: () => string | Promise<string>, clock = createFakeClock()) {
  const told: string[] = [];
  const changed = (next: string): unknown => told.push(next);
  const failed = ({ message }: PrivatemodeError): unknown => told.push(message);
  const usable = (): unknown => told.push('usable');
  const watch = watchFiles('first', read, 1_000, { changed, failed, usable, clock });
  return { ...watch, told };
}

it('a watched file that is read slowly: no other read begins, and one follows for all that was asked for meanwhile', async () => {
  const clock = createFakeClock();
  const reads: PromiseWithResolvers<string>[] = [];
  const { reload, told } = watched(() => {
    reads.push(Promise.withResolvers<string>());
    return reads.at(-1)!.promise;
  }, clock);
  await clock.advance(60_000);
  const both = [reload(), reload()];
  assert.equal(reads.length, 1);
  reads[0]?.resolve('first');
  await settle();
  reads[1]?.resolve('second');
  await Promise.all(both);
  assert.deepEqual([reads.length, told], [2, ['usable', 'usable', 'second']]);
});

it('a watched file: each look tells whether it can be used, before changed content, and nothing is told after the close', async () => {
  const found = ['first', undefined, 'first', undefined, 'second', 'second', 'after the close'];
  const { reload, close, told } = watched(() => {
    const next = found.shift();
    if (next === undefined) throw new PrivatemodeError('config_invalid', 'gone');
    return next;
  });
  while (found.length > 1) await reload();
  const last = reload();
  close();
  await last;
  assert.deepEqual(told, ['usable', 'gone', 'usable', 'gone', 'usable', 'second', 'usable']);
});
