import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer, type IncomingMessage, type RequestListener, request, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterEach, beforeEach, describe, it } from 'node:test';
import { systemClock } from '../../lib/clock.ts';
import { startRelay } from '../../lib/commands/run-relay.ts';
import { serveHttps } from '../support/remote/loopback.ts';
import { createTestAuthority } from '../support/remote/tls-authority.ts';

const NAMED = '{"name":"privatemode-proxy"}';

describe('the port that privatemode-proxy run opens for an agent', { timeout: 600_000 }, () => {
  let proxy: Server;
  let port: number;
  let relay: Awaited<ReturnType<typeof startRelay>>;
  /** Method and path of what the proxy got, without GET /v1. */
  let got: string[];
  let gotHeaders: IncomingMessage['headers'];
  let gotBody: string;

  async function listen(answer: RequestListener, name = NAMED, at = 0): Promise<void> {
    proxy = createServer(async (req, res) => {
      if (req.url === '/v1') return res.end(name);
      got.push(`${req.method} ${req.url}`);
      gotHeaders = req.headers;
      gotBody = Buffer.concat(await req.toArray()).toString();
      return answer(req, res);
    });
    proxy.listen(at, '127.0.0.1');
    await once(proxy, 'listening');
    port = (proxy.address() as AddressInfo).port;
  }
  async function stop(): Promise<void> {
    const closed = proxy.listening ? once(proxy, 'close') : undefined;
    proxy.close();
    proxy.closeAllConnections();
    await closed;
  }
  /** Another program in its place. */
  async function replace(answer: RequestListener, name = NAMED): Promise<void> {
    await stop();
    await listen(answer, name, port);
  }
  beforeEach(async () => {
    got = [];
    await listen((_, res) => res.end('answered'));
    relay = await startRelay({ url: `http://127.0.0.1:${port}`, headers: {}, ca: undefined }, systemClock);
  });
  afterEach(async () => {
    relay.close();
    await stop();
  });

  const post = (path = '/v1/messages', body = '{}') => fetch(`${relay.url}${path}`, { method: 'POST', body });
  async function refusal(path?: string) {
    const response = await post(path);
    assert.equal(response.headers.get('content-type'), 'application/json');
    const { type, error } = (await response.json()) as {
      type: string;
      error: { type: string; message: string };
    };
    assert.deepEqual([response.status, type, error.type], [503, 'error', 'api_error']);
    return { message: error.message, retryAfter: response.headers.get('retry-after') };
  }
  const gone = () =>
    new RegExp(`^the proxy on http://127\\.0\\.0\\.1:${port} does not answer .* this session goes on$`);

  it('passes a request and its response on', async () => {
    await replace((_, res) => {
      const headers = ['X-Twice', '1', 'X-Twice', '2', 'Date', 'then', 'content-type', 'text/plain'];
      res.writeHead(418, 'Short And Stout', headers).end('b\u00e4ck');
    });
    const headers = { 'X-Case': 'Kept', 'content-type': 'application/json', 'content-length': '4' };
    const asked = request(`${relay.url}/v1/messages?beta=true&x=%2F`, { method: 'POST', headers });
    const [response] = (await once(asked.end('"\u00e4"'), 'response')) as [IncomingMessage];
    assert.equal(Buffer.concat(await response.toArray()).toString(), 'b\u00e4ck');
    assert.deepEqual([response.statusCode, response.statusMessage], [418, 'Short And Stout']);
    assert.deepEqual(response.headers['x-twice'], '1, 2');
    assert.deepEqual(response.headersDistinct['date'], ['then']);
    assert.deepEqual([got, gotBody], [['POST /v1/messages?beta=true&x=%2F'], '"\u00e4"']);
    assert.equal(gotHeaders['x-case'], 'Kept');
    assert.deepEqual([relay.prompts(), relay.failed()], [1, 0]);
  });

  it('passes on the head and each event before the response has ended', async () => {
    const going = Promise.withResolvers<void>();
    await replace(async (_, res) => {
      res.flushHeaders();
      await going.promise;
      res.write('event');
      await once(res, 'close');
    });
    const response = await post();
    assert.equal(response.status, 200);
    going.resolve();
    const { value } = (await response.body?.getReader().read()) ?? {};
    assert.equal(Buffer.from(value ?? '').toString(), 'event');
  });

  it('ends the request to the proxy if the agent hangs up, and counts no failure', async () => {
    const ended = Promise.withResolvers<void>();
    await replace((_, res) => {
      res.once('close', ended.resolve);
      if (got.length === 1) res.write('event');
      else res.end('event');
    });
    const abort = new AbortController();
    await fetch(`${relay.url}/v1/messages`, { method: 'POST', body: '{}', signal: abort.signal });
    abort.abort();
    await ended.promise;
    assert.equal(await (await post('/v1/models')).text(), 'event');
    assert.equal(relay.failed(), 0);
  });

  for (const [path, retryAfter] of [
    ['/v1/messages', null],
    ['/v1/responses', '5'],
  ] as const) {
    it(`answers ${path} with 503 while no proxy listens, and passes requests on again once one does`, async () => {
      await stop();
      for (const refused of [await refusal(path), await refusal(path)]) {
        assert.match(refused.message, gone());
        assert.equal(refused.retryAfter, retryAfter);
      }
      await listen((_, res) => res.end('back'), NAMED, port);
      assert.equal(await (await post(path)).text(), 'back');
      assert.deepEqual([got, relay.prompts(), relay.failed()], [[`POST ${path}`], 3, 2]);
    });
  }

  it('breaks off a response that has begun if the proxy dies', async () => {
    await replace((_, res) => res.write('half', () => void stop()));
    const response = await post();
    assert.equal(response.status, 200);
    await assert.rejects(response.text());
    assert.equal(relay.failed(), 0, 'it did answer; the service may have ended it');
  });

  for (const [what, name] of [
    ['of another name', '{"name":"other"}'],
    ['that speaks no JSON', '<html>'],
    ['whose JSON is no object', 'null'],
  ] as const) {
    it(`gives no prompt to a program ${what} that has taken over the port of the proxy`, async () => {
      assert.equal(await (await post()).text(), 'answered');
      await replace((_, res) => res.end('stolen'), name);
      const words = `another program than the proxy answers on http://127.0.0.1:${port}: start the proxy there`;
      const { message } = await refusal();
      assert.ok(message.startsWith(words), message);
      assert.deepEqual(got, ['POST /v1/messages']);
    });
  }

  it('passes requests to a gateway with TLS, under its name and with the token, and none to another one', async (t) => {
    const authority = createTestAuthority('a CA of the team');
    const { port: at } = await serveHttps(t, authority.issue(['localhost']), async (req, res) => {
      if (req.headers.authorization !== 'Bearer own') return res.writeHead(401).end();
      if (req.url === '/team/v1') return res.end(NAMED);
      got.push(`${req.method} ${req.url} of ${req.headers.host}`);
      await req.toArray();
      res.end('of the team');
    });
    relay.close();
    const url = `https://localhost:${at}/team`;
    const headers = { authorization: 'Bearer own' };
    relay = await startRelay({ url, headers, ca: [authority.pem] }, systemClock);
    const body = JSON.stringify({ model: 'm' });
    const asking = (name: string, key: string) =>
      fetch(`${relay.url}/v1/messages`, { method: 'POST', body, headers: { [name]: key } });
    assert.equal(await (await asking('authorization', `Bearer ${relay.key}`)).text(), 'of the team');
    assert.equal((await asking('authorization', 'Bearer placeholder')).status, 401, 'of another program');
    assert.equal(await (await asking('x-api-key', relay.key)).text(), 'of the team');
    const passed = `POST /team/v1/messages of localhost:${at}`;
    assert.deepEqual(got, [passed, passed]);
    relay.close();
    relay = await startRelay({ url, headers, ca: [createTestAuthority('another').pem] }, systemClock);
    assert.match((await refusal()).message, /does not answer/);
    assert.equal(got.length, 2);
  });
});
