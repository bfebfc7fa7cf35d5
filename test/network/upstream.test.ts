/** One attempt by itself: what becomes of it, of its body and of its listeners when it is cut short. */
import assert from 'node:assert/strict';
import { EventEmitter, getEventListeners, once } from 'node:events';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { Agent } from 'node:https';
import { Readable } from 'node:stream';
import { describe, it, type TestContext } from 'node:test';
import { PrivatemodeError } from '../../lib/errors.ts';
import { createUpstream, type UpstreamResponse } from '../../lib/network/upstream.ts';
import type { UpstreamFailure } from '../../lib/network/upstream-failure.ts';
import { keptOfEach } from '../support/processes/kept.ts';
import { type Script, startScriptedUpstream } from '../support/remote/scripted-upstream.ts';

const REASON = new PrivatemodeError('shutting_down', 'the proxy was shut down');

/** A body that has begun and never ends. */
const endless = (): Readable => {
  const body = new Readable({ read() {} });
  body.push('some of it');
  return body;
};

/** The request of an application, whose head is not the one that leaves. */
function application(): IncomingMessage {
  const head = { method: 'PUT', url: '/own?of=1', headers: { accept: 'own/*' }, httpVersionMajor: 1 };
  return Object.assign(new EventEmitter(), { ...head, socket: {} }) as unknown as IncomingMessage;
}

/** Sends attempts to a remote that follows the script; the exchange they belong to is over when the test ends. */
async function sending(t: TestContext, ...scripts: readonly Script[]) {
  const remote = await startScriptedUpstream();
  remote.on(...scripts);
  const agent = new Agent({ keepAlive: true, maxSockets: 1, ca: remote.ca });
  const announced: number[] = [];
  const upstream = createUpstream({
    host: 'localhost',
    port: remote.port,
    agent,
    freshAgent: agent,
    connectTimeout: 5_000,
    firstByteTimeout: 5_000,
    connections: { announce: (ms) => announced.push(ms) },
  });
  const res = Object.assign(new EventEmitter(), { writableFinished: false });
  t.after(async () => {
    res.emit('close');
    agent.destroy();
    await remote.close();
  });
  const send = (
    signal: AbortSignal,
    body?: Readable,
    { req = application(), more = {} }: { req?: IncomingMessage; more?: Record<string, string> } = {},
  ): Promise<UpstreamResponse> =>
    upstream.send(req, res as unknown as ServerResponse, {
      method: 'POST',
      path: '/',
      headers: {
        host: 'localhost',
        ...(body === undefined ? { 'content-length': '0' } : { 'content-length': '100' }),
        ...more,
      },
      body,
      fresh: false,
      signal,
    });
  return Object.assign(send, { announced, res });
}

const unused = (): AbortSignal => new AbortController().signal;

describe('the authority of the remote', () => {
  for (const [host, port, authority] of [
    ['service.example', 443, 'service.example'],
    ['service.example', 8443, 'service.example:8443'],
    ['::1', 443, '[::1]'],
    ['::1', 8443, '[::1]:8443'],
  ] as const) {
    it(`names the port unless it is that of HTTPS: ${host}, ${port}`, (t) => {
      const agent = new Agent();
      t.after(() => agent.destroy());
      const limits = { connectTimeout: 5_000, firstByteTimeout: 5_000 };
      assert.equal(createUpstream({ host, port, agent, freshAgent: agent, ...limits }).authority, authority);
    });
  }
});

describe('an attempt', () => {
  it('under a signal that has aborted already is over, with its reason', async (t) => {
    const send = await sending(t, () => {});
    await assert.rejects(send(AbortSignal.abort(REASON)), {
      code: REASON.code,
      message: REASON.message,
    });
  });

  it('destroys its request when the signal aborts, and releases its body and the signal', async (t) => {
    const control = new AbortController();
    const send = await sending(t, () => control.abort(REASON));
    const body = endless();
    await assert.rejects(send(control.signal, body), {
      code: REASON.code,
      message: REASON.message,
    });
    await once(body, 'close');
    assert.equal(getEventListeners(control.signal, 'abort').length, 0);
  });

  it('whose connection breaks releases its body', async (t) => {
    const { signal } = new AbortController();
    const send = await sending(t, (scripted) => scripted.reset());
    const body = endless();
    const closed = once(body, 'close');
    await assert.rejects(send(signal, body));
    await closed;
    assert.equal(getEventListeners(signal, 'abort').length, 0);
  });

  it('is not repeated once a byte of a response has come, on a connection that was used before either', async (t) => {
    const send = await sending(
      t,
      (scripted) => scripted.write('HTTP/1.1 204 No Content\r\n\r\n'),
      (scripted) => scripted.write('this is not HTTP\r\n'),
    );
    const { response } = await send(unused());
    await once(response.resume(), 'close');
    await assert.rejects(send(unused()), (failure: UpstreamFailure) => {
      assert.equal(failure.code, 'response_malformed');
      assert.equal(failure.retry, undefined);
      return true;
    });
  });

  it('tells for how long the service keeps an idle connection, where it says so', async (t) => {
    const head = 'HTTP/1.1 204 No Content\r\n';
    const send = await sending(
      t,
      (scripted) => scripted.write(`${head}\r\n`),
      (scripted) => scripted.write(`${head}Keep-Alive: timeout=7, max=100\r\n\r\n`),
    );
    for (const announced of [[], [7_000]]) {
      const { response } = await send(unused());
      await once(response.resume(), 'close');
      assert.deepEqual(send.announced, announced);
    }
  });

  it('whose body fails after the response has begun sends no more', async (t) => {
    const send = await sending(t, (scripted) =>
      scripted.write('HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nearly\r\n'),
    );
    const body = endless();
    const { response, request } = await send(unused(), body);
    response.on('error', () => {});
    body.destroy(new Error('encryption failed'));
    await once(request, 'close');
    assert.equal(request.destroyed, true);
  });

  it('whose response ends before the body stops sending', async (t) => {
    const send = await sending(t, (scripted) =>
      scripted.write('HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nearly'),
    );
    const body = endless();
    const { response, request } = await send(unused(), body);
    response.resume();
    await once(body, 'close');
    assert.equal(request.destroyed, true);
  });
});

describe("the application's request", () => {
  const answering: Script = (scripted) => scripted.write('HTTP/1.1 204 No Content\r\n\r\n');
  const assertOwn = (req: IncomingMessage, headers: IncomingMessage['headers']): void => {
    assert.deepEqual([req.method, req.url], ['PUT', '/own?of=1']);
    assert.equal(req.headers, headers);
    assert.deepEqual(headers, { accept: 'own/*' });
  };

  it('has its own head as soon as an attempt is under way', async (t) => {
    const send = await sending(t, answering);
    const req = application();
    const { headers } = req;
    const outcome = send(unused(), undefined, { req });
    assertOwn(req, headers);
    const { response } = await outcome;
    await once(response.resume(), 'close');
    assertOwn(req, headers);
  });

  it('has its own head although an attempt could not begin', async (t) => {
    const send = await sending(t, answering);
    const req = application();
    const { headers } = req;
    const outcome = send(unused(), undefined, { req, more: { 'x-broken': 'a\nb' } });
    assertOwn(req, headers);
    await assert.rejects(outcome, /before it answered/);
  });

  it('and its response have no listener of an attempt that is over, and a late error of it does no harm', async (t) => {
    const send = await sending(t, (scripted) => scripted.reset(), answering);
    const req = application();
    await assert.rejects(send(unused(), undefined, { req }));
    const { response } = await send(unused(), undefined, { req });
    await once(response.resume(), 'close');
    assert.deepEqual([req.eventNames(), send.res.eventNames()], [['error'], []]);
    assert.equal(req.listenerCount('error'), 1);
    req.emit('error', new Error('aborted'));
  });
});

describe('between two full collections', () => {
  for (const [what, bytes, req] of [
    ['an attempt', 91, undefined],
    ['an attempt without a body', undefined, undefined],
    ['an attempt of a request that goes on', 91, application()],
  ] as const) {
    it(`${what} that is over holds on to nothing`, async (t) => {
      const script: Script = (scripted) => scripted.write('HTTP/1.1 204 No Content\r\n\r\n');
      const send = await sending(t, ...Array.from({ length: 32 }, () => script));
      const kilobytes = await keptOfEach(async (ballast) => {
        const body = bytes === undefined ? undefined : endless();
        body?.push(Buffer.alloc(bytes ?? 0));
        body?.push(null);
        const { response } = await send(Object.assign(unused(), { ballast }), body, {
          req: req ?? application(),
        });
        await once(response.resume(), 'close');
      });
      // Some are caught under way, and kept like everything that is in use then.
      assert.ok(kilobytes < 300, `${kilobytes} KB of each attempt`);
    });
  }
});
