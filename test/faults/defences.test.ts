/** Two defences as the service and a web page would see them, over real sockets. */
import assert from 'node:assert/strict';
import { request } from 'node:http';
import { after, before, describe, it } from 'node:test';
import { type Stack, startStack } from '../support/doors/stack.ts';
import { bodyOf } from './ask.ts';

describe('the defences', () => {
  let stack: Stack;
  before(async () => {
    stack = await startStack();
  });
  after(() => stack.close());

  /** A chat with these headers; resolves with the status. */
  function chat(headers: Readonly<Record<string, string>>): Promise<number> {
    const { promise, resolve, reject } = Promise.withResolvers<number>();
    const body = bodyOf({ style: 'openai', mode: 'unary', model: 'sim-echo', prompt: 'x' });
    request(`${stack.url}/v1/chat/completions`, { method: 'POST', agent: false, headers }, (res) => {
      res.resume().on('close', () => resolve(res.statusCode as number));
    })
      .on('error', reject)
      .end(body);
    return promise;
  }

  it('headers that tell who asks do not reach the service', async () => {
    const telling = {
      cookie: 'session=1',
      'user-agent': 'an agent',
      'x-forwarded-for': '10.0.0.1',
      referer: 'http://intranet.example/',
      'x-session-id': '1',
      'x-stainless-os': 'Linux',
      'privatemode-shard-key': 'mine',
    };
    assert.equal(await chat({ ...telling, 'content-type': 'application/json' }), 200);
    const [seen] = stack.simulator.recorder.requests().filter(({ path }) => path.startsWith('/v1/'));
    assert.ok(seen);
    for (const name of Object.keys(telling)) assert.equal(seen.headers[name], undefined, name);
    assert.deepEqual(stack.simulator.exchanges.violations(), []);
  });

  it('a web page of another origin spends no key: 403, and nothing leaves', async () => {
    const before = stack.simulator.counts['inference'];
    assert.equal(await chat({ origin: 'https://evil.example' }), 403);
    assert.equal(await chat({ 'sec-fetch-site': 'cross-site' }), 403);
    assert.equal(stack.simulator.counts['inference'], before);
  });
});
