/**
 * Limits at their edges, in processes of their own: both dialects, streamed and not, counted in memory and in Redis, with one process and
 * with two workers, over two gateways and over a restart.
 */
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { readdirSync, writeFileSync } from 'node:fs';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { type AddressInfo, connect, type Socket } from 'node:net';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { CANARY_KEY, KEY_MARK } from '../support/doors/canaries.ts';
import { eventually } from '../support/processes/eventually.ts';
import { freePort } from '../support/processes/foreign-programs.ts';
import { type Program, startProxyProcess } from '../support/processes/program.ts';
import { ask as askRedis, REDIS, type RedisServer, startRedis } from '../support/processes/redis-server.ts';
import { deploymentFlags, type Remote, startRemote } from '../support/remote/remote.ts';

const DIALECTS = { openai: '/v1/chat/completions', anthropic: '/v1/messages' } as const;
type Dialect = keyof typeof DIALECTS;
const WAYS = (['openai', 'anthropic'] as const).flatMap((dialect) =>
  [false, true].map((stream) => ({ dialect, stream, way: `${dialect}${stream ? '-streamed' : ''}` })),
);

const tokenOf = (name: string): string => `${KEY_MARK}token-of-${name}`;
const entryOf = (name: string, limits: object = {}) => ({
  name,
  tokens: [createHash('sha256').update(tokenOf(name)).digest('hex')],
  ...limits,
});

/** What the names of clients end with whose tokens of a day are counted. */
const DAYS = ['', '-next-day'] as const;

/** Every way has clients of its own, whose counts nobody else touches. */
const CLIENTS = [
  ...WAYS.flatMap(({ way }) => [
    entryOf(`minute-${way}`, { requestsPerMinute: 3 }),
    entryOf(`concurrent-${way}`, { maxConcurrent: 2 }),
    ...DAYS.flatMap((day) => [
      entryOf(`tokens-${way}${day}`, { tokensPerDay: 10 }),
      entryOf(`restart-minute-${way}${day}`, { requestsPerMinute: 3 }),
      entryOf(`restart-tokens-${way}${day}`, { tokensPerDay: 10 }),
    ]),
  ]),
  ...['abort', 'victim', 'killed', 'killed-early', 'exact', 'restart'].map((name) =>
    entryOf(name, { maxConcurrent: 1 }),
  ),
  entryOf('expired', { expires: '2020-01-01T00:00:00Z' }),
  entryOf('narrow', {
    expires: '2100-01-01T00:00:00Z',
    models: ['m', 'gpt-*'],
    endpoints: ['chat', 'messages'],
  }),
  entryOf('elsewhere', { endpoints: ['embeddings'] }),
  entryOf('models', { requestsPerMinute: 1 }),
  entryOf('flooder'),
];

/** What each response costs: 3 in, 2 out. */
const OPENAI_USAGE = { prompt_tokens: 3, completion_tokens: 2, total_tokens: 5 };

/** The model server. Requests whose model begins with `hold` wait until they are let go. */
async function startBackend() {
  /** The models that were asked for, in order of arrival. */
  const asked: string[] = [];
  const held: { readonly model: string; readonly go: () => void }[] = [];
  async function respond(req: IncomingMessage, res: ServerResponse): Promise<void> {
    let text = '';
    for await (const piece of req) text += piece;
    const { model, stream } = JSON.parse(text) as { model: string; stream?: boolean };
    const events = req.url === DIALECTS.openai ? openaiEvents(model) : anthropicEvents(model);
    asked.push(model);
    if (stream === true) {
      res.writeHead(200, { 'content-type': 'text/event-stream' });
      res.write(events[0]);
    }
    if (model.startsWith('hold')) await new Promise<void>((go) => held.push({ model, go }));
    if (stream === true) res.end(events.slice(1).join(''));
    else {
      res.writeHead(200, { 'content-type': 'application/json' });
      res.end(JSON.stringify(req.url === DIALECTS.openai ? openaiWhole(model) : anthropicWhole(model)));
    }
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

const openaiWhole = (model: string) => ({
  ...{ id: 'chatcmpl-1', object: 'chat.completion', created: 1, model, usage: OPENAI_USAGE },
  choices: [{ index: 0, message: { role: 'assistant', content: 'words' }, finish_reason: 'stop' }],
});
function openaiEvents(model: string): string[] {
  const chunk = (choices: object[], usage: object) =>
    `data: ${JSON.stringify({ id: 'chatcmpl-1', object: 'chat.completion.chunk', created: 1, model, choices, usage })}\n\n`;
  const usage = { prompt_tokens: 3, completion_tokens: 0, total_tokens: 3 };
  return [
    chunk([{ index: 0, delta: { role: 'assistant', content: '' }, finish_reason: null }], usage),
    chunk([{ index: 0, delta: { content: 'words' }, finish_reason: null }], usage),
    chunk([{ index: 0, delta: { content: '' }, finish_reason: 'stop' }], OPENAI_USAGE),
    chunk([], OPENAI_USAGE),
    'data: [DONE]\n\n',
  ];
}
const anthropicWhole = (model: string) => ({
  ...{ id: 'msg_1', type: 'message', role: 'assistant', model, stop_reason: 'end_turn' },
  content: [{ type: 'text', text: 'words' }],
  usage: { input_tokens: 3, output_tokens: 2 },
});
function anthropicEvents(model: string): string[] {
  const message = { ...anthropicWhole(model), content: [], stop_reason: null, stop_sequence: null };
  const events: { readonly type: string; readonly [member: string]: unknown }[] = [
    { type: 'message_start', message: { ...message, usage: { input_tokens: 3, output_tokens: 0 } } },
    { type: 'content_block_start', index: 0, content_block: { type: 'text', text: '' } },
    { type: 'content_block_delta', index: 0, delta: { type: 'text_delta', text: 'words' } },
    { type: 'content_block_stop', index: 0 },
    {
      type: 'message_delta',
      delta: { stop_reason: 'end_turn', stop_sequence: null },
      usage: { output_tokens: 2 },
    },
    { type: 'message_stop' },
  ];
  return events.map((event) => `event: ${event.type}\ndata: ${JSON.stringify(event)}\n\n`);
}

const DAY = 86_400_000;
const today = (): number => Math.floor(Date.now() / DAY);
const secondsOfToday = (): number => 86_400 - Math.floor((Date.now() % DAY) / 1000);

/** Where midnight (UTC) comes meanwhile, the tokens of the day start anew: then it is tried once more, with clients of the next day. */
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

/** A gateway in front of the simulator; a workspace that was used before has its counts. */
const startGateway = (workspace: string, flags: readonly string[]): Promise<Program> =>
  startProxyProcess([...deploymentFlags(remote.simulator.port, directory, workspace), ...flags], remote.env);
const teamFlags = (): string[] => [
  `--clients=${join(directory, 'clients.json')}`,
  ...[`--api-key=${CANARY_KEY}`, '--shutdown-grace=200ms'],
];

/** Where the counts are, and the workers of each gateway that counts there. */
const SETUPS: readonly {
  readonly store: 'memory' | 'Redis';
  readonly gateways: readonly number[];
}[] = [
  { store: 'memory', gateways: [1] },
  { store: 'memory', gateways: [2] },
  { store: 'Redis', gateways: [1] },
  { store: 'Redis', gateways: [2] },
  { store: 'Redis', gateways: [1, 2] },
];
const setupWords = ({ store, gateways }: (typeof SETUPS)[number]): string =>
  `${gateways.map((workers) => (workers === 1 ? 'one process' : 'two workers')).join(' beside ')}, counted in ${store}`;

for (const [number, setup] of SETUPS.entries()) {
  const { store, gateways } = setup;
  const options = { timeout: 120_000, skip: store === 'Redis' && REDIS.skip };
  describe(`limits with ${setupWords(setup)}`, options, () => {
    let proxies: Program[] = [];
    /** Each setup has a database of its own. */
    const database = (): string => `${redis.url}/${number}`;

    async function start(): Promise<void> {
      const flags = [
        ...[...teamFlags(), '--max-in-flight=4'],
        ...(store === 'Redis' ? [`--limits-store=${database()}`] : []),
      ];
      proxies = await Promise.all(
        gateways.map(async (workers, i) => {
          const port = workers === 1 ? 0 : await freePort(); // any port goes with the last worker that listens on it
          return startGateway(`workspace-${number}-${i}`, [
            ...flags,
            `--port=${port}`,
            `--workers=${workers}`,
          ]);
        }),
      );
    }
    async function stop(): Promise<void> {
      const codes = await Promise.all(proxies.map((proxy) => proxy.stop('SIGTERM')));
      assert.deepEqual(
        codes,
        gateways.map(() => 0),
      );
    }
    before(start);
    after(async () => {
      backend.letAllGo();
      await stop();
    });

    let asked = 0;
    /** The gateways take turns. */
    const nextUrl = (): string => (proxies[asked++ % proxies.length] as Program).url;

    /** Each on a connection of its own, so that both workers get some. */
    async function ask(
      name: string,
      {
        dialect = 'openai',
        stream = false,
        model = 'm',
        signal = AbortSignal.timeout(20_000),
      }: { dialect?: Dialect; stream?: boolean; model?: string; signal?: AbortSignal } = {},
    ) {
      const messages = [{ role: 'user', content: 'hello' }];
      const response = await fetch(`${nextUrl()}${DIALECTS[dialect]}`, {
        method: 'POST',
        headers: {
          authorization: `Bearer ${tokenOf(name)}`,
          'content-type': 'application/json',
          connection: 'close',
        },
        body: JSON.stringify({ model, stream, messages, ...(dialect === 'openai' ? {} : { max_tokens: 9 }) }),
        signal,
      });
      const text = await response.text();
      const retryAfter = Number(response.headers.get('retry-after'));
      return {
        status: response.status,
        text,
        retryAfter,
        error: response.headers.get('privatemode-proxy-error'),
      };
    }

    /** A refusal is in the dialect that was spoken. */
    function assertRefused(answer: Awaited<ReturnType<typeof ask>>, dialect: Dialect, code: string): void {
      assert.deepEqual([answer.status, answer.error], [429, code], answer.text);
      const body = JSON.parse(answer.text) as { type?: string; error: { type: string; code: string } };
      assert.deepEqual([body.error.type, body.error.code], ['rate_limit_error', code]);
      assert.equal(body.type, dialect === 'anthropic' ? 'error' : undefined);
    }

    /** Waits until that many requests of a client, of 5 tokens each, have ended and are counted; `here`: since the last start. */
    async function counted(name: string, times: number, here = times): Promise<void> {
      const lines = (): string[] => proxies.flatMap((proxy) => proxy.log().split('\n'));
      const isEnd = (line: string): boolean =>
        line.includes('Request ended') && line.includes(`client=${name} `);
      await eventually('a line at the end', () => lines().filter(isEnd).length === here);
      if (store === 'memory') return;
      // Another gateway may ask the store before it has the release.
      const key = `privatemode-proxy:{${name}}:tokens`;
      const tokens = String(5 * times);
      await eventually('the tokens', async () => (await askRedis(database(), 'GET', key)) === tokens, 5_000);
    }

    /** Asks until the place that was given back has come back: it travels through two processes. */
    async function admittedAgain(name: string): Promise<void> {
      await eventually('the place', async () => (await ask(name)).status === 200, 5_000);
    }

    for (const { dialect, stream, way } of WAYS) {
      it(`admits exactly three of eight at the same time, with three per minute (${way})`, async () => {
        const name = `minute-${way}`;
        const answers = await Promise.all(Array.from({ length: 8 }, () => ask(name, { dialect, stream })));
        const refused = answers.filter(({ status }) => status !== 200);
        assert.equal(refused.length, 5, JSON.stringify(answers));
        for (const answer of refused) {
          assertRefused(answer, dialect, 'requests_per_minute_reached');
          assert.ok(answer.retryAfter > 30 && answer.retryAfter <= 60, `${answer.retryAfter}`);
        }
      });

      it(`admits while fewer than 10 tokens are counted (${way})`, () =>
        withinOneDay(async (day) => {
          const name = `tokens-${way}${day}`;
          for (const times of [1, 2]) {
            const { status, text } = await ask(name, { dialect, stream });
            assert.equal(status, 200, text);
            assert.match(text, stream ? /data: \[DONE\]\n\n$|message_stop/ : /words/);
            await counted(name, times);
          }
          const answer = await ask(name, { dialect, stream });
          assertRefused(answer, dialect, 'tokens_per_day_reached');
          assert.ok(Math.abs(answer.retryAfter - secondsOfToday()) < 30, `${answer.retryAfter}`);
        }));

      it(`runs two at the same time, and the next when one is over (${way})`, async () => {
        const [name, model] = [`concurrent-${way}`, `hold-${way}`];
        const running = [1, 2].map(() => ask(name, { dialect, stream, model }));
        await eventually('two that run', () => backend.held(model) === 2);
        for (let i = 0; i < 4; i++) {
          const answer = await ask(name, { dialect, stream });
          assertRefused(answer, dialect, 'max_concurrent_reached');
          assert.equal(answer.retryAfter, 1);
        }
        backend.letGo(model);
        assert.equal((await Promise.race(running)).status, 200);
        await admittedAgain(name);
        backend.letGo(model);
        for (const { status } of await Promise.all(running)) assert.equal(status, 200);
      });
    }

    for (const { dialect, stream, way } of WAYS) {
      it(`refuses who has expired, and what is not for a client (${way})`, async () => {
        const arrived = backend.asked.length;
        for (const [name, model, status, code, type] of [
          ['expired', 'm', 401, 'client_unknown', 'authentication_error'],
          ['elsewhere', 'm', 403, 'client_forbidden', 'permission_error'],
          ['narrow', 'm2', 403, 'client_forbidden', 'permission_error'],
          ['narrow', 'gpt', 403, 'client_forbidden', 'permission_error'],
          ['narrow', 'gpt-', 200, null, undefined],
          ['narrow', 'm', 200, null, undefined],
        ] as const) {
          const answer = await ask(name, { dialect, stream, model });
          assert.deepEqual([answer.status, answer.error], [status, code], `${name} ${model} ${answer.text}`);
          if (type === undefined) continue;
          const body = JSON.parse(answer.text) as { type?: string; error: { type: string } };
          assert.equal(body.error.type, type);
          assert.equal(body.type, dialect === 'anthropic' ? 'error' : undefined);
        }
        assert.deepEqual(backend.asked.slice(arrived), ['gpt-', 'm']);
      });
    }

    it('counts the list of models', async () => {
      const models = () =>
        fetch(`${nextUrl()}/v1/models`, {
          headers: { authorization: `Bearer ${tokenOf('models')}`, connection: 'close' },
        });
      await (await models()).arrayBuffer();
      const second = await models();
      assert.deepEqual(
        [second.status, second.headers.get('privatemode-proxy-error')],
        [429, 'requests_per_minute_reached'],
      );
      await second.arrayBuffer();
    });

    it('gives the place back of a client that leaves', async () => {
      const leaving = new AbortController();
      const asking = ask('abort', { model: 'hold-abort', stream: true, signal: leaving.signal });
      await eventually('one that runs', () => backend.held('hold-abort') === 1);
      assert.equal((await ask('abort')).error, 'max_concurrent_reached');
      leaving.abort();
      await assert.rejects(asking, { name: 'AbortError' });
      await admittedAgain('abort');
      backend.letAllGo();
    });

    it('runs one at a time, however many ask at once', async () => {
      const answers = Array.from({ length: 10 }, () => ask('exact', { model: 'hold-exact' }));
      let refused = 0;
      for (const answer of answers) void answer.then(({ status }) => (refused += Number(status === 429)));
      await eventually('one that runs', () => refused === 9 && backend.held('hold-exact') === 1);
      backend.letAllGo();
      const statuses = (await Promise.all(answers)).map(({ status }) => status);
      assert.deepEqual(statuses.toSorted(), [200, ...Array.from({ length: 9 }, () => 429)]);
    });

    // --max-in-flight is that of one gateway.
    if (gateways.length === 1) {
      it('lets the victim of a flood be the next', async () => {
        const flood = Array.from({ length: 12 }, () => ask('flooder', { model: 'hold-flood' }));
        await eventually('one that runs', () => backend.held('hold-flood') === 4);
        for (let i = 0; i < 3; i++) {
          const arrived = backend.asked.length;
          // The victim may run one: where one of two is refused, the other waits.
          const pair = [1, 2].map(() => ask('victim', { model: 'hold-victim' }));
          assert.equal((await Promise.race(pair)).error, 'max_concurrent_reached');
          assert.equal(backend.asked.length, arrived, 'it did not wait');
          backend.letGo('hold-flood');
          await eventually('the next one', () => backend.asked.length > arrived);
          assert.equal(backend.asked[arrived], 'hold-victim');
          backend.letGo('hold-victim');
          const statuses = (await Promise.all(pair)).map(({ status }) => status);
          assert.deepEqual(statuses.toSorted(), [200, 429]);
          await eventually('the place of the victim', () => backend.held('hold-flood') === 4);
        }
        const done = Promise.all(flood);
        let isDone = false;
        void done.then(() => {
          isDone = true;
        });
        await eventually('the end of the flood', () => {
          backend.letAllGo();
          return isDone;
        });
        for (const { status } of await done) assert.equal(status, 200);
      });
    }

    for (const early of gateways.join() === '2' ? [false, true] : []) {
      it(`gives back what workers held that are killed${early ? ' while connections are handed to them' : ''}`, async () => {
        const name = early ? 'killed-early' : 'killed';
        const [proxy] = proxies as [Program];
        const asking = ask(name, { model: `hold-${name}` }).catch(() => undefined);
        await eventually('one that runs', () => backend.held(`hold-${name}`) === 1);
        assert.equal((await ask(name)).error, 'max_concurrent_reached');
        const handed: Socket[] = [];
        if (early) {
          const files = (): number => readdirSync(`/proc/${proxy.process.pid}/fd`).length;
          const before = files();
          for (const pid of proxy.children()) process.kill(pid, 'SIGSTOP');
          for (let i = 0; i < 4; i++) handed.push(connect(Number(new URL(proxy.url).port), '127.0.0.1'));
          for (const socket of handed) socket.on('error', () => {});
          await eventually('the connections', () => files() >= before + 4);
        }
        for (const pid of proxy.children()) process.kill(pid, 'SIGKILL');
        await asking;
        const isAdmitted = async (): Promise<boolean> => {
          const signal = AbortSignal.timeout(2_000); // one that a dying worker was handed is never answered
          return (await ask(name, { signal }).catch(() => ({ status: 0 }))).status === 200;
        };
        await eventually('its place', isAdmitted, 15_000);
        for (const socket of handed) socket.destroy();
        backend.letAllGo();
      });
    }

    it('goes on counting where it was after a restart, with the places free', () => withinOneDay(restarted));
    async function restarted(day: string): Promise<void> {
      const all = <T>(what: (way: (typeof WAYS)[number]) => Promise<T>): Promise<T[]> =>
        Promise.all(WAYS.map(what));
      await all(async ({ way, ...how }) => {
        const answers = [1, 2].map(() => ask(`restart-minute-${way}${day}`, how));
        for (const { status, text } of [
          ...(await Promise.all(answers)),
          await ask(`restart-tokens-${way}${day}`, how),
        ])
          assert.equal(status, 200, text);
        await counted(`restart-tokens-${way}${day}`, 1);
      });
      const cut = ask('restart', { model: 'hold-restart' }).catch(() => undefined);
      await eventually('one that runs', () => backend.held('hold-restart') === 1);
      assert.equal((await ask('restart')).error, 'max_concurrent_reached');

      await stop();
      await cut;
      backend.letAllGo();
      await start();

      assert.equal((await ask('restart')).status, 200);
      await all(async ({ way, ...how }) => {
        const answers = await Promise.all([1, 2, 3, 4].map(() => ask(`restart-minute-${way}${day}`, how)));
        const refused = answers.filter(({ status }) => status !== 200);
        assert.equal(refused.length, 3, JSON.stringify(answers));
        for (const answer of refused) {
          assertRefused(answer, how.dialect, 'requests_per_minute_reached');
          assert.ok(answer.retryAfter > 0 && answer.retryAfter <= 60, `${answer.retryAfter}`);
        }
        const name = `restart-tokens-${way}${day}`;
        const { status, text } = await ask(name, how);
        assert.equal(status, 200, text);
        await counted(name, 2, 1);
        assertRefused(await ask(name, how), how.dialect, 'tokens_per_day_reached');
      });
    }
  });
}

/** With the store away, each policy; `type` by dialect. */
const AWAY = [
  { policy: 'closed', workers: 1 },
  { policy: 'closed', workers: 2 },
  { policy: 'open', workers: 1 },
  { policy: 'open', workers: 2 },
] as const;

describe('a store of limits that is away', { timeout: 60_000, skip: REDIS.skip, concurrency: true }, () => {
  for (const { policy, workers } of AWAY) {
    it(`${policy === 'closed' ? '503 for each request' : '200 for each request, and a number of them'} (--workers=${workers})`, async (t) => {
      const store = await startRedis(t);
      const admin = `127.0.0.1:${await freePort()}`;
      const flags = [
        ...[...teamFlags(), `--limits-store=${store.url}`, `--limits-store-failure=${policy}`],
        ...[`--admin-address=${admin}`, '--port=0', `--workers=${workers}`],
      ];
      const proxy = await startGateway(`away-${policy}-${workers}`, flags);
      t.after(() => proxy.stop('SIGKILL'));
      const ask = async (dialect: Dialect, stream: boolean) => {
        const messages = [{ role: 'user', content: 'hello' }];
        const response = await fetch(proxy.url + DIALECTS[dialect], {
          method: 'POST',
          headers: { authorization: `Bearer ${tokenOf('models')}`, connection: 'close' },
          body: JSON.stringify({ model: 'm', max_tokens: 9, stream, messages }),
          signal: AbortSignal.timeout(20_000),
        });
        return { response, text: await response.text() };
      };
      const uncounted = async (): Promise<number> => {
        const text = await (await fetch(`http://${admin}/metrics`)).text();
        return Number(/^privatemode_proxy_limits_uncounted_total (\d+)$/m.exec(text)?.[1]);
      };
      assert.equal((await ask('openai', false)).response.status, 200);
      assert.equal((await ask('openai', false)).response.status, 429);
      assert.equal(await uncounted(), 0);

      await store.stop();
      for (const { dialect, stream } of WAYS) {
        const { response, text } = await ask(dialect, stream);
        if (policy === 'open') {
          assert.equal(response.status, 200, text);
          continue;
        }
        const told = ['retry-after', 'privatemode-proxy-error'].map((name) => response.headers.get(name));
        assert.deepEqual([response.status, ...told], [503, '2', 'limits_unavailable'], text);
        const body = JSON.parse(text) as { type?: string; error: { type: string; code: string } };
        assert.equal(body.error.code, 'limits_unavailable');
        assert.equal(body.error.type, dialect === 'anthropic' ? 'overloaded_error' : 'server_error');
        assert.equal(body.type, dialect === 'anthropic' ? 'error' : undefined);
      }
      assert.equal(await uncounted(), policy === 'open' ? 4 : 0);

      assert.match(
        proxy.log(),
        /cannot be used for now".*\bremedy=".*check the store of the limits \(--limits-store\)/,
      );
      await startRedis(t, { port: store.port });
      const isBack = (): boolean => proxy.log().includes('The store of the limits can be used again');
      await eventually('a connection', isBack);
      const { response } = await ask('anthropic', true);
      assert.equal(response.status, 200); // the new server knows of none before
      const second = await ask('anthropic', true);
      assert.equal(second.response.headers.get('privatemode-proxy-error'), 'requests_per_minute_reached');
      assert.equal(await uncounted(), policy === 'open' ? 4 : 0);
    });
  }
});

describe('--max-in-flight without --clients', { timeout: 60_000 }, () => {
  for (const workers of [1, 2]) {
    it(`lets further requests wait, in their order (--workers=${workers})`, async () => {
      const arrived = backend.asked.length;
      const proxy = await startGateway(`queue-${workers}`, [
        ...['--port=0', '--max-in-flight=1', `--workers=${workers}`, '--log-level=debug'],
      ]);
      try {
        const ask = async (model: string) => {
          const response = await fetch(`${proxy.url}/v1/chat/completions`, {
            method: 'POST',
            headers: { authorization: 'Bearer k', 'content-type': 'application/json', connection: 'close' },
            body: JSON.stringify({ model, messages: [{ role: 'user', content: 'hello' }] }),
          });
          await response.arrayBuffer();
          return response.status;
        };
        const queued = (): number => proxy.log().match(/stage=queued/g)?.length ?? 0;
        const answers = [ask('hold-1')];
        await eventually('one that runs', () => backend.held() === 1);
        answers.push(ask('hold-2'), ask('hold-2'));
        await eventually('three that wait', () => queued() === 3);
        for (const model of ['hold-1', 'hold-2', 'hold-2']) {
          await eventually('one that runs', () => backend.held() === 1);
          backend.letGo(model);
        }
        assert.deepEqual(await Promise.all(answers), [200, 200, 200]);
        assert.deepEqual(backend.asked.slice(arrived), ['hold-1', 'hold-2', 'hold-2']);
      } finally {
        backend.letAllGo();
        await proxy.stop('SIGTERM');
      }
    });
  }
});
