/** One attempt by itself: what becomes of it, of its body and of its listeners when it is cut short. */
import assert from 'node:assert/strict';
import { getEventListeners, once } from 'node:events';
import {
  Agent,
  type ClientRequest,
  createServer,
  type Server,
  type ServerResponse,
  request as send,
} from 'node:http';
import { type AddressInfo, createServer as listenRaw } from 'node:net';
import { Readable } from 'node:stream';
import { describe, it, type TestContext } from 'node:test';
import { PrivatemodeError } from '../../lib/errors.ts';
import { beginAttempt, type UpstreamResponse } from '../../lib/pipeline/attempt.ts';
import type { UpstreamFailure } from '../../lib/pipeline/upstream-failure.ts';

const TIMEOUTS = { connectTimeout: 5_000, firstByteTimeout: 5_000 };
const REASON = new PrivatemodeError('shutting_down', 'the proxy was shut down');

const attemptOf = (signal: AbortSignal, body?: Readable) => ({
  method: 'POST',
  path: '/',
  headers: {},
  body,
  fresh: false,
  signal,
});

/** A request to that server, unsent, as the proxy library makes it. */
async function unsent(t: TestContext, handle: (res: ServerResponse) => void): Promise<ClientRequest> {
  const server: Server = createServer((req, res) => {
    req.on('error', () => {}).resume();
    handle(res);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  const request = send({ port: (server.address() as AddressInfo).port, method: 'POST', agent: false });
  request.on('error', () => {});
  return request;
}

/** A body that has begun and never ends. */
const endless = (): Readable => {
  const body = new Readable({ read() {} });
  body.push('some of it');
  return body;
};

describe('an attempt', () => {
  it('under a signal that has aborted already is over, with its reason', async () => {
    const { outcome } = beginAttempt(attemptOf(AbortSignal.abort(REASON)), TIMEOUTS);
    await assert.rejects(outcome, { error: REASON });
  });

  it('destroys its request when the signal aborts, and lets go of its body and of the signal', async (t) => {
    const control = new AbortController();
    const request = await unsent(t, () => control.abort(REASON));
    const body = endless();
    const { outcome, body: source } = beginAttempt(attemptOf(control.signal, body), TIMEOUTS);
    source.pipe(request);
    await assert.rejects(outcome, { error: REASON });
    await once(body, 'close');
    assert.deepEqual([request.destroyed, body.destroyed], [true, true]);
    assert.equal(getEventListeners(control.signal, 'abort').length, 0);
  });

  it('whose connection breaks lets go of its body', async (t) => {
    const control = new AbortController();
    const request = await unsent(t, (res) => res.socket?.resetAndDestroy());
    const body = endless();
    const { outcome, body: source } = beginAttempt(attemptOf(control.signal, body), TIMEOUTS);
    source.pipe(request);
    const closed = once(body, 'close');
    await assert.rejects(outcome);
    await closed;
    assert.equal(getEventListeners(control.signal, 'abort').length, 0);
  });

  it('is not repeated once a byte of an answer has come, on a connection that was used before either', async (t) => {
    const answers = ['HTTP/1.1 204 No Content\r\n\r\n', 'this is not HTTP\r\n'];
    const server = listenRaw((socket) => {
      socket.on('error', () => {}).on('data', () => socket.write(answers.shift() ?? ''));
    });
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    const agent = new Agent({ keepAlive: true, maxSockets: 1 });
    t.after(() => {
      agent.destroy();
      server.close();
    });
    const { port } = server.address() as AddressInfo;
    const begin = (): { readonly request: ClientRequest; readonly outcome: Promise<UpstreamResponse> } => {
      const { outcome, body, fail } = beginAttempt(attemptOf(new AbortController().signal), TIMEOUTS);
      return { request: body.pipe(send({ port, agent }).on('error', fail)), outcome };
    };
    const { response } = await begin().outcome;
    await once(response.resume(), 'close');
    const { request, outcome } = begin();
    await assert.rejects(outcome, (failure: UpstreamFailure) => {
      assert.equal(failure.error.code, 'response_malformed');
      assert.equal(failure.retry, undefined);
      return true;
    });
    assert.equal(request.reusedSocket, true);
  });

  it('whose body fails after the answer has begun sends no more', async (t) => {
    const control = new AbortController();
    const request = await unsent(t, (res) => res.writeHead(200).write('early'));
    const body = endless();
    const { outcome, body: source } = beginAttempt(attemptOf(control.signal, body), TIMEOUTS);
    source.pipe(request);
    const { response } = await outcome;
    response.on('error', () => {});
    body.destroy(new Error('sealing failed'));
    await once(request, 'close');
    assert.equal(request.destroyed, true);
  });

  it('whose answer ends before the body stops sending', async (t) => {
    const control = new AbortController();
    const request = await unsent(t, (res) => res.end('early'));
    const body = endless();
    const { outcome, body: source } = beginAttempt(attemptOf(control.signal, body), TIMEOUTS);
    source.pipe(request);
    (await outcome).response.resume();
    await once(body, 'close');
    assert.equal(request.destroyed, true);
  });
});
