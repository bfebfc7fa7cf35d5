/** The main job, end to end: a chat completion through proxy and simulator, over real sockets and real cryptography. */
import assert from 'node:assert/strict';
import { request } from 'node:http';
import { after, before, describe, it } from 'node:test';
import OpenAI from 'openai';
import { eventually } from '../support/eventually.ts';
import { type Stack, startStack } from '../support/stack.ts';

const CANARY = 'canary-7f3a9 the quick brown fox must not be seen on the wire';

describe('a chat completion', () => {
  let stack: Stack;
  let client: OpenAI;
  before(async () => {
    stack = await startStack();
    client = new OpenAI({ baseURL: `${stack.url}/v1`, apiKey: 'placeholder', maxRetries: 0 });
  });
  after(() => stack.close());

  it('streams every token, with a finish reason, through the official client', async () => {
    const stream = await client.chat.completions.create({
      model: 'sim-echo',
      messages: [{ role: 'user', content: CANARY }],
      stream: true,
    });
    let text = '';
    let finish: string | null | undefined;
    for await (const chunk of stream) {
      text += chunk.choices[0]?.delta.content ?? '';
      finish = chunk.choices[0]?.finish_reason ?? finish;
    }
    assert.equal(text.trim(), CANARY);
    assert.equal(finish, 'stop');
  });

  it('has one line in the log that says the proxy is ready, with the base URLs of both APIs', () => {
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

  it('answers without streaming', async () => {
    const completion = await client.chat.completions.create({
      model: 'sim-echo',
      messages: [{ role: 'user', content: CANARY }],
    });
    assert.equal(completion.choices[0]?.message.content?.trim(), CANARY);
  });

  it('carries tool calls both ways', async () => {
    const completion = await client.chat.completions.create({
      model: 'sim-tools',
      messages: [{ role: 'user', content: 'what is the weather?' }],
      tools: [
        {
          type: 'function',
          function: { name: 'get_weather', parameters: { type: 'object', properties: {} } },
        },
      ],
    });
    assert.equal(completion.choices[0]?.message.tool_calls?.[0]?.type, 'function');
  });

  it('gives errors of the model server their status and class', async () => {
    await assert.rejects(
      client.chat.completions.create({ model: 'sim-error-429', messages: [{ role: 'user', content: 'x' }] }),
      OpenAI.RateLimitError,
    );
  });

  it('says what protected each answer', async () => {
    const { response } = await client.chat.completions
      .create({ model: 'sim-echo', messages: [{ role: 'user', content: 'x' }] })
      .withResponse();
    const epoch = stack.proxy.session.current();
    assert.equal(response.headers.get('privatemode-proxy-secret-id'), epoch?.secretId);
    assert.equal(response.headers.get('privatemode-proxy-manifest-sha256'), stack.simulator.manifestSha256);
    assert.match(response.headers.get('privatemode-proxy-attested-at') ?? '', /^\d{4}-\d\d-\d\dT/);
    assert.match(response.headers.get('privatemode-proxy-request-id') ?? '', /^proxy_[0-9a-f-]{36}$/);
  });

  it('lets no byte of the prompt or the answer cross the wire in clear', async () => {
    assert.ok(stack.simulator.recorder.requests().length > 0, 'the recorder saw nothing at all');
    assert.equal(stack.simulator.recorder.containing('canary-7f3a9').length, 0);
    assert.equal(stack.simulator.recorder.containing('weather').length, 0);
    assert.deepEqual(stack.simulator.exchanges.violations(), []);
    assert.ok(!stack.logLines.join('').includes('canary-7f3a9'));
  });

  it('follows the pace of the model: events are not gathered', async () => {
    const arrivals = await streamArrivals(stack.url, 'sim-10x60');
    assert.ok(arrivals.length >= 10, `only ${arrivals.length} chunks arrived`);
    const gaps = arrivals.slice(1).map((time, i) => time - (arrivals[i] as number));
    const paced = gaps.filter((gap) => gap > 30 && gap < 120).length;
    assert.ok(paced >= 8, `gaps of ${gaps.map(Math.round).join(', ')} ms do not follow a pace of 60 ms`);
  });

  it('closes the upstream request within 50 ms when the client goes away in mid-stream', async () => {
    const goneAt = await abortAfterFirstToken(stack.url);
    const exchange = stack.simulator.exchanges.last();
    await eventually('the end of the exchange', () => exchange?.closedEarlyAt !== undefined);
    const after = (exchange?.closedEarlyAt ?? Number.NaN) - goneAt;
    assert.ok(after < 50, `closed after ${after} ms`);
  });

  it('never lets an upstream that dies in mid-stream look like a clean end', async () => {
    const stream = await client.chat.completions.create({
      model: 'sim-20x5+fault=reset_mid_event',
      messages: [{ role: 'user', content: 'x' }],
      stream: true,
    });
    await assert.rejects(async () => {
      for await (const chunk of stream) void chunk;
    });
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

/** Resolves with the wall-clock time at which the client left. */
function abortAfterFirstToken(url: string): Promise<number> {
  const { promise, resolve } = Promise.withResolvers<number>();
  const req = post(url, { model: 'sim-1000x20', stream: true, messages: [{ role: 'user', content: 'x' }] });
  req.on('error', () => {});
  req.on('response', (res) => {
    res.on('error', () => {});
    res.once('data', () => {
      req.destroy();
      resolve(Date.now());
    });
  });
  return promise;
}
