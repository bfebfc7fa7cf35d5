/**
 * A chat completion, end to end: what tests of applications (test/applications) do not look at. They have the words, the errors and the aborts.
 */
import assert from 'node:assert/strict';
import { request } from 'node:http';
import { after, before, describe, it } from 'node:test';
import OpenAI from 'openai';
import { type Stack, startStack } from '../support/doors/stack.ts';

describe('the proxy and a chat completion, end to end', () => {
  let stack: Stack;
  let client: OpenAI;
  before(async () => {
    stack = await startStack();
    client = new OpenAI({ baseURL: `${stack.url}/v1`, apiKey: 'placeholder', maxRetries: 0 });
  });
  after(() => stack.close());

  it('name in headers what protected the answer', async () => {
    const { response } = await client.chat.completions
      .create({ model: 'sim-echo', messages: [{ role: 'user', content: 'x' }] })
      .withResponse();
    const epoch = stack.proxy.session.current();
    assert.equal(response.headers.get('privatemode-proxy-secret-id'), epoch?.secretId);
    assert.equal(response.headers.get('privatemode-proxy-manifest-sha256'), stack.simulator.manifestSha256);
    assert.match(response.headers.get('privatemode-proxy-attested-at') ?? '', /^\d{4}-\d\d-\d\dT/);
    assert.match(response.headers.get('privatemode-proxy-request-id') ?? '', /^proxy_[0-9a-f-]{36}$/);
  });

  it('begin with one line in the log that says the proxy is ready, with the base URLs of both APIs', () => {
    const ready = stack.logLines.map((line) => JSON.parse(line)).filter(({ msg }) => msg.startsWith('Ready'));
    assert.deepEqual(
      ready.map(({ time: _, ...rest }) => rest),
      [
        {
          level: 'INFO',
          msg: 'Ready: the remote is verified. Base URLs for clients:',
          openai: `${stack.url}/v1`,
          anthropic: stack.url,
          manifestSha256: stack.simulator.manifestSha256,
          tee: 'snp',
        },
      ],
    );
  });

  it('follow the pace of the model: events are not gathered', async () => {
    const arrivals = await streamArrivals(stack.url, 'sim-10x60');
    assert.ok(arrivals.length >= 10, `only ${arrivals.length} chunks arrived`);
    const gaps = arrivals.slice(1).map((time, i) => time - (arrivals[i] as number));
    const paced = gaps.filter((gap) => gap > 30 && gap < 120).length;
    assert.ok(paced >= 8, `gaps of ${gaps.map(Math.round).join(', ')} ms do not follow a pace of 60 ms`);
  });
});

function post(url: string, body: object): ReturnType<typeof request> {
  return request(`${url}/v1/chat/completions`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
  }).end(JSON.stringify(body));
}

function streamArrivals(url: string, model: string): Promise<number[]> {
  const { promise, resolve, reject } = Promise.withResolvers<number[]>();
  const arrivals: number[] = [];
  post(url, { model, stream: true, messages: [{ role: 'user', content: 'x' }] })
    .on('response', (res) => {
      res.on('data', () => arrivals.push(performance.now()));
      res.on('end', () => resolve(arrivals));
      res.on('error', reject);
    })
    .on('error', reject);
  return promise;
}
