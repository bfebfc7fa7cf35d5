/**
 * The limits of clients in a whole gateway: counted in memory by one, and in Redis by two.
 * What is counted is in count-requests.test.ts and redis-counts.test.ts, restarts are there and in
 * count-log.test.ts, and what a refusal looks like is in refusals.test.ts.
 */
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
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
import { ask as askRedis, REDIS, type RedisServer, startRedis } from '../support/processes/redis-server.ts';
import { deploymentFlags, type Remote, startRemote } from '../support/remote/remote.ts';

const tokenOf = (name: string): string => `${KEY_MARK}token-of-${name}`;
const entryOf = (name: string, limits: object = {}) => ({
  name,
  tokens: [createHash('sha256').update(tokenOf(name)).digest('hex')],
  ...limits,
});

/** What the names of clients end with whose tokens of a day are counted. */
const DAYS = ['', '-next-day'] as const;

/** Every test has clients of its own, whose counts nobody else touches. */
const CLIENTS = [
  entryOf('minute', { requestsPerMinute: 3 }),
  entryOf('concurrent', { maxConcurrent: 2 }),
  ...DAYS.map((day) => entryOf(`tokens${day}`, { tokensPerDay: 10 })),
  ...['abort', 'victim'].map((name) => entryOf(name, { maxConcurrent: 1 })),
  entryOf('away', { requestsPerMinute: 1 }),
  entryOf('flooder'),
];

/** What each response costs: 3 in, 2 out. */
const USAGE = { prompt_tokens: 3, completion_tokens: 2, total_tokens: 5 };

/** The model server. Requests whose model begins with `hold` wait until they are let go. */
async function startBackend() {
  /** The models that were asked for, in order of arrival. */
  const asked: string[] = [];
  const held: { readonly model: string; readonly go: () => void }[] = [];
  async function respond(req: IncomingMessage, res: ServerResponse): Promise<void> {
    const { model } = JSON.parse(await text(req)) as { model: string };
    asked.push(model);
    if (model.startsWith('hold')) await new Promise<void>((go) => held.push({ model, go }));
    const message = { role: 'assistant', content: 'words' };
    const completion = {
      ...{ id: 'chatcmpl-1', object: 'chat.completion', created: 1, model, usage: USAGE },
      choices: [{ index: 0, message, finish_reason: 'stop' }],
    };
    res.writeHead(200, { 'content-type': 'application/json' });
    res.end(JSON.stringify(completion));
  }
  const server = createServer((req, res) => void respond(req, res).catch(() => res.destroy()));
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    asked,
    /** How many wait. */
    held: (model?: string): number =>
      held.filter((each) => model === undefined || each.model === model).length,
    /** Lets one go, the oldest of that model. */
    letGo(model: string): void {
      const i = held.findIndex((each) => each.model === model);
      held.splice(i, 1)[0]?.go();
    },
    letAllGo(): void {
      for (const { go } of held.splice(0)) go();
    },
    close(): Promise<void> {
      server.closeAllConnections();
      return new Promise((resolve) => server.close(() => resolve()));
    },
  };
}

interface Answer {
  /** The status, and the code of what the proxy refuses. */
  readonly told: string;
  readonly retryAfter: number;
}

/** A chat of that client. */
async function chat(
  url: string,
  name: string,
  { model = 'm', signal = AbortSignal.timeout(20_000) }: { model?: string; signal?: AbortSignal } = {},
): Promise<Answer> {
  const response = await askChat({ url }, { model, token: tokenOf(name), signal });
  await response.arrayBuffer();
  const { status, headers } = response;
  return {
    told: `${status} ${headers.get('privatemode-proxy-error') ?? ''}`.trim(),
    retryAfter: Number(headers.get('retry-after')),
  };
}

const toldOf = async (answers: readonly Promise<Answer>[]): Promise<string[]> =>
  (await Promise.all(answers)).map(({ told }) => told).toSorted();

const DAY = 86_400_000;
const today = (): number => Math.floor(Date.now() / DAY);
const secondsOfToday = (): number => 86_400 - Math.floor((Date.now() % DAY) / 1000);

/**
 * Where midnight (UTC) comes meanwhile, the tokens of the day start anew: then it is tried once more, with
 * clients of the next day.
 */
async function withinOneDay(attempt: (day: string) => Promise<void>): Promise<void> {
  const [begun, failure] = [today(), await attempt(DAYS[0]).catch((thrown: unknown) => ({ thrown }))];
  if (today() !== begun) await attempt(DAYS[1]);
  else if (failure !== undefined) throw failure.thrown;
}

/** What all tests share; begun once, ended after the last. */
const shared = new AsyncDisposableStack();
const untilTheEnd = { after: (end?: unknown) => shared.defer(end as () => Promise<void>) };
let directory: string;
let remote: Remote;
let backend: Awaited<ReturnType<typeof startBackend>>;
let redis: RedisServer;

before(async () => {
  backend = await startBackend();
  shared.defer(() => backend.close());
  remote = await startRemote({ apiKey: null, backend: backend.url });
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

interface Gateway {
  readonly url: string;
  readonly log: () => string;
  readonly stop: () => Promise<void>;
}

/** A gateway in front of the simulator, in this process. */
async function startHere(workspace: string, flags: readonly string[]): Promise<Gateway> {
  const lines: string[] = [];
  const log = createLogger({ format: 'text', level: 30, output: { write: (line) => lines.push(line) } });
  const place = deploymentFlags(remote.simulator.port, directory, workspace);
  const { config } = parseConfig([...place, '--port=0', ...flags], {});
  const proxy = await startProxy(config, { env: remote.env, log });
  return {
    url: proxy.url,
    log: () => lines.join(''),
    stop: () => proxy.close(),
  };
}

/** Where the counts are, and the gateways that count there. */
const SETUPS: readonly {
  readonly what: string;
  readonly store: 'memory' | 'Redis';
  readonly start: (flags: readonly string[]) => Promise<readonly Gateway[]>;
}[] = [
  {
    what: 'one gateway, counted in memory',
    store: 'memory',
    start: async (flags) => [await startHere('alone', flags)],
  },
  {
    what: 'two gateways, counted in Redis',
    store: 'Redis',
    start: (flags) =>
      Promise.all(['one', 'two'].map((name) => startHere(name, [...flags, `--limits-store=${redis.url}`]))),
  },
];

for (const { what, store, start } of SETUPS) {
  const options = { timeout: 600_000, skip: store === 'Redis' && REDIS.skip };
  describe(`a gateway with clients (${what})`, options, () => {
    let proxies: readonly Gateway[] = [];
    before(async () => {
      proxies = await start([...teamFlags(), '--max-in-flight=4']);
    });
    after(async () => {
      backend.letAllGo();
      await Promise.all(proxies.map((proxy) => proxy.stop()));
    });

    let asked = 0;
    /** The gateways take turns. */
    const ask = (name: string, how: Parameters<typeof chat>[2] = {}): Promise<Answer> =>
      chat((proxies[asked++ % proxies.length] as Gateway).url, name, how);

    /** Waits until that many requests of a client, of 5 tokens each, have ended and are counted. */
    async function counted(name: string, times: number): Promise<void> {
      const lines = (): string[] => proxies.flatMap((proxy) => proxy.log().split('\n'));
      const isEnd = (line: string): boolean =>
        line.includes('Request ended') && line.includes(`client=${name} `);
      await eventually('a line at the end', () => lines().filter(isEnd).length === times);
      if (store === 'memory') return;
      // Another gateway may ask the store before it has the release.
      const key = `privatemode-proxy:{${name}}:tokens`;
      const tokens = String(5 * times);
      await eventually('the tokens', async () => (await askRedis(redis.url, 'GET', key)) === tokens, 15_000);
    }

    /** Asks until the place that was given back has come back. */
    async function admittedAgain(name: string): Promise<void> {
      await eventually('the place', async () => (await ask(name)).told === '200', 15_000);
    }

    it('admits exactly three of eight requests at once with requestsPerMinute 3', async () => {
      const answers = await Promise.all(Array.from({ length: 8 }, () => ask('minute')));
      const refused = answers.filter(({ told }) => told !== '200');
      assert.equal(refused.length, 5, JSON.stringify(answers));
      for (const { told, retryAfter } of refused) {
        assert.equal(told, '429 requests_per_minute_reached');
        assert.ok(retryAfter > 30 && retryAfter <= 60, `${retryAfter}`);
      }
    });

    it('admits requests of 5 tokens until 10 are counted with tokensPerDay 10', () =>
      withinOneDay(async (day) => {
        const name = `tokens${day}`;
        for (const times of [1, 2]) {
          assert.equal((await ask(name)).told, '200');
          await counted(name, times);
        }
        const { told, retryAfter } = await ask(name);
        assert.equal(told, '429 tokens_per_day_reached');
        assert.ok(Math.abs(retryAfter - secondsOfToday()) < 30, `${retryAfter}`);
      }));

    it('runs exactly two of ten requests at once with maxConcurrent 2, and the next when one is over', async () => {
      const model = 'hold-concurrent';
      const refused: Answer[] = [];
      const answers = Array.from({ length: 10 }, () => ask('concurrent', { model }));
      for (const answer of answers) void answer.then((each) => each.told !== '200' && refused.push(each));
      await eventually('two that run', () => refused.length === 8 && backend.held(model) === 2);
      for (const answer of refused)
        assert.deepEqual(answer, { told: '429 max_concurrent_reached', retryAfter: 1 });
      backend.letGo(model);
      await admittedAgain('concurrent');
      backend.letGo(model);
      const admitted = (await toldOf(answers)).filter((told) => told === '200');
      assert.equal(admitted.length, 2);
    });

    it('frees the place of a client that leaves', async () => {
      const leaving = new AbortController();
      const asking = ask('abort', { model: 'hold-abort', signal: leaving.signal });
      await eventually('one that runs', () => backend.held('hold-abort') === 1);
      assert.equal((await ask('abort')).told, '429 max_concurrent_reached');
      leaving.abort();
      await assert.rejects(asking, { name: 'AbortError' });
      await admittedAgain('abort');
      backend.letAllGo();
    });

    // --max-in-flight is that of one gateway.
    if (store === 'memory') {
      it('gives the next place of --max-in-flight to a client other than the one whose requests fill it', async () => {
        const flood = Array.from({ length: 12 }, () => ask('flooder', { model: 'hold-flood' }));
        await eventually('four that run', () => backend.held('hold-flood') === 4);
        for (let i = 0; i < 3; i++) {
          const arrived = backend.asked.length;
          // The victim may run one: where one of two is refused, the other waits.
          const pair = [1, 2].map(() => ask('victim', { model: 'hold-victim' }));
          assert.equal((await Promise.race(pair)).told, '429 max_concurrent_reached');
          assert.equal(backend.asked.length, arrived, 'it did not wait');
          backend.letGo('hold-flood');
          await eventually('the next one', () => backend.asked.length > arrived);
          assert.equal(backend.asked[arrived], 'hold-victim');
          backend.letGo('hold-victim');
          assert.deepEqual(await toldOf(pair), ['200', '429 max_concurrent_reached']);
          await eventually('the place of the victim', () => backend.held('hold-flood') === 4);
        }
        const done = toldOf(flood);
        let isDone = false;
        void done.then(() => {
          isDone = true;
        });
        await eventually('the end of the flood', () => {
          backend.letAllGo();
          return isDone;
        });
        assert.deepEqual(new Set(await done), new Set(['200']));
      });
    }
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
  const notices = createNotices({ log, clock: systemClock });
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
