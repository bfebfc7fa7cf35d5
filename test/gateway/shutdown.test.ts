/**
 * SIGTERM, in the gateway, its listener and the program: streams may finish, what is left then is told in its
 * client's words.
 */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { closeSync, constants, mkdirSync, openSync, readdirSync, readFileSync } from 'node:fs';
import { type AddressInfo, createServer, type Socket } from 'node:net';
import { dirname, join } from 'node:path';
import { after, before, describe, it, type TestContext } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { systemClock } from '../../lib/clock.ts';
import { listen } from '../../lib/listener/listen.ts';
import type { RequestReceipt } from '../../lib/receipts/receipt.ts';
import type { Times } from '../../lib/times.ts';
import { fakeSession } from '../support/doors/gateway.ts';
import {
  answerTo,
  assertError,
  chatBody,
  type Fixture,
  gatewayFixture,
  get,
  post,
} from '../support/doors/gateway-fixture.ts';
import { type RawClient, rawClient } from '../support/doors/raw-client.ts';
import { eventually } from '../support/processes/eventually.ts';
import { type Program, startProxyProcess } from '../support/processes/program.ts';
import { deploymentFlags, type Remote, startRemote } from '../support/remote/remote.ts';
import type { Script } from '../support/remote/scripted-upstream.ts';
import {
  COMPLETION,
  chunked,
  completion,
  DONE,
  http,
  LAST_CHUNK,
  plainError,
  STREAM_HEAD,
  sealedAnswers,
} from '../support/remote/sealed-answers.ts';

const STREAMING = chatBody({ stream: true });

/** Begins an answer, and ends it when `go` resolves. */
const inTwoParts =
  (go: Promise<unknown>): Script =>
  async (scripted) => {
    const sealed = sealedAnswers(await scripted.body());
    await scripted.write(STREAM_HEAD + chunked(sealed.chunk('hel')));
    await go;
    await scripted.write(chunked(sealed.chunk('lo', 'stop')) + chunked(DONE) + LAST_CHUNK);
  };

const never = new Promise<never>(() => {});

/** Resolves to how long the drain took, in ms. */
async function drained(gateway: Fixture['gateway'], grace: number): Promise<number> {
  const begun = performance.now();
  await gateway.drain(grace);
  return performance.now() - begun;
}

/** A grace period so long that no load on the machine is taken for it. */
const GRACE = { ms: 60_000, flag: '60s' };

/** ms for what does not wait for that. */
const WITHOUT_IT = 30_000;

describe('shutdown', () => {
  it('lets a stream finish, and then ends its keep-alive connection at once', async (t) => {
    const { upstream, gateway, sending } = await gatewayFixture(t);
    const go = Promise.withResolvers<void>();
    upstream.on(inTwoParts(go.promise));
    const asking = sending(post(STREAMING));
    await asking.until(/"hel"/);
    const draining = drained(gateway, GRACE.ms);
    await delay(100); // the stream could be cut off meanwhile
    go.resolve();
    assert.ok((await draining) < WITHOUT_IT, 'the grace period was waited for');
    const answer = await answerTo(asking);
    assert.ok(answer.complete && answer.body.endsWith(DONE));
    assert.equal(answer.headers['connection'], 'keep-alive');
    assert.equal(await asking.ended, 'end');
  });

  it('lets a whole response finish, which has Connection: close', async (t) => {
    const { upstream, gateway, sending } = await gatewayFixture(t);
    const asked = Promise.withResolvers<void>();
    const go = Promise.withResolvers<void>();
    upstream.on(async (scripted) => {
      const body = await scripted.body();
      asked.resolve();
      await go.promise;
      await scripted.write(completion(body));
    });
    const asking = sending(post());
    await asked.promise;
    const draining = drained(gateway, GRACE.ms);
    go.resolve();
    const answer = await answerTo(asking);
    assert.deepEqual([answer.status, answer.headers['connection']], [200, 'close']);
    assert.ok((await draining) < WITHOUT_IT);
  });

  it('lets the rest of a whole response reach a slow reader', async (t) => {
    const { upstream, gateway, client } = await gatewayFixture(t);
    upstream.on(async (scripted) => {
      const message = { role: 'assistant', content: 'x'.repeat(12_000_000) };
      const choices = [{ index: 0, message, finish_reason: 'stop' }];
      const answer = sealedAnswers(await scripted.body()).object({ ...COMPLETION, choices });
      await scripted.write(http(200, answer, { 'Content-Type': 'application/json' }));
    });
    const asking = client();
    asking.socket.pause();
    asking.send(post());
    await eventually('the answer', () => gateway.logLines.join('').includes('"stage":"done"'));
    const draining = drained(gateway, GRACE.ms);
    await delay(300); // what is ended could be cut off meanwhile
    asking.socket.resume();
    const { status, complete } = await answerTo(asking, 60_000);
    assert.deepEqual([status, complete], [200, true], 'the rest was cut off');
    assert.ok((await draining) < WITHOUT_IT);
  });

  it('lets a running stream reach a slow reader', async (t) => {
    const { upstream, gateway, sending } = await gatewayFixture(t);
    upstream.on(async (scripted) => {
      const sealed = sealedAnswers(await scripted.body());
      scripted.write(STREAM_HEAD);
      for (let i = 0; i < 100; i++) await scripted.write(chunked(sealed.chunk('x'.repeat(65_536))));
      await scripted.write(chunked(sealed.chunk('end', 'stop')) + chunked(DONE) + LAST_CHUNK);
    });
    const asking = sending(post(STREAMING));
    await asking.until(/\r\n\r\n/);
    asking.socket.pause();
    const draining = drained(gateway, GRACE.ms);
    await delay(400); // what goes on could be cut off meanwhile
    asking.socket.resume();
    assert.ok((await answerTo(asking, 60_000)).complete);
    assert.ok((await draining) < WITHOUT_IT);
  });

  it('ends idle connections at once', async (t) => {
    const { gateway, sending } = await gatewayFixture(t);
    const idle = sending(get('/healthz'));
    await idle.until(/200 OK/);
    assert.ok((await drained(gateway, GRACE.ms)) < WITHOUT_IT);
    assert.equal(await idle.ended, 'end');
  });

  it('refuses new connections', async (t) => {
    const { upstream, gateway, sending } = await gatewayFixture(t);
    const go = Promise.withResolvers<void>();
    upstream.on(inTwoParts(go.promise));
    const asking = sending(post(STREAMING));
    await asking.until(/"hel"/);
    const draining = drained(gateway, GRACE.ms);
    const late = rawClient(gateway.port);
    assert.equal(await late.ended, 'ECONNREFUSED');
    go.resolve();
    await draining;
  });

  for (const [style, path, event, told] of [
    ['OpenAI', '/v1/chat/completions', ':\n\n', /\n\ndata: \{"error":\{.*"code":"shutting_down"\}\}\n\n$/],
    [
      'Anthropic',
      '/v1/messages',
      'event: ping\ndata: {"type":"ping"}\n\n',
      /event: error\ndata: \{"type":"error","error":\{"type":"overloaded_error",.*"code":"shutting_down"\}.*\n\n$/,
    ],
  ] as const) {
    it(`ends a stream that outlasts --shutdown-grace with the error shutting_down, in the ${style} style`, async (t) => {
      const { upstream, gateway, sending } = await gatewayFixture(t, {
        answers: STREAM_HEAD + chunked(event),
      });
      const asking = sending(post(chatBody({ stream: true, max_tokens: 9 }), { path }));
      await asking.until(/ping"\}|\r\n:\n\n/);
      const took = await drained(gateway, 300);
      assert.ok(took > 250 && took < WITHOUT_IT, `${took} ms`);
      const { complete, body } = await answerTo(asking);
      assert.equal(complete, false);
      assert.match(body, told);
      assert.equal(upstream.connections.open, 0);
    });
  }

  const unverified = fakeSession({
    acquire: ({ signal }) =>
      new Promise((_, reject) =>
        signal?.addEventListener('abort', () => reject(signal.reason), { once: true }),
      ),
  });
  const waiting: [
    name: string,
    options: Parameters<typeof gatewayFixture>[1],
    connections: number,
    request: Buffer,
  ][] = [
    ['waits for its response', {}, 1, post()],
    [
      'has received a part of a whole response',
      { answers: (request) => completion(request).slice(0, -20) },
      ...([1, post()] as const),
    ],
    [
      'has received a part of an encrypted error',
      { answers: (request) => http(400, sealedAnswers(request).object({ error: {} })).slice(0, -5) },
      ...([1, post()] as const),
    ],
    ['is still being uploaded', {}, 0, post(chatBody(), { headers: ['Content-Length: 100000'] })],
    ['waits for the remote to be verified', { session: unverified }, 0, post()],
    [
      'waits for a new secret',
      {
        answers: plainError(500, 'no secret for ID "x"'),
        session: fakeSession({ renewAfterRejection: () => never }),
      },
      ...([1, post()] as const),
    ],
  ];
  for (const [name, options, connections, request] of waiting) {
    it(`gives 503 to a request that ${name}`, async (t) => {
      const { upstream, gateway, sending } = await gatewayFixture(t, options);
      const asking = sending(request);
      await eventually('the request', () => gateway.active() === 1);
      await eventually('its connection', () => upstream.connections.total === connections);
      await delay(150); // until it is where its name says, which nothing tells for all of them
      await gateway.drain(100);
      assert.equal(upstream.connections.total, connections);
      const answer = await answerTo(asking);
      assertError(answer, 503, 'shutting_down');
      assert.equal(answer.headers['retry-after'], '2');
      assert.equal(answer.headers['connection'], 'close');
    });
  }

  it('is not blocked by a client that does not read the end of its stream', async (t) => {
    const { upstream, gateway, sending } = await gatewayFixture(t);
    let written = 0;
    upstream.on(async (scripted) => {
      const sealed = sealedAnswers(await scripted.body());
      scripted.write(STREAM_HEAD);
      for (; ; written++) await scripted.write(chunked(sealed.chunk('x'.repeat(65_536))));
    });
    const asking = sending(post(STREAMING));
    await asking.until(/\r\n\r\n/);
    asking.socket.pause();
    // until all buffers are full
    for (let before = -1; before !== written; await delay(300)) before = written;
    const took = await drained(gateway, 100);
    assert.ok(took > 1_500 && took < WITHOUT_IT, `${took} ms`);
  });
});

it('shutdown waits for the receipt of a request whose client left while the response arrived', async (t) => {
  const receipts: RequestReceipt[] = [];
  const { upstream, gateway, sending } = await gatewayFixture(t, {
    deps: { receipts: { instance: 'abcdefghijkl', add: (receipt) => receipts.push(receipt) } },
  });
  const begun = Promise.withResolvers<void>();
  upstream.on(async (scripted) => {
    await scripted.body();
    const headers = 'Content-Type: application/json\r\nPrivatemode-Encrypted: true\r\nContent-Length: 1000';
    await scripted.write(`HTTP/1.1 200 OK\r\n${headers}\r\n\r\n{"`);
    begun.resolve();
  });
  const asking = sending(post());
  await begun.promise;
  const draining = gateway.drain(5_000);
  asking.socket.destroy();
  await draining;
  assert.deepEqual(
    receipts.map(({ outcome }) => outcome),
    ['aborted'],
  );
});

const REQUEST = get('/');

/** A listener without a gateway, and connections that it has accepted. */
async function listening(t: TestContext) {
  const options = { listenAddress: '127.0.0.1', port: 0, tls: undefined, fd: undefined, clock: systemClock };
  const listener = await listen(options, (_, res) => res.end('answered'));
  t.after(() => listener.destroy());
  const accepted = new Set<unknown>();
  const seen = (message: unknown): void => {
    accepted.add((message as { readonly socket: Socket }).socket);
  };
  subscribe('net.server.socket', seen);
  t.after(() => unsubscribe('net.server.socket', seen));
  const client = async (): Promise<RawClient> => {
    const before = accepted.size;
    const opened = rawClient(listener.port);
    t.after(() => opened.socket.destroy());
    await eventually('the connection to be accepted', () => accepted.size > before);
    return opened;
  };
  return { listener, client };
}

describe('a listener that is drained', { timeout: 600_000 }, () => {
  it('answers the first request on a connection that was open before, and ends that connection', async (t) => {
    const { listener, client } = await listening(t);
    const asking = await client();
    const drained = listener.drain();
    await new Promise((turn) => setImmediate(turn));
    asking.send(REQUEST);
    await asking.ended;
    assert.match(asking.received(), /200 OK[\s\S]*connection: close[\s\S]*answered$/i);
    await drained;
  });

  it('waits about a second for the first request on a connection that was open before', async (t) => {
    const { listener, client } = await listening(t);
    const asking = await client();
    const start = performance.now();
    await listener.drain();
    await asking.ended;
    const waited = performance.now() - start;
    assert.ok(waited >= 900 && waited < 9_000, `${waited} ms`);
  });

  it('does not wait for a connection that is idle after a response', async (t) => {
    const { listener, client } = await listening(t);
    const ends: string[] = [];
    const silent = await client(); // is waited for
    const asking = await client();
    asking.send(REQUEST);
    await asking.until(/answered/);
    const ended = Promise.all([
      silent.ended.then(() => ends.push('without a request')),
      asking.ended.then(() => ends.push('after a response')),
    ]);
    await listener.drain();
    await ended;
    assert.deepEqual(ends, ['after a response', 'without a request']);
  });
});

describe('shutdown of the program', { concurrency: true, timeout: 600_000 }, () => {
  let remote: Remote;
  before(async () => {
    remote = await startRemote();
  });
  after(() => remote.close());

  /** The program, and a stream of it that takes its time. */
  async function streaming(
    grace: string,
    model: string,
    more: readonly string[] = [],
  ): Promise<{ proxy: Program; client: RawClient }> {
    const workspace = join(remote.directory, `workspace-${model}${more.join('')}`);
    const own = [`--workspace=${workspace}`, `--shutdown-grace=${grace}`, ...more];
    const proxy = await startProxyProcess([...remote.flags, '--port=0', ...own], remote.env);
    const client = rawClient(Number(new URL(proxy.url).port));
    const messages = [{ role: 'user', content: 'x' }];
    client.send(post(JSON.stringify({ model, stream: true, messages })));
    await client.until(/t1/, 15_000);
    return { proxy, client };
  }

  it('lets a stream finish after SIGTERM, and exits with 0', async () => {
    const { proxy, client } = await streaming(GRACE.flag, 'sim-20x50');
    const begun = performance.now();
    const code = await proxy.stop('SIGTERM');
    assert.equal(code, 0, proxy.log());
    assert.ok(performance.now() - begun < WITHOUT_IT, 'the grace period was waited for');
    const answer = await answerTo(client);
    assert.ok(answer.complete && answer.body.endsWith('data: [DONE]\n\n'));
    assert.match(
      proxy.log(),
      /msg="Shutting down server"\n.* msg="Waiting for responses to end; a second signal ends them now" unfinished=1 graceSeconds=60\n/,
    );
  });

  it('ends after SIGTERM although the service answers no TLS handshake and nobody reads its log, and exits with 0', async (t) => {
    const mute = new Set<Socket>();
    const service = createServer((socket) => mute.add(socket.on('error', () => {})));
    await new Promise<void>((resolve) => service.listen(0, '127.0.0.1', resolve));
    t.after(() => {
      for (const socket of mute) socket.destroy();
      service.close();
    });
    const { port } = service.address() as AddressInfo;
    const fill = "process.once('SIGTERM', () => process.stderr.write('x'.repeat(2 ** 20)))";
    const proxy = await startProxyProcess(
      [
        ...deploymentFlags(port, remote.directory, 'workspace-mute'),
        ...['--api-key=x', '--port=0', `--connect-timeout=${GRACE.flag}`, `--shutdown-grace=${GRACE.flag}`],
      ],
      { ...remote.env, NODE_OPTIONS: `--import=data:text/javascript,${encodeURIComponent(fill)}` },
    );
    t.after(() => proxy.process.kill('SIGKILL'));
    await eventually('a connection', () => mute.size > 0);
    proxy.process.stderr?.pause();
    proxy.process.kill('SIGTERM');
    await eventually('its end', () => proxy.process.exitCode !== null, WITHOUT_IT);
    assert.equal(proxy.process.exitCode, 0);
  });

  it('ends a stream with shutting_down if SIGTERM follows SIGINT, with its receipt and its line in the log', async () => {
    const more = ['--receipts'];
    const { proxy, client } = await streaming(GRACE.flag, 'sim-999x100', more);
    const begun = performance.now();
    const stopped = proxy.stop('SIGINT');
    await eventually('the beginning of the shutdown', () => proxy.log().includes('Waiting for responses'));
    proxy.process.kill('SIGTERM');
    assert.equal(await stopped, 0, proxy.log());
    assert.ok(performance.now() - begun < WITHOUT_IT);
    const answer = await answerTo(client);
    assert.equal(answer.complete, false);
    assert.match(answer.body, /"code":"shutting_down"\}\}\n\n$/);
    assert.match(proxy.log(), /msg="Request ended".* outcome=broken_off .* code=shutting_down/);
    const receipts = join(remote.directory, `workspace-sim-999x100${more.join('')}`, 'receipts');
    const [file] = readdirSync(receipts).filter((name) => name.endsWith('.jsonl'));
    const lines = readFileSync(join(receipts, file as string), 'utf8')
      .trimEnd()
      .split('\n');
    const told = lines.map((line) => JSON.parse(line) as { type: string; code?: string });
    assert.deepEqual(
      told.map(({ type, code }) => [type, code]),
      [
        ['opened', undefined],
        ['request', 'shutting_down'],
        ['closed', undefined],
      ],
    );
  });

  it('ends at once after a third SIGTERM, by that signal, if a disk does not answer', async (t) => {
    const proxy = await withHangingDisk(t, 'third-signal', ['--receipts'], {});
    for (const sign of ['No response is under way', 'A second signal', 'Another signal']) {
      proxy.process.kill('SIGTERM');
      await eventually(sign, () => proxy.log().includes(sign));
    }
    await eventually('the end of the process', () => ended(proxy));
    assert.equal(proxy.process.signalCode, 'SIGTERM', proxy.log());
  });

  /**
   * The program, while its only thread for files reads a pipe that gets no data. As with a disk that does not
   * answer, no receipt can be written, and process.exit() waits for the thread.
   */
  async function withHangingDisk(
    t: TestContext,
    name: string,
    flags: readonly string[],
    times: Partial<Times>,
  ): Promise<Program> {
    const workspace = join(remote.directory, `workspace-${name}`);
    const log = join(workspace, 'manifests/log.txt');
    mkdirSync(dirname(log), { recursive: true });
    execFileSync('mkfifo', [log]);
    const own = [`--workspace=${workspace}`, '--shutdown-grace=1s', ...flags];
    const env = { ...remote.env, UV_THREADPOOL_SIZE: '1' };
    const proxy = await startProxyProcess([...remote.flags, '--port=0', ...own], env, { times });
    t.after(() => proxy.stop('SIGKILL'));
    const pipe = await eventually('a reader of the pipe', () => {
      try {
        return openSync(log, constants.O_WRONLY | constants.O_NONBLOCK);
      } catch {
        return undefined;
      }
    });
    t.after(() => closeSync(pipe));
    return proxy;
  }
  const ended = ({ process }: Program): boolean => process.exitCode !== null || process.signalCode !== null;

  it('ends soon after a second SIGTERM also if a disk does not answer', async (t) => {
    const proxy = await withHangingDisk(t, 'second-signal', ['--receipts'], { lastWork: 500 });
    proxy.process.kill('SIGTERM');
    await eventually('the end of the responses', () => proxy.log().includes('No response is under way'));
    proxy.process.kill('SIGTERM');
    await eventually('the end of the process', () => ended(proxy));
    assert.equal(proxy.process.signalCode, 'SIGTERM', proxy.log());
  });

  const disks: [string, string[]][] = [
    ['with receipts', ['--receipts']],
    ['without receipts', []],
  ];
  for (const [name, flags] of disks) {
    it(`kills itself a while after --shutdown-grace if a disk does not answer, ${name}`, async (t) => {
      const proxy = await withHangingDisk(t, `one-signal-${flags.length}`, flags, { stopMargin: 1_000 });
      proxy.process.kill('SIGTERM');
      await eventually('the end of the process', () => ended(proxy), 60_000);
      assert.equal(proxy.process.signalCode, 'SIGKILL', proxy.log());
      assert.match(proxy.log(), /level=WARN .*msg="The end takes too long/);
    });
  }
});
