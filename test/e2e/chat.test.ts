/**
 * A chat completion, end to end: what tests of applications (test/applications) do not look at. They have the
 * words, the errors and the aborts.
 */
import assert from 'node:assert/strict';
import { request } from 'node:http';
import { after, before, describe, it } from 'node:test';
import OpenAI from 'openai';
import { type Stack, startStack } from '../support/doors/stack.ts';

describe('the proxy in front of a chat model', () => {
  let stack: Stack;
  let client: OpenAI;
  before(async () => {
    stack = await startStack();
    client = new OpenAI({ baseURL: `${stack.url}/v1`, apiKey: 'placeholder', maxRetries: 0 });
  });
  after(() => stack.close());

  it('has headers in a response that name the secret, the manifest, the time of attestation and the request', async () => {
    const { response } = await client.chat.completions
      .create({ model: 'sim-echo', messages: [{ role: 'user', content: 'x' }] })
      .withResponse();
    const epoch = stack.proxy.session.current();
    assert.equal(response.headers.get('privatemode-proxy-secret-id'), epoch?.secretId);
    assert.equal(response.headers.get('privatemode-proxy-manifest-sha256'), stack.simulator.manifestSha256);
    assert.match(response.headers.get('privatemode-proxy-attested-at') ?? '', /^\d{4}-\d\d-\d\dT/);
    assert.match(response.headers.get('privatemode-proxy-request-id') ?? '', /^proxy_[0-9a-f-]{36}$/);
  });

  it('logs one line that says that it is ready, with the base URLs of both APIs', () => {
    const ready = stack.logLines.map((line) => JSON.parse(line)).filter(({ msg }) => msg.startsWith('Ready'));
    assert.deepEqual(
      ready.map(({ time: _, ...rest }) => rest),
      [
        {
          level: 'INFO',
          msg: 'Ready: the remote is verified. Base URLs for clients:',
          openai: `${stack.url}/v1`,
          anthropic: stack.url,
        },
      ],
    );
  });

  it('passes events on at the pace of the model, without buffering them', async () => {
    // How many events the model had written when each piece arrived, so that a slow machine changes nothing.
    const written = await streamArrivals(
      stack.url,
      'sim-10x60',
      () => stack.simulator.exchanges.last()?.written ?? 0,
    );
    assert.ok(written.length >= 10, `only ${written.length} chunks arrived`);
    assert.ok(new Set(written).size >= 8, `pieces arrived when the model had written ${written.join(', ')}`);
  });
});

function post(url: string, body: object): ReturnType<typeof request> {
  return request(`${url}/v1/chat/completions`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
  }).end(JSON.stringify(body));
}

function streamArrivals(url: string, model: string, at: () => number): Promise<number[]> {
  const { promise, resolve, reject } = Promise.withResolvers<number[]>();
  const arrivals: number[] = [];
  post(url, { model, stream: true, messages: [{ role: 'user', content: 'x' }] })
    .on('response', (res) => {
      res.on('data', () => arrivals.push(at()));
      res.on('end', () => resolve(arrivals));
      res.on('error', reject);
    })
    .on('error', reject);
  return promise;
}
