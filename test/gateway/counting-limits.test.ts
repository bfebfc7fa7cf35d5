/** POST /v1/messages/count_tokens within the limits of its client, of all requests, and of its own body. */
import assert from 'node:assert/strict';
import { describe, it, type TestContext } from 'node:test';
import { PrivatemodeError } from '../../lib/errors.ts';
import { createRequestCounts } from '../../lib/limits/count-requests.ts';
import { createFairQueue } from '../../lib/limits/fair-queue.ts';
import { createRequestGate, type RequestGate } from '../../lib/limits/request-gate.ts';
import type { RequestReceipt } from '../../lib/transparency/receipt.ts';
import { answerTo, chatBody, codeOf, gatewayFixture, post, until } from '../support/doors/gateway-fixture.ts';
import { completion } from '../support/remote/sealed-answers.ts';

const MIB = 1024 * 1024;
const PATH = '/v1/messages/count_tokens';
const counting = (body: string | Uint8Array = chatBody(), headers: readonly string[] = []): Buffer =>
  post(body, { path: PATH, headers });
/** One whose body is still to come. */
const uploading = (bytes: number): Buffer => counting('{', [`Content-Length: ${bytes}`]);

const NO_LIMITS = { requestsPerMinute: undefined, tokensPerDay: undefined, maxConcurrent: undefined };

/** Bearer `ann` and so on: whoever names themselves is known, with these limits. */
const team = (limits: Partial<typeof NO_LIMITS | { readonly requestsPerMinute: number }> = {}) => ({
  authenticate: ({ authorization = '' }: { readonly authorization?: string | undefined }) => ({
    ...{ name: authorization.replace('Bearer ', ''), tokens: [], expires: undefined, models: undefined },
    ...{ endpoints: undefined, apiKey: undefined, sharedSalt: undefined, mixSalt: undefined },
    limits: { ...NO_LIMITS, ...limits },
  }),
});

const scene = async (t: TestContext, gate: RequestGate, limits = {}) => {
  const receipts: RequestReceipt[] = [];
  const fixture = await gatewayFixture(t, {
    maxBufferedBytes: 64 * MIB,
    limits: { maxBodyBytes: 128 * MIB },
    deps: {
      gate,
      clients: team(limits),
      receipts: { instance: 'abcdefghijkl', add: (receipt) => receipts.push(receipt) },
    },
  });
  fixture.upstream.answers(completion);
  return { ...fixture, receipts };
};

describe('counting tokens', { timeout: 30_000 }, () => {
  it('a client with one request a minute holds one upload, and others are served', async (t) => {
    const gate = createRequestGate({ counts: createRequestCounts(), queue: undefined });
    const { client, ask, gateway } = await scene(t, gate, { requestsPerMinute: 1 });
    const held = Array.from({ length: 72 }, () => {
      const holding = client();
      holding.send(counting('{', ['Authorization: Bearer bob', `Content-Length: ${MIB}`]));
      return holding;
    });
    const [first, ...others] = held;
    for (const other of others) {
      const answer = await answerTo(other);
      assert.deepEqual([answer.status, codeOf(answer)], [429, 'requests_per_minute_reached']);
      assert.ok(Number(answer.headers['retry-after']) > 0);
    }
    assert.equal(gateway.counters.bufferedBytes, MIB);
    assert.equal((await ask(post(chatBody(), { headers: ['Authorization: Bearer ann'] }))).status, 200);
    first?.socket.destroy();
    await until(() => gateway.active() === 0, 'not over');
  });

  it('is refused in the form of its API, in the log, the metrics and the receipt', async (t) => {
    const refusal = new PrivatemodeError('max_concurrent_reached', 'so it is', { retryAfter: 7 });
    const gate = { enter: () => Promise.reject(refusal) };
    const { ask, gateway, receipts } = await scene(t, gate);
    const answer = await ask(counting(chatBody(), ['Authorization: Bearer ann']));
    assert.deepEqual([answer.status, answer.headers['retry-after']], [429, '7']);
    assert.deepEqual(JSON.parse(answer.body).error.type, 'rate_limit_error');
    await until(() => receipts.length === 1, 'no receipt');
    const [{ code, outcome, request }] = receipts as [RequestReceipt];
    assert.deepEqual([code, outcome, request.bytes], ['max_concurrent_reached', 'refused', 0]);
    const line = gateway.logLines.map((text) => JSON.parse(text)).find(({ msg }) => msg === 'Request ended');
    assert.deepEqual([line.outcome, line.code, line.client], ['refused', 'max_concurrent_reached', 'ann']);
    assert.deepEqual([...(gateway.counters.errors.get('ann') ?? [])], [['max_concurrent_reached', 1]]);
  });

  it('holds one of all places, waits for one, and no longer waits when its client leaves', async (t) => {
    const queue = createFairQueue(1);
    const { client, ask } = await scene(t, createRequestGate({ counts: undefined, queue }));
    const holding = client();
    holding.send(uploading(1000));
    await until(() => queue.size().running === 1, 'no place was taken');
    const leaving = client();
    leaving.send(counting());
    await until(() => queue.size().waiting === 1, 'nobody waits');
    leaving.socket.destroy();
    await until(() => queue.size().waiting === 0, 'a request without a client waits');
    const asking = ask(counting());
    await until(() => queue.size().waiting === 1, 'nobody waits');
    holding.socket.destroy();
    assert.equal((await asking).status, 200);
    await until(() => queue.size().running === 0, 'a place stayed taken');
  });

  for (const [how, headers, sent] of [
    ['announced', [`Content-Length: ${8 * MIB + 1}`], ''],
    [
      'in chunks',
      ['Transfer-Encoding: chunked'],
      `${(8 * MIB + 1).toString(16)}\r\n${' '.repeat(8 * MIB + 1)}\r\n`,
    ],
  ] as const) {
    it(`takes bodies up to 8 MiB, ${how}`, async (t) => {
      const { client, ask } = await scene(t, { enter: () => ({ release() {} }) });
      const asking = client();
      asking.send(counting(sent, headers));
      const answer = await answerTo(asking);
      assert.deepEqual([answer.status, codeOf(answer)], [413, 'body_too_large']);
      assert.match(answer.body, /larger than 8388608 bytes \(for counting tokens\)/);
      const most = Buffer.from(chatBody().padEnd(8 * MIB));
      assert.equal((await ask(counting(most))).status, 200);
    });
  }
});
