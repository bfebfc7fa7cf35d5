/** Attempts over HTTP/2: what they guarantee over HTTP/1.1 they guarantee here, and none waits for HTTP/2. */
import assert from 'node:assert/strict';
import { EventEmitter, once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { constants, createSecureServer, type ServerHttp2Stream, type Settings } from 'node:http2';
import { createServer } from 'node:https';
import { type AddressInfo, createServer as createTcpServer, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { text } from 'node:stream/consumers';
import { describe, it, type TestContext } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { connect as connectTls, createSecureContext, TLSSocket } from 'node:tls';
import type { UpstreamFailure } from '../../lib/api/retry.ts';
import { PrivatemodeError } from '../../lib/errors.ts';
import { type Http2Options, type Http2Session, openHttp2Session } from '../../lib/network/http2-session.ts';
import { createOutbound } from '../../lib/network/outbound.ts';
import { DecryptStream, UNENCRYPTED } from '../../lib/pipeline/decrypt-stream.ts';
import { createUpstream, type UpstreamResponse } from '../../lib/pipeline/upstream.ts';
import { keptOfEach } from '../support/kept.ts';
import { serveConnectProxy } from '../support/loopback.ts';
import { createTestAuthority } from '../support/tls-authority.ts';

const authority = createTestAuthority('HTTP/2 Root');
const certificate = authority.issue(['localhost', '127.0.0.1']);

type Script = (stream: ServerHttp2Stream, headers: Record<string, unknown>) => unknown;

const [DATA, HEADERS, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE] = [
  0, 1, 3, 4, 5, 6, 7, 8,
];
const [END_STREAM, ACK, END_HEADERS] = [1, 1, 4];

/** RFC 9113 4.1; numbers are of 32 bits. */
function frame(type: number, flags: number, stream: number, ...payload: (number | Buffer)[]): Buffer {
  const parts = payload.map((part) => {
    if (typeof part !== 'number') return part;
    const number = Buffer.alloc(4);
    number.writeUInt32BE(part);
    return number;
  });
  const head = Buffer.alloc(9);
  head.writeUIntBE(
    parts.reduce((sum, { length }) => sum + length, 0),
    0,
    3,
  );
  head.writeUInt8(type, 3);
  head.writeUInt8(flags, 4);
  head.writeUInt32BE(stream, 5);
  return Buffer.concat([head, ...parts]);
}

/** `:status: 200`, and a length of 100 (RFC 7541 A). */
const OK = Buffer.from([0x88]);
const LENGTH_100 = Buffer.from([0x0f, 0x0d, 3, 0x31, 0x30, 0x30]);

interface Peer {
  readonly socket: TLSSocket;
  /** The TCP connection below. */
  readonly raw: Socket;
  /** Types of the frames that came. */
  readonly frames: { readonly type: number; readonly flags: number; readonly stream: number }[];
}

type PeerScript = (peer: Peer, stream: number) => unknown;

/** A server that speaks HTTP/2 as it likes: runs the script for each request, after its SETTINGS if it sends them. */
async function rawService(t: TestContext, script: PeerScript, hasSettings = true) {
  const peers: Peer[] = [];
  const context = createSecureContext(certificate);
  const sockets = new Set<Socket>();
  const server = createTcpServer((raw) => {
    sockets.add(raw);
    raw.on('error', () => {});
    const socket = new TLSSocket(raw, { isServer: true, secureContext: context, ALPNProtocols: ['h2'] });
    socket.on('error', () => {});
    const peer: Peer = { socket, raw, frames: [] };
    socket.once('secure', () => {
      peers.push(peer);
      if (hasSettings) socket.write(frame(SETTINGS, 0, 0));
    });
    let unread = Buffer.alloc(0);
    let preface = 24;
    socket.on('data', (chunk: Buffer) => {
      unread = Buffer.concat([unread, chunk]);
      if (preface > 0 && unread.length >= preface) {
        unread = unread.subarray(preface);
        preface = 0;
      }
      while (preface === 0 && unread.length >= 9 && unread.length >= 9 + unread.readUIntBE(0, 3)) {
        const [type, flags, stream] = [unread[3]!, unread[4]!, unread.readUInt32BE(5)];
        unread = unread.subarray(9 + unread.readUIntBE(0, 3));
        peer.frames.push({ type, flags, stream });
        if (type === SETTINGS && flags === 0) socket.write(frame(SETTINGS, ACK, 0));
        if (type === HEADERS) script(peer, stream);
      }
    });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.after(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  return { port: (server.address() as AddressInfo).port, peers };
}

/** Waits until it holds. */
async function until(condition: () => boolean, what: string, ms = 5_000): Promise<void> {
  for (const deadline = Date.now() + ms; !condition(); await delay(5)) {
    assert.ok(Date.now() < deadline, `never came: ${what}`);
  }
}

interface Service {
  readonly port: number;
  /** Of the session that came last. */
  readonly sockets: TLSSocket[];
  /** TCP connections that are open. */
  readonly raw: ReadonlySet<Socket>;
  /** Sessions whose client knows the settings. */
  sessions: number;
  /** How each request came. */
  readonly versions: string[];
  protocols: string[];
}

/** Runs the script for each stream; answers 'HTTP/1.1' to each request of that version. */
async function service(t: TestContext, script: Script, settings: Settings = {}, port = 0): Promise<Service> {
  const raw = new Set<Socket>();
  const seen: Service = { port, sockets: [], raw, sessions: 0, versions: [], protocols: ['h2', 'http/1.1'] };
  const http2 = createSecureServer({ settings });
  http2.on('session', (session) => {
    session.on('error', () => {});
    session.once('localSettings', () => {
      seen.sessions++;
    });
  });
  http2.on('stream', (given, headers) => {
    const stream = given as ServerHttp2Stream;
    seen.versions.push('2');
    stream.on('error', () => {});
    script(stream, headers);
  });
  const server = createServer(
    {
      ...certificate,
      ALPNCallback: ({ protocols }) => protocols.find((name) => seen.protocols.includes(name)),
    },
    (request, response) => {
      seen.versions.push('1.1');
      request.resume().once('end', () => response.end('HTTP/1.1'));
    },
  );
  const [http1] = server.listeners('secureConnection') as ((socket: TLSSocket) => void)[];
  server.removeAllListeners('secureConnection');
  server.on('secureConnection', (socket: TLSSocket) => {
    socket.on('error', () => {});
    if (socket.alpnProtocol !== 'h2') return http1?.call(server, socket);
    seen.sockets.push(socket);
    http2.emit('secureConnection', socket);
  });
  server.on('connection', (socket: Socket) => {
    raw.add(socket);
    socket.on('error', () => {}).once('close', () => raw.delete(socket));
  });
  server.listen(port, '127.0.0.1');
  await once(server, 'listening');
  t.after(() => {
    for (const socket of raw) socket.destroy();
    server.close();
  });
  return Object.assign(seen, { port: (server.address() as AddressInfo).port });
}

/** An upstream with its session open. */
async function sending(
  t: TestContext,
  remote: { readonly port: number },
  env: Record<string, string> = {},
  firstByteTimeout = 5_000,
  renewAfter = 45_000,
) {
  const directory = mkdtempSync(join(tmpdir(), 'http2-'));
  writeFileSync(join(directory, 'ca.pem'), authority.pem);
  const outbound = createOutbound({ SSL_CERT_FILE: join(directory, 'ca.pem'), ...env }, 5_000);
  const endpoint = { host: 'localhost', port: remote.port };
  const { agent, session, keep } = outbound.warmAgent(
    { ...endpoint, limit: 2, renewAfter },
    { keepAlive: true },
  );
  keep(true);
  await until(() => session() !== undefined, 'the session');
  const upstream = createUpstream({
    ...endpoint,
    agent,
    http2: session,
    freshAgent: outbound.agent({ keepAlive: false }),
    connectTimeout: 5_000,
    firstByteTimeout,
  });
  const res = Object.assign(new EventEmitter(), { writableFinished: false });
  res.setMaxListeners(0);
  t.after(async () => {
    res.emit('close');
    await outbound.close();
    rmSync(directory, { recursive: true });
  });
  const send = (
    options: { signal?: AbortSignal; body?: Readable; bytes?: number; fresh?: boolean } = {},
  ): Promise<UpstreamResponse> => {
    const req = Object.assign(new EventEmitter(), { method: 'POST', headers: {}, socket: {} });
    return upstream.send(req as unknown as IncomingMessage, res as unknown as ServerResponse, {
      method: 'POST',
      path: '/v1/chat',
      headers: {
        host: 'localhost',
        'x-twice': 'lower',
        'X-Twice': 'upper',
        'content-length': String(options.bytes ?? 0),
      },
      body: options.body,
      fresh: options.fresh ?? false,
      signal: options.signal ?? new AbortController().signal,
    });
  };
  return { send, session, res, outbound };
}

/** A session by itself, impatient unless told otherwise. */
async function openTo({ port }: { readonly port: number }, options: Partial<Http2Options> = {}) {
  const socket = connectTls({ port, ca: authority.pem, servername: 'localhost', ALPNProtocols: ['h2'] });
  socket.on('error', () => {});
  await once(socket, 'secureConnect');
  const limits = { timeout: 5_000, silence: 100, patience: 100, ...options };
  return { socket, session: await openHttp2Session(socket, limits) };
}

/** What the application would get, and why it is not whole. */
async function read({ response }: UpstreamResponse): Promise<{ text: string; failure: string | undefined }> {
  const stream = new DecryptStream(response, UNENCRYPTED, {
    idleTimeout: 5_000,
    signal: new AbortController().signal,
    stats: { firstChunkAt: undefined, chunks: 0, bytes: { fromRemote: 0, toClient: 0 } },
  });
  const got = await text(stream);
  return { text: got, failure: stream.failure?.code };
}

/** Reads a first response, behind which the server has acknowledged our SETTINGS: nothing more is heard while the session idles. */
async function idled(answer: UpstreamResponse, session: () => Http2Session | undefined): Promise<void> {
  await read(answer);
  await until(() => session()?.idleSince() !== undefined, 'the end of the stream');
}

const headed = (stream: ServerHttp2Stream, headers = {}): void =>
  stream.respond({ ':status': 200, ...headers });

describe('a response over HTTP/2', { concurrency: true, timeout: 30_000 }, () => {
  it('comes with its status and every header, without pseudo-headers', async (t) => {
    let asked: Record<string, unknown> = {};
    const remote = await service(t, (stream, headers) => {
      asked = headers;
      headed(stream, { 'content-type': 'text/plain', warning: ['a', 'b'] });
      stream.end('whole');
    });
    const { send } = await sending(t, remote);
    const answer = await send();
    const { statusCode, headers, rawHeaders } = answer.response;
    assert.equal(statusCode, 200);
    assert.equal(headers.warning, 'a, b');
    assert.deepEqual(
      Object.keys(headers).filter((name) => name.startsWith(':')),
      [],
    );
    assert.deepEqual(rawHeaders.slice(0, 6), ['content-type', 'text/plain', 'warning', 'a', 'warning', 'b']);
    assert.deepEqual(await read(answer), { text: 'whole', failure: undefined });
    assert.equal(asked[':authority'], 'localhost');
    assert.equal(asked['host'], undefined);
    assert.equal(asked['x-twice'], 'upper');
    assert.deepEqual(remote.versions, ['2']);
  });

  const CUTS: readonly (readonly [how: string, cut: PeerScript])[] = [
    ...['NO_ERROR', 'PROTOCOL_ERROR', 'INTERNAL_ERROR', 'CANCEL', 'REFUSED_STREAM', 'ENHANCE_YOUR_CALM'].map(
      (name) =>
        [
          `RST_STREAM with ${name}`,
          ({ socket }: Peer, stream: number) =>
            socket.write(frame(RST_STREAM, 0, stream, constants[`NGHTTP2_${name}` as 'NGHTTP2_NO_ERROR'])),
        ] as const,
    ),
    ['GOAWAY with an error', ({ socket }) => socket.write(frame(GOAWAY, 0, 0, 1, 2))],
    ['GOAWAY and the end', ({ socket }) => socket.end(frame(GOAWAY, 0, 0, 1, 0))],
    ['GOAWAY before it', ({ socket }) => socket.write(frame(GOAWAY, 0, 0, 0, 0))],
    ['the end of the connection', ({ socket }) => socket.end()],
    ['a reset of the connection', ({ raw }) => raw.resetAndDestroy()],
    ['a broken frame', ({ socket }) => socket.write(frame(SETTINGS, 0, 1))],
  ];
  for (const [how, cut] of CUTS) {
    for (const [length, fields] of [
      ['of unknown length', OK],
      ['of known length', Buffer.concat([OK, LENGTH_100])],
    ] as const) {
      for (const wait of [0, 20]) {
        it(`${length} that is cut by ${how} is broken, ${wait} ms after its last bytes`, async (t) => {
          const remote = await rawService(t, async (peer, stream) => {
            peer.socket.write(
              Buffer.concat([
                frame(HEADERS, END_HEADERS, stream, fields),
                frame(DATA, 0, stream, Buffer.from('part')),
              ]),
            );
            if (wait > 0) await delay(wait);
            cut(peer, stream);
          });
          const { send } = await sending(t, remote);
          const outcome = await send().then(read, (failure: UpstreamFailure) => failure);
          // Where head and end come together, the end may be seen first: then there is no response at all.
          if (outcome instanceof Error) assert.deepEqual([wait, outcome.retry], [0, undefined]);
          else
            assert.deepEqual([outcome.failure, 'part'.startsWith(outcome.text)], ['stream_unfinished', true]);
        });
      }
    }
  }

  it('that ends before its length is broken', async (t) => {
    const remote = await service(t, (stream) => {
      headed(stream, { 'content-length': '100' });
      stream.end('part');
    });
    const { send } = await sending(t, remote);
    assert.equal((await read(await send())).failure, 'stream_unfinished');
  });

  it('that is whole is read whole, however late', async (t) => {
    const remote = await rawService(t, ({ socket }, stream) =>
      socket.write(
        Buffer.concat([
          frame(HEADERS, END_HEADERS, stream, OK),
          frame(DATA, END_STREAM, stream, Buffer.alloc(1_000, 'x')),
          frame(RST_STREAM, 0, stream, 0),
        ]),
      ),
    );
    const { send } = await sending(t, remote);
    const answer = await send();
    await until(() => (answer.response as unknown as { closed: boolean }).closed, 'the reset');
    assert.deepEqual(await read(answer), { text: 'x'.repeat(1_000), failure: undefined });
  });

  it('that a reader leaves is cancelled at once, and so is one whose application left', async (t) => {
    const codes: (number | undefined)[] = [];
    const remote = await service(t, (stream) => {
      headed(stream);
      stream.write('some').valueOf();
      stream.once('close', () => codes.push(stream.rstCode));
    });
    const { send, res } = await sending(t, remote);
    (await send()).response.destroy();
    await until(() => codes.length === 1, 'the reset');
    const { response } = await send();
    res.emit('close');
    await until(() => codes.length === 2, 'the other reset');
    assert.deepEqual(codes, [8, 8]);
    assert.equal(response.destroyed, true);
  });

  it('that is not read holds up no other, and takes no more memory than its window', async (t) => {
    const remote = await service(t, (stream, headers) => {
      headed(stream);
      if (headers['content-length'] === '0') return void stream.end('fast');
      const piece = Buffer.alloc(64 * 1024);
      const more = (): void => {
        while (!stream.destroyed && stream.write(piece));
        stream.once('drain', more);
      };
      stream.resume();
      more();
    });
    const { send } = await sending(t, remote);
    const slow = await send({ body: Readable.from([Buffer.from('x')]), bytes: 1 });
    await delay(200);
    for (let i = 0; i < 20; i++) assert.equal((await read(await send())).text, 'fast');
    assert.ok(slow.response.readableLength <= 256 * 1024, `${slow.response.readableLength} bytes are held`);
    assert.ok(slow.response.readableLength > 0);
    assert.deepEqual(new Set(remote.versions), new Set(['2']));
    slow.response.destroy();
  });
});

describe('an attempt over HTTP/2', { concurrency: true, timeout: 30_000 }, () => {
  const isRetried = (retry: string | undefined, code?: string) => (failure: UpstreamFailure) => {
    assert.equal(failure.retry, retry);
    if (code !== undefined) assert.equal(failure.error.code, code);
    return true;
  };
  const FAILURES: readonly (readonly [how: string, script: PeerScript, retry: string | undefined])[] = [
    ['is refused', ({ socket }, stream) => socket.write(frame(RST_STREAM, 0, stream, 7)), 'stale_connection'],
    [
      'is wanted over HTTP/1.1',
      ({ socket }, stream) => socket.write(frame(RST_STREAM, 0, stream, 13)),
      'stale_connection',
    ],
    [
      'is above the last stream of GOAWAY',
      ({ socket }) => socket.write(frame(GOAWAY, 0, 0, 1, 0)),
      'stale_connection',
    ],
    [
      'is above that of a failed session',
      ({ socket }) => socket.write(frame(GOAWAY, 0, 0, 1, 2)),
      'stale_connection',
    ],
    ['meets the end of an idle session', ({ socket }) => socket.end(), 'stale_connection'],
    ['meets the end of a session in use', ({ socket }) => socket.end(), undefined],
    ['meets a reset of the connection', ({ raw }) => raw.resetAndDestroy(), 'connection_reset'],
    [
      'had been begun when the session failed, however it says so',
      ({ socket }, stream) => socket.write(frame(GOAWAY, 0, 0, stream, 7)),
      undefined,
    ],
    [
      'is refused after an informational response',
      async ({ socket }, stream) => {
        // :status 103, a literal
        socket.write(frame(HEADERS, END_HEADERS, stream, Buffer.from([0x08, 3, 0x31, 0x30, 0x33])));
        await delay(50);
        socket.write(frame(RST_STREAM, 0, stream, 7));
      },
      undefined,
    ],
  ];
  for (const [how, script, retry] of FAILURES) {
    it(`that ${how} is ${retry === undefined ? 'not ' : ''}sent again`, async (t) => {
      const isIdle = how.includes('idle');
      const remote = await rawService(t, (peer, stream) => {
        if (stream > 1) return void script(peer, stream);
        peer.socket.write(frame(HEADERS, END_HEADERS | (isIdle ? END_STREAM : 0), stream, OK));
      });
      const { send, session } = await sending(t, remote);
      // While another is under way, a connection that ends is no stale one.
      const first = await send();
      if (isIdle) await idled(first, session);
      else first.response.on('error', () => {});
      await assert.rejects(send(), isRetried(retry));
    });
  }

  it('that is reset while another is under way is not sent again', async (t) => {
    const remote = await service(t, (stream) => {
      if (remote.versions.length === 1) return void headed(stream);
      stream.close(constants.NGHTTP2_INTERNAL_ERROR);
    });
    const { send } = await sending(t, remote);
    const first = await send();
    await assert.rejects(send(), isRetried(undefined, 'upstream_reset'));
    first.response.destroy();
  });

  it('is cancelled by its signal, whose reason it fails with', async (t) => {
    const control = new AbortController();
    const reason = new PrivatemodeError('shutting_down', 'over');
    const code = Promise.withResolvers<unknown>();
    const remote = await service(t, (stream) => {
      stream.once('close', () => code.resolve(stream.rstCode));
      control.abort(reason);
    });
    const { send } = await sending(t, remote);
    const body = new Readable({ read() {} });
    body.push('some');
    await assert.rejects(send({ signal: control.signal, body, bytes: 100 }), { error: reason });
    assert.equal(await code.promise, 8);
    await until(() => body.destroyed, 'the end of the body');
  });

  it('is given up where no response comes in time, whatever informational ones do', async (t) => {
    const remote = await service(t, (stream) => {
      const timer = setInterval(() => stream.additionalHeaders({ ':status': 102 }), 50);
      stream.once('close', () => clearInterval(timer));
    });
    const { send } = await sending(t, remote, {}, 300);
    await assert.rejects(send(), isRetried(undefined, 'first_byte_timeout'));
  });

  it('whose response ends before its body stops sending', async (t) => {
    const remote = await service(t, (stream) => {
      headed(stream);
      stream.end('early');
    });
    const { send } = await sending(t, remote);
    const body = new Readable({ read() {} });
    body.push('some');
    assert.deepEqual(await read(await send({ body, bytes: 100 })), { text: 'early', failure: undefined });
    await until(() => body.destroyed, 'the end of the body');
  });

  const ELSEWHERE: readonly (readonly [why: string, settings: Settings, options: object])[] = [
    ['is a retry', {}, { fresh: true }],
    [
      'is larger than the window',
      { initialWindowSize: 10 },
      { body: () => Readable.from([Buffer.alloc(11)]), bytes: 11 },
    ],
    ['finds a window of nothing', { initialWindowSize: 0 }, { body: () => Readable.from(['x']), bytes: 1 }],
    ['is one too many', { maxConcurrentStreams: 1 }, {}],
    ['finds no stream allowed', { maxConcurrentStreams: 0 }, {}],
  ];
  for (const [why, settings, { body, ...options }] of ELSEWHERE as [
    string,
    Settings,
    { body?: () => Readable },
  ][]) {
    it(`that ${why} goes over HTTP/1.1 at once`, async (t) => {
      const remote = await service(t, (stream) => headed(stream), settings);
      const { send } = await sending(t, remote);
      const first = settings.maxConcurrentStreams === 1 ? await send() : undefined;
      const answer = await send({ ...options, ...(body && { body: body() }) });
      assert.deepEqual(await read(answer), { text: 'HTTP/1.1', failure: undefined });
      assert.deepEqual(remote.versions, first === undefined ? ['1.1'] : ['2', '1.1']);
      first?.response.destroy();
    });
  }
});

describe('the HTTP/2 session', { concurrency: true, timeout: 30_000 }, () => {
  const whole: Script = (stream) => {
    headed(stream);
    stream.end('whole');
  };

  it('is one connection beside one of HTTP/1.1, through the HTTP proxy too', async (t) => {
    const remote = await service(t, whole);
    const proxy = await serveConnectProxy(t, { route: () => remote });
    const { send } = await sending(t, remote, { https_proxy: `http://127.0.0.1:${proxy.port}` });
    await Promise.all(Array.from({ length: 20 }, async () => read(await send())));
    await until(() => remote.raw.size === 2, 'two connections');
    assert.deepEqual(new Set(remote.versions), new Set(['2']));
  });

  it('carries bodies that are larger than its window together, one after the other', async (t) => {
    const remote = await service(t, (stream) => {
      stream.resume().once('end', () => headed(stream)); // and goes on for long
    });
    const { send } = await sending(t, remote);
    const answers: UpstreamResponse[] = [];
    for (let i = 0; i < 10; i++) {
      answers.push(await send({ body: Readable.from([Buffer.alloc(20_000)]), bytes: 20_000 }));
    }
    assert.deepEqual(remote.versions, Array(10).fill('2'));
    for (const { response } of answers) response.destroy();
  });

  it('is replaced when it ends, and its requests go over HTTP/1.1 meanwhile', async (t) => {
    const remote = await service(t, whole);
    const { send, session } = await sending(t, remote);
    await until(() => remote.raw.size === 2, 'the spare connection');
    const before = session();
    remote.sockets[0]?.destroy();
    await until(() => session() === undefined, 'its end');
    assert.equal((await read(await send())).text, 'HTTP/1.1');
    await until(() => session() !== undefined, 'its successor');
    assert.notEqual(session(), before);
    assert.equal((await read(await send())).text, 'whole');
    assert.equal(remote.sockets[1]?.isSessionReused(), true);
  });

  it('finishes its streams after GOAWAY, while the next one takes requests', async (t) => {
    const streams: ServerHttp2Stream[] = [];
    const remote = await service(t, (stream) => {
      headed(stream);
      streams.push(stream);
      if (streams.length > 1) stream.end('second');
    });
    const { send, session } = await sending(t, remote);
    const first = await send();
    const before = session();
    streams[0]?.session?.goaway(0);
    await until(() => session() !== undefined && session() !== before, 'the next one');
    assert.equal((await read(await send())).text, 'second');
    streams[0]?.end('first');
    assert.deepEqual(await read(first), { text: 'first', failure: undefined });
  });

  it('reserves its window for what is under way, and for nothing else', async (t) => {
    const remote = await service(t, (stream) => headed(stream));
    const { send, session } = await sending(t, remote);
    const upload = () => ({ body: new Readable({ read() {} }), bytes: 40_000 });
    for (let i = 0; i < 3; i++) {
      const first = await send(upload());
      assert.equal(
        (await send({ body: Readable.from([Buffer.alloc(40_000)]), bytes: 40_000 })).response.statusCode,
        200,
      );
      assert.deepEqual(remote.versions.splice(0), ['2', '1.1'], `round ${i}`);
      first.response.destroy();
      await until(() => session()?.idleSince() !== undefined, 'the end of the stream');
    }
  });

  it('that idled for too long is replaced, and closed', async (t) => {
    const remote = await service(t, whole);
    const { session } = await sending(t, remote, {}, 5_000, 500);
    const before = session();
    await until(() => remote.sockets[0]?.destroyed === true, 'its end');
    assert.ok(session() !== undefined && session() !== before);
    assert.equal(before?.isUsable(), false);
    assert.equal(session()?.isUsable(), true);
  });

  it('is not missed where the service speaks HTTP/1.1 alone from now on', async (t) => {
    const remote = await service(t, whole);
    const { send, session } = await sending(t, remote);
    remote.protocols = ['http/1.1'];
    for (const socket of remote.raw) socket.destroy();
    await until(
      () => session() === undefined && remote.raw.size === 2,
      'its end, and two connections of HTTP/1.1',
    );
    for (let i = 0; i < 5; i++) assert.equal((await read(await send())).text, 'HTTP/1.1');
  });

  it('ends with its streams when all connections are closed', async (t) => {
    const remote = await service(t, (stream) => headed(stream));
    const { send, outbound } = await sending(t, remote);
    const reading = read(await send());
    await outbound.close();
    assert.equal((await reading).failure, 'stream_unfinished');
    await until(() => remote.raw.size === 0, 'the end of all connections');
  });
});

describe('a hostile service over HTTP/2', { concurrency: true, timeout: 30_000 }, () => {
  const many = (count: number, each: (at: number) => Buffer): Buffer =>
    Buffer.concat(Array.from({ length: count }, (_, at) => each(at)));
  const literal = (name: string, value: string): Buffer =>
    Buffer.concat([
      Buffer.from([0, name.length]),
      Buffer.from(name),
      Buffer.from([value.length]),
      Buffer.from(value),
    ]);
  const ATTACKS: readonly (readonly [what: string, attack: PeerScript])[] = [
    ['floods with pings', ({ socket }) => socket.write(many(100_000, () => frame(PING, 0, 0, 1, 2)))],
    ['floods with settings', ({ socket }) => socket.write(many(100_000, () => frame(SETTINGS, 0, 0)))],
    [
      'pushes',
      ({ socket }, stream) =>
        socket.write(frame(PUSH_PROMISE, END_HEADERS, stream, 2, Buffer.from([0x82, 0x84, 0x87]))),
    ],
    [
      'sends many headers',
      ({ socket }, stream) =>
        socket.write(
          frame(
            HEADERS,
            END_HEADERS,
            stream,
            OK,
            many(1_000, (at) => literal(`x-${at}`, 'y')),
          ),
        ),
    ],
    [
      'sends huge headers',
      ({ socket }, stream) =>
        socket.write(
          frame(
            HEADERS,
            END_HEADERS,
            stream,
            OK,
            many(120, (at) => literal(`x-${at}`, 'y'.repeat(126))),
          ),
        ),
    ],
    [
      'goes beyond the window',
      ({ socket }, stream) =>
        socket.write(
          Buffer.concat([
            frame(HEADERS, END_HEADERS, stream, OK),
            many(100, () => frame(DATA, 0, stream, Buffer.alloc(16_384))),
          ]),
        ),
    ],
    [
      'overflows our window',
      ({ socket }, stream) => socket.write(many(3, () => frame(WINDOW_UPDATE, 0, stream, 0x7fffffff))),
    ],
    [
      'sends a head without a status',
      ({ socket }, stream) => socket.write(frame(HEADERS, END_HEADERS, stream, literal('a', 'b'))),
    ],
    [
      'ends in the head',
      ({ socket }, stream) => socket.write(frame(HEADERS, END_HEADERS | END_STREAM, stream, OK)),
    ],
    [
      'sends empty frames',
      ({ socket }, stream) =>
        socket.write(
          Buffer.concat([
            frame(HEADERS, END_HEADERS, stream, OK),
            many(20_000, () => frame(DATA, 0, stream)),
          ]),
        ),
    ],
    ['says nothing', () => {}],
  ];
  for (const [what, attack] of ATTACKS) {
    it(`that ${what} costs its own requests alone`, async (t) => {
      const remote = await rawService(t, attack);
      const { send, outbound, session } = await sending(t, remote, {}, 500);
      const before = process.memoryUsage().rss;
      const outcome = send().then(
        (answer) => {
          answer.response.on('error', () => {}); // nobody reads it
          return delay(300).then(() => void answer.response.destroy());
        },
        () => {},
      );
      await outcome;
      assert.ok(process.memoryUsage().rss - before < 100_000_000);
      await delay(50);
      assert.ok(session() === undefined || session()?.idleSince() !== undefined, 'a stream is left');
      await outbound.close();
    });
  }

  it('that resets every stream is not the end of the others', async (t) => {
    const remote = await rawService(t, ({ socket }, stream) => socket.write(frame(RST_STREAM, 0, stream, 2)));
    const { send } = await sending(t, remote);
    for (let i = 0; i < 200; i++) await assert.rejects(send());
  });

  it('that is silent is pinged, and given up where it does not answer', async (t) => {
    const remote = await rawService(t, () => {});
    const { session } = await openTo(remote);
    const begun = session.request('GET', '/', { host: 'localhost' }, 0);
    assert.ok(begun !== undefined);
    begun.stream.on('error', () => {});
    await once(begun.stream, 'close');
    assert.ok(remote.peers[0]?.frames.some(({ type, flags }) => type === PING && flags === 0));
    assert.equal(session.isUsable(), false);
  });

  it('that falls silent after it answered a ping is given up too', async (t) => {
    let pings = 0;
    const remote = await rawService(t, ({ socket }) => {
      socket.on('data', (chunk: Buffer) => {
        if (chunk[3] === PING && pings++ === 0) socket.write(frame(PING, ACK, 0, chunk.subarray(9, 17)));
      });
    });
    const { session } = await openTo(remote, { patience: 500 });
    const { stream } = session.request('GET', '/', { host: 'localhost' }, 0)!;
    stream.on('error', () => {});
    await once(stream, 'close');
    assert.ok(pings > 1, `${pings} pings`);
  });

  it('that never sends its settings gets no request', async (t) => {
    const remote = await rawService(t, () => {}, false);
    await assert.rejects(openTo(remote, { timeout: 100 }));
  });
});

describe('between two full collections', () => {
  it('an attempt over HTTP/2 that is over holds on to nothing', async (t) => {
    const { send } = await sending(
      t,
      await service(t, (stream) => stream.respond({ ':status': 204 }, { endStream: true })),
    );
    const kilobytes = await keptOfEach(async (ballast) => {
      const body = new Readable({ read() {} });
      body.push(Buffer.alloc(91));
      body.push(null);
      const signal = Object.assign(new AbortController().signal, { ballast });
      const { response } = await send({ signal, body, bytes: 91 });
      await once(response.resume(), 'close');
    });
    assert.ok(kilobytes < 200, `${kilobytes} KB of each attempt`);
  });
});

describe('a service over HTTP/2 that has seen the request', { concurrency: true, timeout: 30_000 }, () => {
  const head = (stream: number, ...fields: Buffer[]): Buffer =>
    frame(HEADERS, END_HEADERS, stream, ...fields);
  const literal = (name: string, value: string): Buffer =>
    Buffer.concat([
      Buffer.from([0, name.length]),
      Buffer.from(`${name}${String.fromCharCode(value.length)}${value}`),
    ]);
  const resets = [0, 1, 2, 3, 5, 8, 9, 11, 12].map((code): [string, PeerScript] => [
    `resets it with code ${code}`,
    ({ socket }, stream) => socket.write(frame(RST_STREAM, 0, stream, code)),
  ]);
  const heads = (
    [
      ['a field of the connection', OK, literal('connection', 'close')],
      ['an upper-case name', OK, literal('X-Odd', 'y')],
      ['two lengths', OK, literal('content-length', '5'), literal('content-length', '5')],
      ['a second status', OK, OK],
      ['its status last', literal('a', 'b'), OK],
      ['status 101', literal(':status', '101')],
      ['status 2000', literal(':status', '2000')],
      ['status 099', literal(':status', '099')],
      ['no status', literal('a', 'b')],
      ['broken compression', Buffer.alloc(6, 0xff)],
    ] as const
  ).map(([what, ...fields]): [string, PeerScript] => [
    `answers a head with ${what}`,
    ({ socket }, stream) => socket.write(head(stream, ...fields)),
  ]);
  const BEGUN: readonly (readonly [how: string, script: PeerScript])[] = [
    ...resets,
    ...heads,
    [
      'answers without a head',
      ({ socket }, stream) => socket.write(frame(DATA, 1, stream, Buffer.from('x'))),
    ],
    ['answers HTTP/1.1', ({ socket }) => socket.write('HTTP/1.1 200 OK\r\n\r\n')],
    ['fails, and says so', ({ socket }, stream) => socket.end(frame(GOAWAY, 0, 0, stream, 2))],
    [
      'takes some of its body and ends the connection',
      async ({ socket }, stream) => {
        socket.write(frame(WINDOW_UPDATE, 0, stream, 1));
        await delay(50);
        socket.end();
      },
    ],
  ];
  for (const [how, script] of BEGUN) {
    it(`and ${how} does not get it again, although the session had idled`, async (t) => {
      const remote = await rawService(t, script);
      const { send } = await sending(t, remote);
      await assert.rejects(send(), ({ retry, error }: UpstreamFailure) => {
        assert.match(error.code, /^(upstream_reset|response_malformed)$/);
        assert.equal(retry, undefined);
        return true;
      });
    });
  }

  it('is told from one that cut its idle connection under two requests, without a word', async (t) => {
    const remote = await rawService(t, ({ socket, raw }, stream) => {
      if (stream === 1) socket.write(frame(HEADERS, END_HEADERS | END_STREAM, stream, OK));
      if (stream === 5) raw.end();
    });
    const { send, session } = await sending(t, remote);
    await idled(await send(), session);
    const isStale = { retry: 'stale_connection' };
    await Promise.all([assert.rejects(send(), isStale), assert.rejects(send(), isStale)]);
  });

  it('or has not, does not get a request again whose body failed', async (t) => {
    const remote = await rawService(t, () => {});
    const { send } = await sending(t, remote);
    const body = new Readable({ read: () => void body.destroy(new Error('unreadable')) });
    await assert.rejects(send({ body, bytes: 10 }), { retry: undefined });
  });

  it('is told from one whose idle connection was cut without a word', async (t) => {
    const remote = await rawService(t, ({ socket, raw }, stream) =>
      stream === 1 ? socket.write(frame(HEADERS, END_HEADERS | END_STREAM, stream, OK)) : raw.end(),
    );
    const { send, session } = await sending(t, remote);
    await idled(await send(), session);
    await assert.rejects(send(), { retry: 'stale_connection' });
  });
});

describe('an HTTP/2 session that is over', { concurrency: true, timeout: 30_000 }, () => {
  /** Never closes its side of the connection. */
  const keepOpen = ({ socket, raw }: Peer): void => {
    for (const each of [socket, raw]) Object.assign(each, { allowHalfOpen: true, end: () => each });
  };
  const answer: PeerScript = (peer, stream) => {
    keepOpen(peer);
    peer.socket.write(frame(HEADERS, END_HEADERS | END_STREAM, stream, OK));
  };
  const ENDS: readonly (readonly [how: string, end: (peer: Peer, session: Http2Session) => void])[] = [
    ['GOAWAY', ({ socket }) => socket.write(frame(GOAWAY, 0, 0, 1, 0))],
    ['our close', (_peer, session) => session.close()],
    ['our close and our end', (_peer, session) => [session.close(), session.destroy()]],
  ];
  for (const [how, end] of ENDS) {
    for (const isBusy of [false, true]) {
      it(`by ${how} leaves no connection, ${isBusy ? 'once its last stream ended' : 'where it idles'}, if the service keeps it open`, async (t) => {
        const remote = await rawService(t, answer);
        const { socket, session } = await openTo(remote);
        const first = session.request('GET', '/', { host: 'localhost' }, 0);
        if (!isBusy) await once(first!.stream.resume(), 'close');
        end(remote.peers[0]!, session);
        first?.stream.resume().on('error', () => {});
        await until(() => socket.destroyed, 'the end of the connection');
        assert.equal(session.isUsable(), false);
      });
    }
  }

  for (const [why, last] of [
    ['reads nothing', undefined],
    ['fails and reads nothing', frame(GOAWAY, 0, 0, 3, 2)],
  ] as const)
    it(`leaves no connection where the service ${why}`, async (t) => {
      const remote = await rawService(t, ({ socket }) => {
        socket.write(frame(SETTINGS, 0, 0, Buffer.from([0, 4, 0x7f, 0xff, 0xff, 0xff])));
        socket.write(frame(WINDOW_UPDATE, 0, 0, 0x7fff0000 - 65_535));
      });
      const { socket, session } = await openTo(remote);
      session.request('GET', '/', { host: 'localhost' }, 0)!.stream.on('error', () => {});
      let upload: ReturnType<typeof session.request>;
      await until(() => {
        upload = session.request('POST', '/', { host: 'localhost' }, 30_000_000);
        return upload !== undefined;
      }, 'its window');
      remote.peers[0]!.raw.pause();
      remote.peers[0]!.socket.pause();
      upload!.stream.on('error', () => {}).end(Buffer.alloc(30_000_000));
      if (last !== undefined) remote.peers[0]!.socket.write(last);
      await until(() => socket.destroyed, 'the end of the connection');
    });

  it('by the number of its streams is replaced', async (t) => {
    const remote = await rawService(t, (peer, stream) => {
      peer.socket.write(frame(HEADERS, END_HEADERS | END_STREAM, stream, OK));
    });
    const { send, session } = await sending(t, remote);
    const before = session();
    const begun = before!.request('GET', '/', { host: 'localhost' }, 0)!;
    (begun.stream.session as unknown as { setNextStreamID(id: number): void }).setNextStreamID(2 ** 31 - 1);
    await once(begun.stream.resume(), 'close');
    await read(await send()); // the last one
    await assert.rejects(send(), { retry: 'stale_connection' });
    await until(() => session() !== undefined && session() !== before, 'its successor');
    await read(await send());
  });
});

it('short pieces of an HTTP/2 response do not keep what came between them', {
  timeout: 30_000,
}, async (t) => {
  const pieces = 2_000;
  const remote = await rawService(t, async ({ socket }, stream) => {
    socket.write(frame(HEADERS, END_HEADERS, stream, OK));
    const junk = frame(0xfa, 0, 0, Buffer.alloc(16_000)); // of a type that nobody knows
    const piece = Buffer.concat([junk, frame(DATA, 0, stream, Buffer.from('x'))]);
    for (let sent = 0; sent < pieces && !socket.destroyed; sent++) {
      if (!socket.write(piece)) await once(socket, 'drain');
    }
  });
  const { send } = await sending(t, remote);
  const { response } = await send();
  const kept = new Set<ArrayBufferLike>();
  t.after(() => response.destroy());
  await until(() => response.readableLength === pieces, 'all pieces', 20_000);
  for (let piece: Buffer | null = response.read(1); piece !== null; piece = response.read(1)) {
    kept.add(piece.buffer);
  }
  const bytes = [...kept].reduce((sum, { byteLength }) => sum + byteLength, 0);
  assert.ok(bytes < 200_000, `${bytes} bytes are kept for ${pieces}`);
});
