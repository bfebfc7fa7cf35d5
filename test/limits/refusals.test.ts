/**
 * What a 429 looks like: the refusal of a request that is beyond a limit, by limit, in each dialect, and on
 * its connection.
 */

import assert from 'node:assert/strict';
import { describe, it, type TestContext } from 'node:test';
import { systemClock } from '../../lib/clock.ts';
import { PrivatemodeError } from '../../lib/errors.ts';
import { createRequestCounts } from '../../lib/limits/count-requests.ts';
import { createFairQueue } from '../../lib/limits/fair-queue.ts';
import type { LimitedClient } from '../../lib/limits/limits.ts';
import { createRequestGate, type RequestGate } from '../../lib/limits/request-gate.ts';
import type { RequestReceipt } from '../../lib/receipts/receipt.ts';
import { type ClientMembers, clientOf } from '../support/doors/clients.ts';
import { answerTo, chatBody, codeOf, gatewayFixture, get, post } from '../support/doors/gateway-fixture.ts';
import { eventually } from '../support/processes/eventually.ts';
import { freePort } from '../support/processes/foreign-programs.ts';
import { replica } from '../support/processes/redis-replica.ts';
import { clockOf } from '../support/remote/fake-clock.ts';
import { http } from '../support/remote/sealed-answers.ts';

const NOON = Date.UTC(2026, 10, 22, 12);
const MODELS = '{"object":"list","data":[]}';

/** A gateway of Ann's: every request is hers. */
async function scene(t: TestContext, gate: RequestGate, ann = clientOf()) {
  const receipts: RequestReceipt[] = [];
  const fixture = await gatewayFixture(t, {
    answers: () => http(200, MODELS, { 'Content-Type': 'application/json' }),
    deps: {
      gate,
      clients: { authenticate: () => ann },
      receipts: { instance: 'abcdefghijkl', add: (receipt) => receipts.push(receipt) },
    },
  });
  return { ...fixture, receipts };
}

/** What has been counted of Ann, as a restart finds it. */
const countsWith = (requests: number, tokens: number) =>
  createRequestCounts({
    clock: { now: () => NOON, monotonic: () => 0 },
    before: [{ client: 'ann', at: NOON, requests, tokens }],
  });
const byCounts = (counts: ReturnType<typeof createRequestCounts>): RequestGate =>
  createRequestGate({ counts, queue: undefined });

interface Refusal {
  readonly limit: string;
  /** Ann's. */
  readonly limits?: ClientMembers['limits'];
  /** One that has no room for a request of hers. */
  readonly gate: (t: TestContext, ann: LimitedClient) => RequestGate | Promise<RequestGate>;
  readonly answer: readonly [status: number, code: string, retryAfter: string, again?: 'false'];
  readonly says: RegExp;
}

const REFUSALS: readonly Refusal[] = [
  {
    limit: 'requestsPerMinute',
    limits: { requestsPerMinute: 1 },
    gate: () => byCounts(countsWith(1, 0)),
    answer: [429, 'requests_per_minute_reached', '60'],
    says: /^this client has reached its limit of 1 request per minute\./,
  },
  {
    limit: 'tokensPerDay',
    limits: { tokensPerDay: 10 },
    gate: () => byCounts(countsWith(0, 10)),
    answer: [429, 'tokens_per_day_reached', '43200', 'false'],
    says: /^this client has reached its limit of 10 tokens per day \(UTC\)\./,
  },
  {
    limit: 'maxConcurrent',
    limits: { maxConcurrent: 2 },
    gate(_t, ann) {
      const counts = createRequestCounts({ clock: systemClock });
      for (let i = 0; i < 2; i++) counts.admit(ann);
      return byCounts(counts);
    },
    answer: [429, 'max_concurrent_reached', '1'],
    says: /^this client has reached its limit of 2 requests at the same time\./,
  },
  {
    limit: '--max-in-flight, after it waited in vain',
    gate() {
      const queue = createFairQueue(1, clockOf({ placeWait: 20 }));
      queue.enter('bob', new AbortController().signal);
      return createRequestGate({ counts: undefined, queue });
    },
    answer: [429, 'max_in_flight_reached', '2'],
    says: /^as many requests run as --max-in-flight allows, and /,
  },
  {
    limit: 'a store (--limits-store) that cannot be used',
    limits: { requestsPerMinute: 1 },
    gate: async (t) =>
      createRequestGate({
        counts: await replica(t, `redis://127.0.0.1:${await freePort()}`),
        queue: undefined,
      }),
    answer: [503, 'limits_unavailable', '2'],
    says: /^the store of the limits cannot be used: there is no connection\./,
  },
];

describe('a request that its limits refuse', { timeout: 600_000 }, () => {
  for (const { limit, limits = {}, gate, answer, says } of REFUSALS) {
    it(`gets ${answer[0]} ${answer[1]} with Retry-After: ${answer[2]} from ${limit}`, async (t) => {
      const ann = clientOf({ limits });
      const { ask, upstream, gateway } = await scene(t, await gate(t, ann), ann);
      const { status, headers, body } = await ask(post());
      const [expected, code, retryAfter, again] = answer;
      assert.deepEqual(
        [status, headers['privatemode-proxy-error'], headers['retry-after'], headers['x-should-retry']],
        [expected, code, retryAfter, again],
      );
      const { error } = JSON.parse(body) as { error: { code: string; message: string } };
      assert.equal(error.code, code);
      assert.match(error.message, says);
      assert.equal(upstream.connections.total, 0);
      await eventually('the metrics count no response', () => gateway.observations[0]?.status === expected);
    });
  }

  const refusing: RequestGate = {
    enter: () =>
      Promise.reject(new PrivatemodeError('max_concurrent_reached', 'so it is', { retryAfter: 7 })),
  };
  const openai = { type: undefined, error: { type: 'rate_limit_error', param: null } };
  const anthropic = { type: 'error', error: { type: 'rate_limit_error', param: undefined } };
  for (const [dialect, request, form] of [
    ['a chat', post(), openai],
    ['a streamed chat', post(chatBody({ stream: true })), openai],
    ['the list of models', get('/v1/models'), openai],
    ['Anthropic messages', post(chatBody(), { path: '/v1/messages' }), anthropic],
    ['streamed Anthropic messages', post(chatBody({ stream: true }), { path: '/v1/messages' }), anthropic],
    ['counting tokens', post(chatBody(), { path: '/v1/messages/count_tokens' }), anthropic],
  ] as const) {
    it(`gets a JSON error in the dialect of ${dialect}, is recorded as refused, and nothing is sent`, async (t) => {
      const { ask, upstream, receipts, gateway } = await scene(t, refusing);
      const answer = await ask(request);
      assert.deepEqual(
        [answer.status, answer.headers['content-type'], answer.headers['retry-after']],
        [429, 'application/json', '7'],
      );
      const { type, error } = JSON.parse(answer.body);
      assert.deepEqual({ type, error: { type: error.type, param: error.param } }, form);
      assert.equal(error.code, 'max_concurrent_reached');
      assert.equal(upstream.connections.total, 0);
      await eventually('no receipt', () => receipts.length === 1);
      const [{ client, code, outcome, status, request: received }] = receipts as [RequestReceipt];
      assert.deepEqual(
        [client, code, outcome, status, received.bytes],
        ['ann', 'max_concurrent_reached', 'refused', 429, 0],
      );
      const [line] = gateway.logLines
        .map((text) => JSON.parse(text))
        .filter(({ msg }) => msg === 'Request ended');
      assert.deepEqual([line.client, line.code, line.outcome], ['ann', 'max_concurrent_reached', 'refused']);
      assert.deepEqual([...(gateway.counters.errors.get('ann') ?? [])], [['max_concurrent_reached', 1]]);
    });
  }

  it('is answered before its body has arrived, and its connection ends', async (t) => {
    const { client } = await scene(
      t,
      byCounts(countsWith(1, 0)),
      clientOf({ limits: { requestsPerMinute: 1 } }),
    );
    const asking = client();
    asking.send(post('', { headers: ['Content-Length: 100000'] }));
    const answer = await answerTo(asking);
    assert.deepEqual(
      [answer.status, codeOf(answer), answer.headers['connection']],
      [429, 'requests_per_minute_reached', 'close'],
    );
    await asking.ended;
  });

  it('leaves its connection usable if it has no body', async (t) => {
    const counts = createRequestCounts({ clock: systemClock });
    const ann = clientOf({ limits: { maxConcurrent: 1 } });
    const running = counts.admit(ann);
    const { client } = await scene(t, byCounts(counts), ann);
    const asking = client();
    asking.send(get('/v1/models'));
    assert.equal((await answerTo(asking)).status, 429);
    assert.ok('release' in running);
    running.release(0);
    const before = asking.received().length;
    asking.send(get('/v1/models'));
    await eventually('no answer', () => asking.received().slice(before).includes(MODELS));
  });
});
