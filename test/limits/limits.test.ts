/**
 * The limits of clients in a whole gateway: counted in memory by one, and in Redis by two. What is counted is
 * in count-requests.test.ts and redis-counts.test.ts, and what a refusal looks like is in refusals.test.ts.
 */
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { systemClock } from '../../lib/clock.ts';
import { parseConfig } from '../../lib/config/config.ts';
import { createCounters } from '../../lib/observe/counters.ts';
import { createLogger } from '../../lib/observe/log.ts';
import { createNotices } from '../../lib/observe/notices.ts';
import { openAccess } from '../../lib/open-access.ts';
import { startProxy } from '../../lib/proxy.ts';
import { askChat } from '../support/doors/ask-chat.ts';
import { CANARY_KEY, KEY_MARK } from '../support/doors/canaries.ts';
import { eventually } from '../support/processes/eventually.ts';
import { freePort } from '../support/processes/foreign-programs.ts';
import { REDIS, type RedisServer, startRedis } from '../support/processes/redis-server.ts';
import { deploymentFlags, type Remote, startRemote } from '../support/remote/remote.ts';

const tokenOf = (name: string): string => `${KEY_MARK}token-of-${name}`;
const entryOf = (name: string, limits: object) => ({
  name,
  tokens: [createHash('sha256').update(tokenOf(name)).digest('hex')],
  ...limits,
});

/** Every test has clients of its own, whose counts nobody else touches. */
const CLIENTS = [
  entryOf('minute', { requestsPerMinute: 3 }),
  entryOf('tokens', { tokensPerDay: 1 }),
  entryOf('away', { requestsPerMinute: 1 }),
];

/** The status and the code of what the proxy refuses, and its Retry-After. */
async function chat(url: string, name: string): Promise<{ told: string; retryAfter: number }> {
  const response = await askChat({ url }, { token: tokenOf(name), signal: AbortSignal.timeout(20_000) });
  await response.arrayBuffer();
  const { status, headers } = response;
  return {
    told: `${status} ${headers.get('privatemode-proxy-error') ?? ''}`.trim(),
    retryAfter: Number(headers.get('retry-after')),
  };
}

/** What all tests share; begun once, ended after the last. */
const shared = new AsyncDisposableStack();
const untilTheEnd = { after: (end?: unknown) => shared.defer(end as () => Promise<void>) };
let directory: string;
let remote: Remote;
let redis: RedisServer;

before(async () => {
  remote = await startRemote({ apiKey: null });
  directory = remote.directory;
  shared.defer(() => remote.close());
  writeFileSync(join(directory, 'clients.json'), JSON.stringify({ clients: CLIENTS }));
  if (REDIS.skip === false) redis = await startRedis(untilTheEnd);
});
after(() => shared.disposeAsync());

const teamFlags = (): string[] => [
  `--clients=${join(directory, 'clients.json')}`,
  ...[`--api-key=${CANARY_KEY}`, '--shutdown-grace=200ms'],
];

/** A gateway in front of the simulator, in this process. */
async function startHere(workspace: string, flags: readonly string[]) {
  const lines: string[] = [];
  const log = createLogger({ format: 'text', level: 30, output: { write: (line) => lines.push(line) } });
  const place = deploymentFlags(remote.simulator.port, directory, workspace);
  const { config } = parseConfig([...place, '--port=0', ...flags], {});
  const proxy = await startProxy(config, { env: remote.env, log });
  return { url: proxy.url, log: () => lines.join(''), stop: () => proxy.close() };
}
type Gateway = Awaited<ReturnType<typeof startHere>>;

for (const store of ['memory', 'Redis'] as const) {
  const options = { timeout: 600_000, skip: store === 'Redis' && REDIS.skip };
  const gateways = store === 'memory' ? ['alone'] : ['one', 'two'];
  describe(`a gateway with clients (${gateways.length}, counted in ${store})`, options, () => {
    let proxies: readonly Gateway[] = [];
    before(async () => {
      const flags = store === 'memory' ? [] : [`--limits-store=${redis.url}`];
      proxies = await Promise.all(gateways.map((name) => startHere(name, [...teamFlags(), ...flags])));
    });
    after(async () => {
      await Promise.all(proxies.map((proxy) => proxy.stop()));
    });

    let asked = 0;
    /** The gateways take turns. */
    const ask = (name: string) => chat((proxies[asked++ % proxies.length] as Gateway).url, name);

    it('admits exactly three of eight requests at once with requestsPerMinute 3', async () => {
      const answers = await Promise.all(Array.from({ length: 8 }, () => ask('minute')));
      const refused = answers.filter(({ told }) => told !== '200');
      assert.equal(refused.length, 5, JSON.stringify(answers));
      for (const { told, retryAfter } of refused) {
        assert.equal(told, '429 requests_per_minute_reached');
        assert.ok(retryAfter > 30 && retryAfter <= 60, `${retryAfter}`);
      }
    });

    it('admits no request once the tokens of one are counted with tokensPerDay 1', async () => {
      assert.equal((await ask('tokens')).told, '200');
      await eventually('the count', async () => (await ask('tokens')).told === '429 tokens_per_day_reached');
    });
  });
}

describe('a gateway whose store of limits is away', {
  timeout: 60_000,
  skip: REDIS.skip,
  concurrency: true,
}, () => {
  for (const { policy, told, counts } of [
    { policy: 'closed', told: '503 limits_unavailable', counts: 0 },
    { policy: 'open', told: '200', counts: 3 },
  ] as const) {
    it(`answers ${told} and counts ${counts} of 3 as uncounted, until the store is back (--limits-store-failure=${policy})`, async (t) => {
      const server = await startRedis(t);
      const admin = `127.0.0.1:${await freePort()}`;
      const flags = [
        ...[...teamFlags(), `--limits-store=${server.url}`, `--limits-store-failure=${policy}`],
        `--admin-address=${admin}`,
      ];
      const proxy = await startHere(`away-${policy}`, flags);
      t.after(() => proxy.stop());
      const ask = async (): Promise<string> => (await chat(proxy.url, 'away')).told;
      const uncounted = async (): Promise<number> => {
        const metrics = await (await fetch(`http://${admin}/metrics`)).text();
        return Number(/^privatemode_proxy_limits_uncounted_total (\d+)$/m.exec(metrics)?.[1]);
      };
      assert.deepEqual([await ask(), await ask()], ['200', '429 requests_per_minute_reached']);
      assert.equal(await uncounted(), 0);

      await server.stop();
      assert.deepEqual([await ask(), await ask(), await ask()], [told, told, told]);
      assert.equal(await uncounted(), counts);
      assert.match(
        proxy.log(),
        /cannot be used for now".*\bremedy=".*check the store of the limits \(--limits-store\)/,
      );

      await startRedis(t, { port: server.port });
      const isBack = (): boolean => proxy.log().includes('Over: The store of the limits');
      await eventually('a connection', isBack);
      // The new server knows of none before.
      assert.deepEqual([await ask(), await ask()], ['200', '429 requests_per_minute_reached']);
      assert.equal(await uncounted(), counts);
    });
  }
});

it('--max-in-flight holds without --clients, too', async (t) => {
  const opened = new AsyncDisposableStack();
  t.after(() => opened.disposeAsync());
  const log = createLogger({ format: 'text', level: 30, output: { write() {} } });
  const notices = createNotices(log, systemClock);
  const shared = { clock: systemClock, log, counters: createCounters(), notices, opened };
  const { config } = parseConfig(['--api-endpoint=localhost:1', '--max-in-flight=1'], {});
  const key = { value: () => CANARY_KEY, origin: () => undefined };
  const { gate } = await openAccess(config, shared, key, undefined, []);
  const enter = () => gate?.enter({ client: undefined, signal: t.signal });
  const [first, second] = [enter(), enter()];
  assert.ok(first !== undefined && !(first instanceof Promise) && second instanceof Promise);
  first.release(0);
  (await second).release(0);
});
