/** One attempt by itself: what becomes of it, of its body and of its listeners when it is cut short. */
import assert from 'node:assert/strict';
import { EventEmitter, once } from 'node:events';
import type { ServerResponse } from 'node:http';
import type { AgentOptions } from 'node:https';
import { createServer } from 'node:net';
import { Readable } from 'node:stream';
import { describe, it, type TestContext } from 'node:test';
import { Deadline, systemClock } from '../../lib/clock.ts';
import { PrivatemodeError } from '../../lib/errors.ts';
import { ServiceAgent } from '../../lib/network/agent.ts';
import { createOutbound } from '../../lib/network/outbound.ts';
import type { UpstreamFailure } from '../../lib/network/transport-errors.ts';
import { createUpstream, type UpstreamResponse } from '../../lib/network/upstream.ts';
import { eventually } from '../support/processes/eventually.ts';
import { keptOfEach } from '../support/processes/kept.ts';
import { listening } from '../support/remote/loopback.ts';
import { type Script, startScriptedUpstream } from '../support/remote/scripted-upstream.ts';

const REASON = new PrivatemodeError('shutting_down', 'the proxy was shut down');
const ABORTED = { code: 'shutting_down', message: 'the proxy was shut down' };
const NO_CONTENT = 'HTTP/1.1 204 No Content\r\n\r\n';
const LIMITS = { clock: systemClock, connectTimeout: 1_000, firstByteTimeout: 60_000 };

/** A body that has begun and never ends. */
const endless = (): Readable => {
  const body = new Readable({ read() {} });
  body.push('some of it');
  return body;
};

/** An agent of the data path without a proxy. */
const agentWith = (options: AgentOptions, port = 443): ServiceAgent =>
  new ServiceAgent(
    options,
    { host: 'localhost', port, count: 0 },
    async (_host, _port, secure) => secure(),
    systemClock,
  );

/**
 * A function that sends attempts; each belongs to an exchange of its own, which is over when `res` closes.
 */
function sender(host: string, port: number, agent: ServiceAgent) {
  const upstream = createUpstream({ host, port, agent, freshAgent: agent, ...LIMITS });
  return (
    signal: AbortSignal,
    body?: Readable | Uint8Array,
    more: Record<string, string> = {},
    res = new EventEmitter(),
  ): Promise<UpstreamResponse> => {
    const headers = { host, 'content-length': body === undefined ? '0' : '100', ...more };
    const deadline = new Deadline(LIMITS.clock);
    const attempt = { method: 'POST', path: '/', headers, body, fresh: false, deadline, sent() {} };
    const sending = upstream.send(res as ServerResponse, attempt);
    signal.addEventListener('abort', () => sending.stop(signal.reason));
    return sending.outcome;
  };
}

/** Sends attempts to a remote that follows the scripts, over one connection at a time. */
async function sending(t: TestContext, ...scripts: readonly Script[]) {
  const remote = await startScriptedUpstream();
  remote.on(...scripts);
  const agent = agentWith({ keepAlive: true, maxSockets: 1, ca: remote.ca }, remote.port);
  t.after(async () => {
    agent.destroy();
    await remote.close();
  });
  return Object.assign(sender('localhost', remote.port, agent), { remote, agent });
}

const unused = (): AbortSignal => new AbortController().signal;

/** Sends a request that gets no response; resolves with the failure. */
const failureWith = (
  { host, port, agent }: { host: string; port: number; agent: ServiceAgent },
  res?: EventEmitter,
): Promise<UpstreamFailure> =>
  sender(host, port, agent)(
    unused(),
    Readable.from([Buffer.from('body')]),
    { 'content-length': '4' },
    res,
  ).then(
    () => assert.fail('a response came'),
    (failure) => failure,
  );

it('the authority of the remote names the port unless it is that of HTTPS', () => {
  for (const [host, port, authority] of [
    ['service.example', 443, 'service.example'],
    ['service.example', 8443, 'service.example:8443'],
    ['::1', 443, '[::1]'],
  ] as const) {
    const agent = agentWith({});
    assert.equal(createUpstream({ host, port, agent, freshAgent: agent, ...LIMITS }).authority, authority);
  }
});

describe('an attempt to send a request', () => {
  it('destroys its request when it is stopped, and releases its body', async (t) => {
    const control = new AbortController();
    const send = await sending(t, () => control.abort(REASON));
    const body = endless();
    const closed = once(body, 'close');
    await assert.rejects(send(control.signal, body), ABORTED);
    await closed;
  });

  it('is not retried once a byte of a response has come, even on a reused connection', async (t) => {
    const send = await sending(
      t,
      (scripted) => scripted.write(NO_CONTENT),
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

  it('destroys its request if its body fails after the response has begun', async (t) => {
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

  it('stops sending its body if the response ends first', async (t) => {
    const send = await sending(t, (scripted) =>
      scripted.write('HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nearly'),
    );
    const body = endless();
    const { response, request } = await send(unused(), body, { 'content-length': '65537' });
    response.resume();
    await once(body, 'close');
    assert.equal(request.destroyed, true);
  });
});

it('an attempt fails by the time limit of the connection if it gets one through an HTTP proxy that a client abandoned before the TLS handshake', async (t) => {
  const ready = Promise.withResolvers<void>();
  const proxy = createServer((socket) =>
    socket.once('data', async () => {
      await ready.promise;
      socket.write('HTTP/1.1 200 Connection established\r\n\r\n');
    }),
  );
  const { port, total } = await listening(t, proxy);
  const env = { https_proxy: `http://127.0.0.1:${port}` };
  const outbound = createOutbound(env, { connectTimeout: 10_000, clock: systemClock });
  t.after(() => outbound.close());
  const place = { host: 'api.example', port: 443 };
  const agent = outbound.agent({ keepAlive: true }, { ...place, count: 0 });
  const response = new EventEmitter();
  const abandoned = failureWith({ ...place, agent }, response);
  await eventually('a tunnel that is asked for', () => total() === 1);
  response.emit('close'); // the client has left
  ready.resolve();
  await abandoned;
  await eventually('the connection in the agent', () => Object.keys(agent.freeSockets).length === 1);
  const { code, retry } = await failureWith({ ...place, agent });
  assert.deepEqual([code, retry, total()], ['upstream_connect_timeout', undefined, 1]);
});

it('an attempt that http-proxy-3 does not begin fails, and releases its body', async (t) => {
  const send = await sending(t);
  const body = endless();
  await assert.rejects(send(unused(), body, { 'x-broken': 'a\nb' }), /ERR_INVALID_CHAR/);
  assert.equal(body.destroyed, true);
});

it('an attempt that is over retains no memory between two full garbage collections', async (t) => {
  const script: Script = (scripted) => scripted.write(NO_CONTENT);
  const send = await sending(t, ...Array.from({ length: 32 }, () => script));
  for (const hasBody of [true, false]) {
    const kilobytes = await keptOfEach(async (ballast) => {
      const body = hasBody ? endless() : undefined;
      body?.push(Buffer.alloc(91));
      body?.push(null);
      const { response } = await send(Object.assign(unused(), { ballast }), body);
      await once(response.resume(), 'close');
    });
    // Some are caught under way, and kept like everything that is in use then.
    assert.ok(kilobytes < 300, `${kilobytes} KB of each attempt`);
  }
});
