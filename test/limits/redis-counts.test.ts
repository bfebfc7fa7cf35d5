/** Limits that are counted in a Redis: exact over all replicas, and what becomes of them while it is away. */
import assert from 'node:assert/strict';
import { readFileSync, writeFileSync } from 'node:fs';
import { type AddressInfo, createServer } from 'node:net';
import { join } from 'node:path';
import { describe, it, type TestContext } from 'node:test';
import { PrivatemodeError } from '../../lib/errors.ts';
import type { LimitedClient, Permit, RequestCounts } from '../../lib/limits/limits.ts';
import { clientOf } from '../support/doors/clients.ts';
import { eventually } from '../support/processes/eventually.ts';
import { freePort } from '../support/processes/foreign-programs.ts';
import { keyOf, type Replica, redisOfSuite, replica } from '../support/processes/redis-replica.ts';
import { ask, REDIS, startRedis } from '../support/processes/redis-server.ts';
import { temporaryDirectory } from '../support/processes/temporary-directory.ts';
import { clockOf, createFakeClock } from '../support/remote/fake-clock.ts';
import { createTestAuthority } from '../support/remote/tls-authority.ts';

let clients = 0;
/** A client that no other test has. */
const clientWith = (limits: Partial<LimitedClient['limits']>): LimitedClient => {
  clients += 1;
  return clientOf({ name: `client-${clients}@team.example`, limits });
};

/** `code retryAfter` of the refusal; fails where there is none. */
async function refusalOf(counts: RequestCounts, client: LimitedClient): Promise<string> {
  try {
    await counts.admit(client);
  } catch (thrown) {
    assert.ok(thrown instanceof PrivatemodeError, String(thrown));
    return `${thrown.code} ${thrown.retryAfter}`;
  }
  assert.fail('the request was admitted');
}

/**
 * The client is refused for its requests per minute, and is told to wait for `seconds`, or for so much less
 * as has passed since `start` (performance.now()).
 */
async function waitsFor(counts: RequestCounts, client: LimitedClient, seconds: number, start: number) {
  const refusal = await refusalOf(counts, client);
  const passed = Math.ceil((performance.now() - start) / 1000);
  const waits = Number(/^requests_per_minute_reached (\d+)$/.exec(refusal)?.[1]);
  assert.ok(
    waits <= seconds && waits >= seconds - passed - 1,
    `${refusal}, ${passed} s of ${seconds} passed`,
  );
}

/** How many of so many requests at once are admitted; the others must be refused by that limit. */
async function admittedOf(many: readonly RequestCounts[], client: LimitedClient, code: string) {
  const results = await Promise.allSettled(many.map(async (counts) => counts.admit(client)));
  for (const result of results) {
    if (result.status === 'rejected') assert.equal((result.reason as PrivatemodeError).code, code);
  }
  return results.filter(({ status }) => status === 'fulfilled').length;
}

/** Resolves with a place once there is one. */
const placeFor = (counts: RequestCounts, client: LimitedClient): Promise<Permit> =>
  eventually('a place', async () => Promise.resolve(counts.admit(client)).catch(() => undefined), 60_000, 50);

/** Moves the requests of the last minute into the past. */
async function ageWindow(url: string, client: LimitedClient, ms: number): Promise<void> {
  const members = (await ask(url, 'ZRANGE', keyOf(client, 'window'), 0, -1)) as string[];
  for (const member of members) await ask(url, 'ZINCRBY', keyOf(client, 'window'), -ms, member);
}

describe('limits that replicas count in Redis', { skip: REDIS.skip, timeout: 600_000 }, () => {
  const server = redisOfSuite();
  const sizeOf = (client: LimitedClient, key: 'window' | 'running') =>
    ask(server.url, 'ZCARD', keyOf(client, key));
  const tokensOf = (client: LimitedClient) => ask(server.url, 'GET', keyOf(client, 'tokens'));

  it('refuse a request beyond requestsPerMinute until the oldest one is 60 s old', async (t) => {
    const counts = await replica(t, server.url);
    const client = clientWith({ requestsPerMinute: 3 });
    const start = performance.now();
    for (let i = 0; i < 3; i += 1) (await counts.admit(client)).release(0);
    await waitsFor(counts, client, 60, start);
    assert.equal(await sizeOf(client, 'window'), 3, 'the refused one is not counted');
    await ageWindow(server.url, client, 50_000);
    await waitsFor(counts, client, 10, start);
    await ageWindow(server.url, client, 10_000);
    assert.equal(await admittedOf(Array(5).fill(counts), client, 'requests_per_minute_reached'), 3);
  });

  it('name the wait for a lowered requestsPerMinute: until few enough requests are younger than 60 s', async (t) => {
    const counts = await replica(t, server.url);
    const client = clientWith({ requestsPerMinute: 3 });
    const start = performance.now();
    for (let i = 0; i < 3; i += 1) {
      await counts.admit(client);
      await ageWindow(server.url, client, 10_000);
    }
    // Their ages are 30, 20 and 10 s: there is room when the second is gone.
    await waitsFor(counts, clientOf({ ...client, limits: { requestsPerMinute: 2 } }), 40, start);
  });

  it('admit requests while fewer tokens than tokensPerDay are counted, and then none until midnight (UTC)', async (t) => {
    const counts = await replica(t, server.url);
    const client = clientWith({ tokensPerDay: 100 });
    for (const tokens of [Number.NaN, -5, 99]) (await counts.admit(client)).release(tokens);
    const [last, two] = [await counts.admit(client), await counts.admit(client)];
    two.release(1);
    const refused = await refusalOf(counts, client);
    const [seconds] = (await ask(server.url, 'TIME')) as string[];
    const left = 86_400 - (Number(seconds) % 86_400);
    const wait = Number(/^tokens_per_day_reached (\d+)$/.exec(refused)?.[1]);
    assert.ok(wait >= left && wait <= left + 5, `${refused}, and the day has ${left} s`);
    last.release(1000);
    await eventually('the tokens of the last one', async () => (await tokensOf(client)) === '1100');
    const expiry = Number(await ask(server.url, 'PTTL', keyOf(client, 'tokens')));
    assert.ok(Math.abs(expiry - left * 1000) < 10_000, `forgotten in ${expiry} ms, the day has ${left} s`);
    await ask(server.url, 'PEXPIRE', keyOf(client, 'tokens'), 0);
    await counts.admit(client);
  });

  it('admit as many requests at once through two replicas as through one', async (t) => {
    const both = [await replica(t, server.url), await replica(t, server.url)];
    const many = Array.from({ length: 50 }, (_, i) => both[i % 2] as Replica);
    const perMinute = clientWith({ requestsPerMinute: 20 });
    assert.equal(await admittedOf(many, perMinute, 'requests_per_minute_reached'), 20);
    const atATime = clientWith({ maxConcurrent: 7 });
    assert.equal(await admittedOf(many, atATime, 'max_concurrent_reached'), 7);
    const tokens = clientWith({ tokensPerDay: 10 });
    (await (both[0] as Replica).admit(tokens)).release(10);
    await eventually('the tokens', async () => (await tokensOf(tokens)) === '10');
    assert.match(await refusalOf(both[1] as Replica, tokens), /^tokens_per_day_reached /);
  });

  it('hold for the replica that follows: its requests of the last minute, and its tokens of today', async (t) => {
    const before = await replica(t, server.url);
    const client = clientWith({ requestsPerMinute: 2, tokensPerDay: 50, maxConcurrent: 1 });
    (await before.admit(client)).release(49);
    (await before.admit(client)).release(0);
    await before.close();
    assert.equal(await refusalOf(before, client), 'limits_unavailable 2');
    const behind = await replica(t, server.url);
    assert.match(await refusalOf(behind, client), /^requests_per_minute_reached /);
    await ageWindow(server.url, client, 60_000);
    (await behind.admit(client)).release(1);
    assert.match(await refusalOf(behind, client), /^tokens_per_day_reached /);
  });

  it('free the place of a replica that is gone once its lease is over; who renews it keeps it for longer', async (t) => {
    const lease = 2_000;
    const client = clientWith({ maxConcurrent: 2 });
    const gone = await replica(t, server.url, {
      clock: clockOf({ storeLease: lease, storeLook: 1_000_000 }),
    });
    await gone.admit(client);
    const clock = clockOf({ storeLease: lease, storeLook: lease / 4 });
    const counts = await replica(t, server.url, { clock });
    await counts.admit(client); // runs on
    const start = Date.now();
    assert.equal(await refusalOf(counts, client), 'max_concurrent_reached 1');
    await placeFor(counts, client);
    const isOver = async (): Promise<boolean> => {
      assert.equal(await refusalOf(counts, client), 'max_concurrent_reached 1');
      return Date.now() > start + 2 * lease;
    };
    await eventually('the end of two leases', isOver, 60_000, 250);
  });

  it('are counted in keys that all expire', async (t) => {
    const counts = await replica(t, server.url);
    const client = clientWith({ requestsPerMinute: 9, tokensPerDay: 1_000, maxConcurrent: 9 });
    (await counts.admit(client)).release(3);
    await counts.admit(client);
    for (const [key, longest] of [
      ['window', 60_000],
      ['running', 60_000],
      ['tokens', 86_400_000],
    ] as const) {
      const expiry = Number(await ask(server.url, 'PTTL', keyOf(client, key)));
      assert.ok(expiry > 0 && expiry <= longest, `${key}: ${expiry}`);
    }
    for (const key of (await ask(server.url, 'KEYS', '*')) as string[]) {
      assert.notEqual(await ask(server.url, 'PTTL', key), -1, `${key} is there for ever`);
      assert.match(key, /^privatemode-proxy:\{[^{}]*\}:(?:tokens|window|running)$/);
    }
  });

  it('free a place before the next admission, also on a server that has forgotten the script', async (t) => {
    const counts = await replica(t, server.url);
    const client = clientWith({ maxConcurrent: 1 });
    for (let i = 0; i < 2; i += 1) {
      const permit = await counts.admit(client);
      await ask(server.url, 'SCRIPT', 'FLUSH');
      permit.release(0);
    }
    await counts.admit(client);
    assert.deepEqual(counts.events, ['usable']);
  });
});

describe('limits counted in a Redis that is away for a while', { skip: REDIS.skip, timeout: 600_000 }, () => {
  it('refuse requests while Redis is away (closed), then go on; tokens of requests that ended meanwhile are lost', async (t) => {
    const server = await startRedis(t);
    const counts = await replica(t, server.url);
    const client = clientWith({ maxConcurrent: 2, tokensPerDay: 100 });
    const [stays, leaves] = [await counts.admit(client), await counts.admit(client)];
    await server.stop();
    await eventually('the failure', () => counts.events.length > 1);
    assert.equal(await refusalOf(counts, client), 'limits_unavailable 2');
    leaves.release(40);
    const again = await startRedis(t, { port: server.port });
    await eventually('the recovery', () => counts.events.at(-1) === 'usable');
    // The new server knew of nothing.
    assert.equal(await ask(again.url, 'ZCARD', keyOf(client, 'running')), 1);
    assert.equal(await ask(again.url, 'EXISTS', keyOf(client, 'tokens')), 0);
    await counts.admit(client);
    assert.equal(await refusalOf(counts, client), 'max_concurrent_reached 1');
    stays.release(100);
    assert.match(await refusalOf(counts, client), /^tokens_per_day_reached /);
  });

  for (const onFailure of ['closed', 'open'] as const) {
    it(`${onFailure === 'closed' ? 'refuse requests' : 'admit requests, not counted,'} until Redis is there if it is away at the start (${onFailure})`, async (t) => {
      const port = await freePort();
      const counts = await replica(t, `redis://127.0.0.1:${port}`, { onFailure });
      const away = 'the connection failed (ECONNREFUSED)';
      (await counts.admit(clientWith({}))).release(5); // who has no limits needs no store
      assert.deepEqual(counts.events, [away]);
      const client = clientWith({ maxConcurrent: 1, requestsPerMinute: 1, tokensPerDay: 1 });
      if (onFailure === 'closed') assert.equal(await refusalOf(counts, client), 'limits_unavailable 2');
      const admitted = onFailure === 'open' ? [await counts.admit(client), await counts.admit(client)] : [];
      const uncounted = counts.events.filter((event) => event === 'uncounted').length;
      assert.equal(uncounted, onFailure === 'open' ? 2 : 0);
      await startRedis(t, { port });
      await eventually('the recovery', () => counts.events.at(-1) === 'usable');
      for (const permit of admitted) permit.release(9); // their places and tokens do not count either
      await counts.admit(client);
      assert.match(await refusalOf(counts, client), /^requests_per_minute_reached /);
    });
  }

  it('report Redis as unusable while it accepts no writes, and as usable once it does', async (t) => {
    const server = await startRedis(t);
    await ask(server.url, 'REPLICAOF', '127.0.0.1', await freePort());
    const counts = await replica(t, server.url, { clock: clockOf({ storeLook: 50 }) });
    await eventually('a look', () => counts.events.length > 0);
    assert.match(counts.events.join(), /^it replies with the error [A-Z]+$/);
    await ask(server.url, 'REPLICAOF', 'NO', 'ONE');
    await eventually('the recovery', () => counts.events.at(-1) === 'usable');
  });
});

describe('a client with a key in Redis that holds no count', { skip: REDIS.skip, timeout: 600_000 }, () => {
  const server = redisOfSuite();
  for (const [what, key, command, ...values] of [
    ['tokens that are a list', 'tokens', 'LPUSH', 'x'],
    ['a window that is a string', 'window', 'SET', 'x'],
  ] as const) {
    it(`is refused until the key is deleted, while others are counted (${what})`, async () => {
      const counts = await server.replica();
      const limits = { requestsPerMinute: 9, tokensPerDay: 9, maxConcurrent: 9 };
      const [bob, ann] = [clientWith(limits), clientWith(limits)];
      const runs = await counts.admit(bob);
      await ask(server.url, 'DEL', keyOf(bob, key));
      await ask(server.url, command, keyOf(bob, key), ...values);
      assert.equal(await refusalOf(counts, bob), 'limits_unavailable 2');
      runs.release(1);
      await counts.admit(ann);
      assert.deepEqual(counts.events, ['usable']);
      await ask(server.url, 'DEL', keyOf(bob, key));
      (await counts.admit(bob)).release(9);
      assert.match(await refusalOf(counts, bob), /^tokens_per_day_reached /);
    });
  }
});

/** A server that replies as it should to the first look, and then says the same to everything. */
async function startLiar(t: TestContext, reply: string, first = ['*2\r\n:0\r\n:0\r\n']): Promise<string> {
  const server = createServer((socket) => {
    const looks = [...first];
    socket.on('error', () => {});
    socket.on('data', () => void socket.write(looks.shift() ?? reply));
    t.after(() => socket.destroy());
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  t.after(() => server.close());
  return `redis://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

describe('limits whose store gives no reply', { timeout: 600_000 }, () => {
  it('refuse requests after 1 s, however many wait', async (t) => {
    const clock = createFakeClock();
    const counts = await replica(t, await startLiar(t, '', ['*2\r\n:0\r\n:0\r\n', '']), { clock });
    const client = clientWith({ requestsPerMinute: 9 });
    await eventually('the first look', () => counts.events.length > 0);
    let refused = 0;
    const refusal = (): Promise<string> => refusalOf(counts, client).finally(() => refused++);
    const refusals = Array.from({ length: 20 }, refusal);
    await clock.advance(999);
    assert.equal(refused, 0);
    await clock.advance(1);
    assert.deepEqual(new Set(await Promise.all(refusals)), new Set(['limits_unavailable 2']));
  });

  it('are looked at without requests, so that the silence is noticed', async (t) => {
    const counts = await replica(t, await startLiar(t, ''), { clock: clockOf({ storeLook: 50 }) });
    await eventually('the failure', () => counts.events.includes('it does not reply in time'));
    await eventually('another connection', () => counts.events.at(-1) === 'usable');
  });

  it('are given up in a handshake without a reply', async (t) => {
    const url = (await startLiar(t, '', [])).replace('//', '//:password@');
    const counts = await replica(t, url, { clock: clockOf({ storeSilence: 50 }) });
    await eventually('the failure', () => counts.events.includes('the connection was lost'));
  });
});

describe('limits whose store sends an invalid reply or an error', { timeout: 600_000 }, () => {
  for (const [reply, reason] of [
    ...['+OK', '$-1', '*0', '*1 :2', '*2 :4 :0', '*2 :-1 :0', '*2 :2 +soon', '*2 :2 :-5', '*3 :0 :0 :0'].map(
      (words) => [`${words.replaceAll(' ', '\r\n')}\r\n`, 'its reply is invalid'] as const,
    ),
    ['HTTP/1.1 400 Bad Request\r\n\r\n', 'the connection was lost'],
    ['-OOM command not allowed when used memory > maxmemory\r\n', 'it replies with the error OOM'],
  ] as const) {
    it(`refuse requests, and report the store: ${JSON.stringify(reply)}`, async (t) => {
      const counts = await replica(t, await startLiar(t, reply), { clock: clockOf({ storeLook: 50 }) });
      await eventually('the first look', () => counts.events.includes('usable'));
      assert.equal(await refusalOf(counts, clientWith({ requestsPerMinute: 9 })), 'limits_unavailable 2');
      await eventually('the report', () => counts.events.includes(reason));
    });
  }
});

describe('a Redis that asks for a password', { skip: REDIS.skip, timeout: 600_000 }, () => {
  const SECRET = 'swordfish:@/%?#';
  const IN_URL = encodeURIComponent(SECRET);
  /** What docs/team.md grants. */
  const PAGE = readFileSync(join(import.meta.dirname, '../../docs/team.md'), 'utf8');
  const RULES = /^user gateway on >PASSWORD (~privatemode-proxy:\* .+)$/m.exec(PAGE)?.[1] as string;

  it('admits replicas by a password without a user, and by a user with only the rights in docs/team.md', async (t) => {
    const more = ['--requirepass', SECRET, '--user', 'gateway', 'on', `>${SECRET}`, ...RULES.split(' ')];
    const server = await startRedis(t, { more });
    for (const user of ['', 'gateway']) {
      const counts = await replica(t, `redis://${user}:${IN_URL}@127.0.0.1:${server.port}`);
      const client = clientWith({ maxConcurrent: 1, requestsPerMinute: 1, tokensPerDay: 1 });
      (await counts.admit(client)).release(1);
      assert.match(await refusalOf(counts, client), /^tokens_per_day_reached /);
      await counts.close();
      assert.deepEqual(counts.events, ['usable']);
    }
  });

  it('refuses a wrong password, a user that does not exist and no password, and no text names them', async (t) => {
    const server = await startRedis(t, { more: ['--requirepass', SECRET] });
    for (const user of [':wrong-pass-word@', 'some-body:wrong-pass-word@', '']) {
      const counts = await replica(t, `redis://${user}127.0.0.1:${server.port}`);
      await eventually('the report', () => counts.events.length > 0);
      const code = user === '' ? 'NOAUTH' : 'WRONGPASS';
      assert.deepEqual(counts.events, [`it replies with the error ${code}`]);
      await assert.rejects(
        async () => counts.admit(clientWith({ maxConcurrent: 1 })),
        ({ message, stack, cause }: Error) =>
          !/wrong|some-body|swordfish/.test(`${message} ${stack} ${cause}`),
      );
    }
  });

  it('may repeat the password in an error; of that error only the code ERR is reported', async (t) => {
    const error = "-ERR unknown command 'AUTH', with args beginning with: some-body wrong-pass-word\r\n";
    const url = (await startLiar(t, error, [])).replace('//', '//some-body:wrong-pass-word@');
    const counts = await replica(t, url);
    assert.deepEqual(counts.events, ['it replies with the error ERR']);
  });
});

describe('a Redis with TLS', { skip: REDIS.skip, timeout: 600_000 }, () => {
  it('is verified against the CAs that are given', async (t) => {
    const [authority, other] = [createTestAuthority('Redis CA'), createTestAuthority('Another CA')];
    const { cert, key } = authority.issue(['127.0.0.1']);
    const directory = temporaryDirectory('redis-tls-');
    for (const [name, text] of Object.entries({ cert, key, ca: authority.pem }))
      writeFileSync(join(directory, `${name}.pem`), text);
    const file = (name: string): string => join(directory, `${name}.pem`);
    const port = await freePort();
    const tls = ['--tls-port', String(port), '--tls-auth-clients', 'no', '--tls-ca-cert-file', file('ca')];
    await startRedis(t, {
      more: [...tls, '--tls-cert-file', file('cert'), '--tls-key-file', file('key')],
    });
    const url = `rediss://127.0.0.1:${port}`;
    const trusted = await replica(t, url.toUpperCase(), { ca: [authority.pem] });
    const client = clientWith({ maxConcurrent: 1 });
    await trusted.admit(client);
    assert.equal(await refusalOf(trusted, client), 'max_concurrent_reached 1');
    const distrusted = await replica(t, url, { ca: [other.pem] });
    assert.match(distrusted.events.join(), /the connection failed \((?:UNABLE_TO_VERIFY|SELF_SIGNED)/);
  });
});
