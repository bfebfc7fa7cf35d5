/** Limits at their edges, in processes of their own: both dialects, streamed and not, with one and with two workers. */
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { type Simulator, startSimulator } from '../../simulator/simulator.ts';
import { CANARY_KEY, KEY_MARK } from '../support/canaries.ts';
import { freePort } from '../support/foreign-programs.ts';
import { type ProxyProcess, startProxyProcess } from '../support/proxy-process.ts';
import { sharedHardware } from '../support/stack.ts';

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

/** Every way has clients of its own, whose counts nobody else touches. */
const CLIENTS = [
  ...WAYS.flatMap(({ way }) => [
    entryOf(`minute-${way}`, { requestsPerMinute: 3 }),
    entryOf(`tokens-${way}`, { tokensPerDay: 10 }),
    entryOf(`concurrent-${way}`, { maxConcurrent: 2 }),
  ]),
  ...['abort', 'victim', 'killed', 'exact'].map((name) => entryOf(name, { maxConcurrent: 1 })),
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

async function until(condition: () => boolean, words: string, ms = 10_000): Promise<void> {
  const deadline = Date.now() + ms;
  while (!condition()) {
    assert.ok(Date.now() < deadline, words);
    await delay(5);
  }
}

const secondsOfToday = (): number => 86_400 - Math.floor((Date.now() % 86_400_000) / 1000);

for (const workers of [1, 2]) {
  describe(`limits with ${workers === 1 ? 'one process' : 'two workers'}`, { timeout: 120_000 }, () => {
    let directory: string;
    let simulator: Simulator;
    let backend: Awaited<ReturnType<typeof startBackend>>;
    let proxy: ProxyProcess;

    before(async () => {
      directory = mkdtempSync(join(tmpdir(), 'privatemode-limits-'));
      backend = await startBackend();
      simulator = await startSimulator({
        directory,
        hardware: await sharedHardware(),
        backend: backend.url,
      });
      writeFileSync(join(directory, 'clients.json'), JSON.stringify({ clients: CLIENTS }));
      const port = workers === 1 ? 0 : await freePort(); // any port goes with the last worker that listens on it
      const flags = [
        `--clients=${join(directory, 'clients.json')}`,
        `--api-key=${CANARY_KEY}`,
        `--api-endpoint=localhost:${simulator.port}`,
        `--manifest-path=${join(directory, 'manifest.json')}`,
        `--unsafe-trust-roots=${join(directory, 'roots')}`,
        `--workspace=${join(directory, 'workspace')}`,
        ...['--listen-address=127.0.0.1', `--port=${port}`, '--max-in-flight=4', `--workers=${workers}`],
      ];
      proxy = await startProxyProcess(flags, { SSL_CERT_FILE: join(directory, 'ca.pem') });
      if (secondsOfToday() < 60) await delay(61_000); // or the tokens of the day would start anew amid the tests
    });
    after(async () => {
      backend.letAllGo();
      assert.equal(await proxy.stop('SIGTERM'), 0);
      await simulator.close();
      await backend.close();
      rmSync(directory, { recursive: true, force: true });
    });

    /** Each on a connection of its own, so that both workers get some. */
    async function ask(
      name: string,
      {
        dialect = 'openai',
        stream = false,
        model = 'm',
        signal,
      }: { dialect?: Dialect; stream?: boolean; model?: string; signal?: AbortSignal } = {},
    ) {
      const messages = [{ role: 'user', content: 'hello' }];
      const response = await fetch(`${proxy.url}${DIALECTS[dialect]}`, {
        method: 'POST',
        headers: {
          authorization: `Bearer ${tokenOf(name)}`,
          'content-type': 'application/json',
          connection: 'close',
        },
        body: JSON.stringify({ model, stream, messages, ...(dialect === 'openai' ? {} : { max_tokens: 9 }) }),
        ...(signal === undefined ? {} : { signal }),
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

    /** Requests of that client which have ended, and whose tokens are counted. */
    const ended = (name: string): number =>
      proxy
        .log()
        .split('\n')
        .filter((line) => line.includes('Request ended') && line.includes(`client=${name} `)).length;

    /** Asks until the place that was given back has come back: it travels through two processes. */
    async function admittedAgain(name: string): Promise<void> {
      const deadline = Date.now() + 5_000;
      for (;;) {
        const { status, text } = await ask(name);
        if (status === 200) return;
        assert.ok(Date.now() < deadline, text);
        await delay(10);
      }
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

      it(`admits while fewer than 10 tokens are counted (${way})`, async () => {
        const name = `tokens-${way}`;
        for (const times of [1, 2]) {
          const { status, text } = await ask(name, { dialect, stream });
          assert.equal(status, 200, text);
          assert.match(text, stream ? /data: \[DONE\]\n\n$|message_stop/ : /words/);
          await until(() => ended(name) === times, 'no line at the end');
        }
        const answer = await ask(name, { dialect, stream });
        assertRefused(answer, dialect, 'tokens_per_day_reached');
        assert.ok(Math.abs(answer.retryAfter - secondsOfToday()) < 30, `${answer.retryAfter}`);
      });

      it(`runs two at the same time, and the next when one is over (${way})`, async () => {
        const [name, model] = [`concurrent-${way}`, `hold-${way}`];
        const running = [1, 2].map(() => ask(name, { dialect, stream, model }));
        await until(() => backend.held(model) === 2, 'they do not run');
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

    it('counts the list of models', async () => {
      const models = () =>
        fetch(`${proxy.url}/v1/models`, {
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
      await until(() => backend.held('hold-abort') === 1, 'it does not run');
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
      await until(
        () => refused === 9 && backend.held('hold-exact') === 1,
        'not one runs, and nine are refused',
      );
      backend.letAllGo();
      const statuses = (await Promise.all(answers)).map(({ status }) => status);
      assert.deepEqual(statuses.toSorted(), [200, ...Array.from({ length: 9 }, () => 429)]);
    });

    it('lets the victim of a flood be the next', async () => {
      const flood = Array.from({ length: 12 }, () => ask('flooder', { model: 'hold-flood' }));
      await until(() => backend.held('hold-flood') === 4, 'it does not run');
      for (let i = 0; i < 3; i++) {
        const arrived = backend.asked.length;
        // The victim may run one: where one of two is refused, the other waits.
        const pair = [1, 2].map(() => ask('victim', { model: 'hold-victim' }));
        assert.equal((await Promise.race(pair)).error, 'max_concurrent_reached');
        assert.equal(backend.asked.length, arrived, 'it did not wait');
        backend.letGo('hold-flood');
        await until(() => backend.asked.length > arrived, 'nobody is next');
        assert.equal(backend.asked[arrived], 'hold-victim');
        backend.letGo('hold-victim');
        const statuses = (await Promise.all(pair)).map(({ status }) => status);
        assert.deepEqual(statuses.toSorted(), [200, 429]);
        await until(() => backend.held('hold-flood') === 4, 'the place of the victim stays empty');
      }
      const done = Promise.all(flood);
      let isDone = false;
      void done.then(() => {
        isDone = true;
      });
      await until(() => {
        backend.letAllGo();
        return isDone;
      }, 'the flood does not end');
      for (const { status } of await done) assert.equal(status, 200);
    });

    if (workers > 1) {
      it('gives back what a worker held that is killed', async () => {
        const asking = ask('killed', { model: 'hold-killed' }).catch(() => undefined);
        await until(() => backend.held('hold-killed') === 1, 'it does not run');
        assert.equal((await ask('killed')).error, 'max_concurrent_reached');
        for (const pid of proxy.children()) process.kill(pid, 'SIGKILL');
        await asking;
        const deadline = Date.now() + 15_000;
        for (let status = 0; status !== 200; ) {
          assert.ok(Date.now() < deadline, 'its place never came back');
          status = (await ask('killed').catch(() => ({ status: 0 }))).status;
          await delay(50);
        }
        backend.letAllGo();
      });
    }
  });
}

describe('--max-in-flight without --clients', { timeout: 60_000 }, () => {
  for (const workers of [1, 2]) {
    it(`lets further requests wait, in their order (--workers=${workers})`, async () => {
      const directory = mkdtempSync(join(tmpdir(), 'privatemode-limits-'));
      const backend = await startBackend();
      const simulator = await startSimulator({
        directory,
        hardware: await sharedHardware(),
        backend: backend.url,
      });
      const flags = [
        `--api-endpoint=localhost:${simulator.port}`,
        `--manifest-path=${join(directory, 'manifest.json')}`,
        `--unsafe-trust-roots=${join(directory, 'roots')}`,
        `--workspace=${join(directory, 'workspace')}`,
        ...['--listen-address=127.0.0.1', '--port=0', '--max-in-flight=1', `--workers=${workers}`],
        '--log-level=debug',
      ];
      const proxy = await startProxyProcess(flags, { SSL_CERT_FILE: join(directory, 'ca.pem') });
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
        await until(() => backend.held() === 1, 'it does not run');
        answers.push(ask('hold-2'), ask('hold-2'));
        await until(() => queued() === 3, 'they did not come');
        for (const model of ['hold-1', 'hold-2', 'hold-2']) {
          await until(() => backend.held() === 1, 'nobody runs');
          backend.letGo(model);
        }
        assert.deepEqual(await Promise.all(answers), [200, 200, 200]);
        assert.deepEqual(backend.asked, ['hold-1', 'hold-2', 'hold-2']);
      } finally {
        backend.letAllGo();
        await proxy.stop('SIGTERM');
        await simulator.close();
        await backend.close();
        rmSync(directory, { recursive: true, force: true });
      }
    });
  }
});
