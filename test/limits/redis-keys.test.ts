/** Keys of one client that hold something else: its requests fail, and nobody else's. */
import assert from 'node:assert/strict';
import { type AddressInfo, createServer } from 'node:net';
import { describe, it } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { systemClock } from '../../lib/clock.ts';
import { PrivatemodeError } from '../../lib/errors.ts';
import type { LimitedClient } from '../../lib/limits/limits.ts';
import { openRedisConnection, type StoreError } from '../../lib/limits/redis-connection.ts';
import type { RedisCountsOptions } from '../../lib/limits/redis-counts.ts';
import { eventually } from '../support/processes/eventually.ts';
import { keyOf, type Replica, redisOfSuite } from '../support/processes/redis-replica.ts';
import { ask, REDIS } from '../support/processes/redis-server.ts';
import { clockOf } from '../support/remote/fake-clock.ts';

const LIMITS = { requestsPerMinute: 5, tokensPerDay: 100, maxConcurrent: 5 };
let clients = 0;
const newClient = (): LimitedClient => ({ name: `client-${++clients}@keys.example`, limits: LIMITS });

async function codeOf(admitted: unknown): Promise<string> {
  try {
    await admitted;
  } catch (thrown) {
    assert.ok(thrown instanceof PrivatemodeError, String(thrown));
    return thrown.code;
  }
  return 'admitted';
}

describe('a client with a key in Redis that holds no count', { skip: REDIS.skip, timeout: 600_000 }, () => {
  const server = redisOfSuite();

  const opened = (more: Partial<RedisCountsOptions> = {}): Promise<Replica> => server.replica(more);

  const spoiled: [
    what: string,
    key: 'tokens' | 'window' | 'running' | 'counted',
    ...command: (string | number)[],
  ][] = [
    ['tokens that are a list', 'tokens', 'LPUSH', 'KEY', 'x'],
    ['tokens that are a word', 'tokens', 'SET', 'KEY', 'many'],
    ['tokens that are a fraction', 'tokens', 'SET', 'KEY', '1.5'],
    ['tokens beyond all numbers', 'tokens', 'SET', 'KEY', '9223372036854775807'],
    ['a window that is a string', 'window', 'SET', 'KEY', 'x'],
    ['running requests that are a hash', 'running', 'HSET', 'KEY', 'a', 'b'],
    ['counted turns that are a string', 'counted', 'SET', 'KEY', 'x'],
  ];
  for (const [what, key, command, , ...values] of spoiled) {
    // The policy asks not what the key holds.
    for (const onFailure of key === 'window' ? (['closed', 'open'] as const) : (['closed'] as const)) {
      it(`is ${onFailure === 'closed' ? 'refused' : 'not counted'} until the key is deleted, while other clients are counted (${what}, ${onFailure})`, async () => {
        const { admit, events } = await opened({ onFailure });
        const [bob, ann] = [newClient(), newClient()];
        (await admit(ann)).release(1);
        await ask(server.url, command as string, keyOf(bob, key), ...values);
        for (let i = 0; i < 2; i++) {
          assert.equal(await codeOf(admit(bob)), onFailure === 'closed' ? 'limits_unavailable' : 'admitted');
          assert.equal(await codeOf(admit(ann)), 'admitted');
        }
        const told = `${bob.name}: a key of this client holds something that is no count (WRONGTYPE)`;
        assert.deepEqual(events, onFailure === 'closed' ? [told] : [told, 'uncounted', 'uncounted']);
        await ask(server.url, 'DEL', keyOf(bob, key));
        (await admit(bob)).release(100);
        assert.equal(await codeOf(delay(50).then(() => admit(bob))), 'tokens_per_day_reached');
      });
    }
  }

  /** One for each key. */
  const ONE_EACH = spoiled.filter(([, key], i) => i === spoiled.findIndex((other) => other[1] === key));
  for (const [what, key, command, , ...values] of ONE_EACH) {
    it(`hinders neither other clients nor new connections when its request ends (${what}, set while the request runs)`, async () => {
      const { admit, events } = await opened({ clock: clockOf({ storeLease: 300 }) });
      const [bob, ann] = [newClient(), newClient()];
      const [ends_, runs] = [await admit(bob), await admit(bob)];
      // In one step: a renewal in between would make the key anew.
      const spoil = "redis.call('DEL', KEYS[1]) return redis.call(ARGV[1], KEYS[1], unpack(ARGV, 2))";
      await ask(server.url, 'EVAL', spoil, 1, keyOf(bob, key), command as string, ...values);
      ends_.release(7);
      await delay(350); // three renewals
      assert.equal(await codeOf(admit(ann)), 'admitted');
      const another = await opened();
      assert.equal(await codeOf(another.admit(ann)), 'admitted');
      await ask(server.url, 'CLIENT', 'KILL', 'TYPE', 'normal');
      await eventually('the recovery', () => events.includes('recovered'));
      assert.equal(await codeOf(admit(ann)), 'admitted');
      runs.release(0);
      await ask(server.url, 'DEL', keyOf(bob, key));
    });

    it(`is reported as usable once the key is repaired, although it sends no request any more (${what})`, async () => {
      const usable: string[] = [];
      const { admit, events } = await opened({
        clock: clockOf({ storeLease: 300 }),
        usable: (client) => usable.push(client),
      });
      const bob = newClient();
      await ask(server.url, command as string, keyOf(bob, key), ...values);
      assert.equal(await codeOf(admit(bob)), 'limits_unavailable');
      await delay(350); // three renewals
      assert.deepEqual(usable, []);
      await ask(server.url, 'DEL', keyOf(bob, key));
      await eventually('the end', () => usable.length > 0);
      assert.deepEqual([usable, events.length], [[bob.name], 1]);
      assert.deepEqual(await ask(server.url, 'KEYS', keyOf(bob, '*')), []);
    });
  }

  it('hinders no connection if its name is empty', async () => {
    await ask(server.url, 'SET', keyOf({ name: '' }, 'running'), 'x');
    const { admit, events } = await opened();
    assert.equal(await codeOf(admit(newClient())), 'admitted');
    assert.deepEqual(events, []);
    await ask(server.url, 'DEL', keyOf({ name: '' }, 'running'));
  });
});

describe('a reply of Redis to a script of the limits', { timeout: 600_000 }, () => {
  const replies: [reply: string, ofKeys: boolean][] = [
    ['-WRONGTYPE Operation against a key holding the wrong kind of value', true],
    [
      `-ERR Error running script (call to f_${'0'.repeat(40)}): @user_script:3: WRONGTYPE Operation against a key`,
      true,
    ],
    ['-ERR unknown command WRONGTYPE', false],
    ['-OOM command not allowed when used memory > maxmemory', false],
    ['-READONLY You cannot write against a read only replica', false],
    ['-NOPERM this user has no permissions', false],
    ['-LOADING Redis is loading the dataset in memory', false],
  ];
  for (const [reply, ofKeys] of replies) {
    it(`means that ${ofKeys ? 'the keys of the client' : 'the store'} cannot be used: ${reply.slice(0, 60)}`, async (t) => {
      let isPrepared = false;
      const server = createServer((socket) => {
        socket.on('error', () => {});
        socket.on('data', (data) => {
          const commands = data.toString().split(/(?=\*\d+\r\n)/);
          for (const command of commands)
            socket.write(
              isPrepared && /EVAL/i.test(command)
                ? `${reply}\r\n`
                : /EVAL/i.test(command)
                  ? ':1\r\n'
                  : '+OK\r\n',
            );
        });
      });
      await new Promise<void>((listening) => server.listen(0, '127.0.0.1', listening));
      const failures: string[] = [];
      const one = { text: 'return 1', fits: () => true };
      const connection = await openRedisConnection({
        ...{
          url: `redis://127.0.0.1:${(server.address() as AddressInfo).port}`,
          ca: undefined,
          clock: systemClock,
        },
        prepare: async (run) => void (await run(one, [], [])),
        failed: (reason) => failures.push(reason),
        recovered() {},
      });
      t.after(async () => {
        await connection.close();
        server.close();
      });
      isPrepared = true;
      await assert.rejects(connection.run(one, [], []), (thrown: StoreError) => thrown.ofKeys === ofKeys);
      assert.equal(failures.length, ofKeys ? 0 : 1);
    });
  }
});

it('a store that fails for another reason than before is reported with the new reason, once', async (t) => {
  const replies = ['-WRONGPASS invalid', '-WRONGPASS invalid', '-LOADING dataset', '+OK'];
  const server = createServer((socket) => {
    socket.on('error', () => {});
    socket.once('data', () => socket.write(`${replies.shift() ?? '+OK'}\r\n`));
  });
  await new Promise<void>((listening) => server.listen(0, '127.0.0.1', listening));
  const told: string[] = [];
  const { promise: recovered, resolve } = Promise.withResolvers<void>();
  const connection = await openRedisConnection({
    ...{
      url: `redis://:p@127.0.0.1:${(server.address() as AddressInfo).port}`,
      ca: undefined,
      clock: systemClock,
    },
    prepare: async () => {},
    failed: (reason) => told.push(reason.replace(/:.*/, '')),
    recovered: resolve,
  });
  t.after(async () => {
    await connection.close();
    server.close();
  });
  await recovered;
  assert.deepEqual(told, ['it replies with the error WRONGPASS', 'it replies with the error LOADING']);
});
