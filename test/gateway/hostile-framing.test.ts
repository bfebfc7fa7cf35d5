/**
 * Malformed HTTP and request smuggling: the remote sees at most one well-formed request for each that a
 * client sent.
 */
import assert from 'node:assert/strict';
import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { once } from 'node:events';
import { createServer, type IncomingMessage, type Server } from 'node:http';
import type { Socket } from 'node:net';
import { describe, it } from 'node:test';
import { systemClock } from '../../lib/clock.ts';
import { trackConnections } from '../../lib/listener/connections.ts';
import { refuseMalformed } from '../../lib/listener/not-http.ts';
import { createTranslator } from '../../lib/responses-api/translator.ts';
import { CANARY_KEY } from '../support/doors/canaries.ts';
import {
  assertError,
  CANARY,
  chatBody,
  gatewayFixture,
  get,
  post,
} from '../support/doors/gateway-fixture.ts';
import { rawClient, readAnswer } from '../support/doors/raw-client.ts';
import { eventually } from '../support/processes/eventually.ts';
import { listening } from '../support/remote/loopback.ts';
import {
  COMPLETION,
  completion,
  http,
  inTwoParts,
  openedRequest,
  sealedAnswers,
} from '../support/remote/sealed-answers.ts';

const BODY = chatBody();
const CHUNKED = `${BODY.length.toString(16)}\r\n${BODY}\r\n0\r\n\r\n`;
const START = 'POST /v1/chat/completions HTTP/1.1\r\nHost: localhost:8080\r\n';
/** What an attacker would like to see arrive as a request of its own. */
const SMUGGLED = `POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: ${BODY.length}\r\n\r\n${BODY}`;

const withHeaders = (...headers: string[]) => post(BODY, { headers });
/** A body in chunks, whatever these headers say of it. */
const framed = (...headers: string[]) => post(CHUNKED, { headers });
const withChunks = (body: string, ...headers: string[]) =>
  post(body, { headers: ['Transfer-Encoding: chunked', ...headers] });

/** Answered with this status; nothing is sent to the remote. */
const REFUSED: [name: string, request: string | Buffer, status: number][] = [
  ['no Host', `POST /v1/chat/completions HTTP/1.1\r\nContent-Length: ${BODY.length}\r\n\r\n${BODY}`, 400],
  ['an expectation that nobody knows', withHeaders('Expect: the unexpected'), 417],
  ['two Hosts', withHeaders('Host: evil.example'), 400],
  ['a length and chunks', framed(`Content-Length: ${BODY.length}`, 'Transfer-Encoding: chunked'), 400],
  ['two Content-Lengths', withHeaders(`Content-Length: ${BODY.length}`, 'Content-Length: 3'), 400],
  ['a list as Content-Length', withHeaders(`Content-Length: ${BODY.length}, ${BODY.length}`), 400],
  ['a Content-Length beyond all numbers', withHeaders('Content-Length: 99999999999999999999'), 400],
  ['an unknown Transfer-Encoding', framed('Transfer-Encoding: xchunked'), 400],
  ['chunked that is not last', framed('Transfer-Encoding: chunked, identity'), 400],
  ['a blank before the colon', framed('Transfer-Encoding : chunked'), 400],
  ['a folded header', withHeaders('X: a\r\n Transfer-Encoding: chunked'), 400],
  ['a NUL in a value', withHeaders('X: y\0z'), 400],
  ['a bare CR in a value', withHeaders('X: y\rTransfer-Encoding: chunked'), 400],
  ['one bare line feed', `${START.slice(0, -2)}\nContent-Length: 2\r\n\r\n{}`, 400],
  ['HTTP/0.9', 'GET /v1/models\r\n\r\n', 505],
  ['the preface of HTTP/2', 'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n', 400],
  ['a blank in the target', get('/v1/models x'), 400],
  ['CONNECT', 'CONNECT evil.example:443 HTTP/1.1\r\nHost: evil.example:443\r\n\r\n', 405],
  ['TRACE', get('/v1/models').replace('GET', 'TRACE'), 405],
  ['a head of 70 KB', withHeaders(`X: ${'y'.repeat(70_000)}`), 431],
  ['300 headers', withHeaders(...Array.from({ length: 300 }, (_, i) => `X${i}: y`)), 431],
  ['a chunk of a size beyond all numbers', withChunks(`ffffffffffffffffff\r\n${BODY}`), 400],
  ['a chunk size that ends in a bare line feed', withChunks(CHUNKED.replace('\r\n', '\n')), 400],
  ['a chunk longer than its size', withChunks(`5\r\n${BODY}\r\n0\r\n\r\n`), 400],
  ['an endless chunk extension', withChunks(`1;${'x'.repeat(70_000)}\r\n{\r\n`), 413],
];

/** Taken for what they are: one request. */
const ACCEPTED: [name: string, request: string | Buffer][] = [
  ['chunks with a chunk extension', withChunks(CHUNKED.replace('\r\n', ';a=b\r\n'))],
  [
    'chunks with trailers, which are dropped',
    withChunks(CHUNKED.replace(/0\r\n\r\n$/, '0\r\nAuthorization: Bearer x\r\nHost: y\r\n\r\n')),
  ],
  ['Content-Length with leading zeros', withHeaders(`Content-Length: 000${BODY.length}`)],
  ['an upgrade to h2c, which is ignored', withHeaders('Connection: Upgrade', 'Upgrade: h2c')],
];

describe('malformed and unusual requests', { concurrency: true }, () => {
  for (const [name, request, status] of REFUSED) {
    it(`${name}: ${status}, and nothing is sent`, async (t) => {
      const { upstream, ask } = await gatewayFixture(t);
      const { headers, body, ...answer } = await ask(request);
      assert.equal(answer.status, status);
      assert.match(headers['privatemode-proxy-error'] ?? '', /^[a-z_]+$/, 'it is not told whose error it is');
      if (status === 400) assert.match(body, /"message":"[^"]+/, 'no words');
      assert.ok(!body.includes(CANARY));
      assert.equal(upstream.connections.total, 0);
    });
  }

  for (const [name, request] of ACCEPTED) {
    it(`${name}: one well-formed request arrives`, async (t) => {
      const { upstream, ask } = await gatewayFixture(t, { answers: completion });
      assert.equal((await ask(request)).status, 200);
      assert.equal(upstream.requests.length, 1);
      const names = Object.keys(upstream.requests[0]?.headers ?? {});
      const dropped = ['upgrade', 'transfer-encoding', 'te', 'trailer'];
      for (const hopByHop of dropped) assert.ok(!names.includes(hopByHop), hopByHop);
      assert.equal(upstream.requests[0]?.headers['authorization'], `Bearer ${CANARY_KEY}`);
    });
  }
});

it('a WebSocket to the Responses API gets 426, which says to send it over HTTP; to another endpoint 405', async (t) => {
  const { upstream, ask } = await gatewayFixture(t, { deps: { createTranslator } });
  const headers = ['Connection: Upgrade', 'Upgrade: websocket', 'Sec-WebSocket-Version: 13'];
  const answer = await ask(get('/v1/responses', headers));
  assertError(answer, 426, 'websocket_unsupported');
  assert.equal(answer.headers['upgrade'], 'HTTP/1.1');
  assert.match(answer.body, /Send POST \/v1\/responses over HTTP/);
  assert.equal((await ask(get('/v1/chat/completions', headers))).status, 405);
  assert.equal(upstream.connections.total, 0);
});

describe('the gateway', () => {
  it('ends only the request in which the program throws', async (t) => {
    let faults = 1;
    const { gateway, ask } = await gatewayFixture(t, {
      deps: {
        cors() {
          if (faults-- > 0) throw new TypeError(`${CANARY} is not a function`);
          return { allowedOrigins: [], ownNames: [] };
        },
      },
    });
    const unlucky = await ask(get('/healthz'));
    assert.deepEqual([unlucky.status, unlucky.headers['privatemode-proxy-error']], [500, 'internal']);
    assert.equal((await ask(get('/healthz'))).status, 200);
    assert.match(gateway.logLines.join(''), /TypeError at Object\.cors.*Request failed/);
  });

  it('still answers after the listener has failed to accept a connection', async (t) => {
    const { ask } = await gatewayFixture(t);
    let server: Server | undefined;
    const seen = (message: unknown): void => {
      server = (message as { server: Server }).server;
    };
    subscribe('http.server.request.start', seen);
    t.after(() => unsubscribe('http.server.request.start', seen));
    await ask(get('/healthz'));
    for (let i = 0; i < 2; i++)
      server?.emit('error', Object.assign(new Error('accept ENFILE'), { code: 'ENFILE' }));
    assert.equal((await ask(get('/healthz'))).status, 200);
  });
});

it('a CONNECT whose connection is reset does not end the proxy', async (t) => {
  const server = createServer();
  const { hasBegunResponse } = trackConnections(server, systemClock);
  refuseMalformed(server, hasBegunResponse, systemClock);
  const asking = rawClient((await listening(t, server)).port);
  asking.send('CONNECT evil.example:443 HTTP/1.1\r\nHost: evil.example:443\r\n\r\n');
  const [, socket] = (await once(server, 'connect')) as [IncomingMessage, Socket];
  const closed = new Promise((resolve) => socket.on('close', resolve));
  socket.destroy(Object.assign(new Error('read ECONNRESET'), { code: 'ECONNRESET' })); // as Node does
  await closed;
});

describe('requests inside and after other requests', { concurrency: true }, () => {
  it('the body of a GET is neither waited for nor read as another request', async (t) => {
    const { upstream, sending } = await gatewayFixture(t);
    upstream.on((scripted) => scripted.write('HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}'));
    const asking = sending(get('/v1/models', ['Content-Length: 1000000']) + SMUGGLED);
    assert.match(String(await asking.ended), /^(?:end|ECONNRESET)$/);
    const answer = readAnswer(asking.received());
    assert.deepEqual([answer?.status, answer?.rest, answer?.headers['connection']], [200, '', 'close']);
    assert.deepEqual(
      upstream.requests.map(({ method, headers }) => [method, headers['content-length']]),
      [['GET', undefined]],
    );
  });

  it('40 pipelined requests, with and without bodies, get each its own response, in their order', async (t) => {
    const { client, upstream } = await gatewayFixture(t);
    upstream.on(async (scripted) => {
      const body = await scripted.body();
      if (scripted.request.method === 'GET') return scripted.write(http(200, '{"data":[]}'));
      const content = JSON.parse(openedRequest(body).get('user')!) as string;
      const choices = [{ index: 0, message: { role: 'assistant', content }, finish_reason: 'stop' }];
      const answer = sealedAnswers(body).object({ ...COMPLETION, choices });
      return scripted.write(http(200, answer, { 'Content-Type': 'application/json' }));
    });
    const asking = client();
    const users = Array.from({ length: 20 }, (_, i) => `${i}${'x'.repeat(i * 700)}`);
    for (const user of users) {
      asking.send(post(chatBody({ user })));
      asking.send(get('/v1/models'));
    }
    let at = 0;
    for (const said of users.flatMap((user) => [user, undefined])) {
      const answer = await eventually('an answer', () => {
        const read = readAnswer(asking.received().slice(at));
        return read?.complete ? read : undefined;
      });
      at = asking.received().length - answer.rest.length;
      assert.equal(JSON.parse(answer.body).choices?.[0].message.content, said);
    }
  });

  it('of 20 pipelined requests one at a time begins, and none does once their client has left', async (t) => {
    const { upstream, gateway, sending } = await gatewayFixture(t);
    upstream.on(async (scripted) => void (await scripted.body()));
    const asking = sending(get('/v1/models').repeat(20));
    await eventually('the first at the service', () => upstream.requests.length === 1);
    asking.socket.resetAndDestroy();
    await eventually('their end', () => gateway.active() === 0);
    await eventually('the end of their connections', () => upstream.connections.open === 0);
    assert.equal(upstream.requests.length, 1);
  });

  it('a client that sends more than 100 requests ahead loses its connection', async (t) => {
    const { upstream, gateway, sending } = await gatewayFixture(t);
    upstream.on(async (scripted) => void (await scripted.body()));
    await sending(get('/v1/models').repeat(101)).ended;
    await eventually('the end of all', () => gateway.active() === 0);
    assert.ok(upstream.requests.length <= 1);
  });

  it('garbage after a request ends the connection, and gets no response of its own', async (t) => {
    const { upstream, sending } = await gatewayFixture(t);
    const left = Promise.withResolvers<void>();
    upstream.on(inTwoParts(left.promise));
    const asking = sending(post(chatBody({ stream: true })));
    await asking.until(/"hel"/);
    asking.send('GARBAGE\r\n\r\n');
    await asking.ended;
    left.resolve();
    assert.equal(asking.received().split('HTTP/1.1').length, 2);
    assert.doesNotMatch(asking.received(), / 400 /);
  });
});
