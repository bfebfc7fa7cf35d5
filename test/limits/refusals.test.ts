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

/** A gate that knows what has been counted of Ann, as a restart finds it. */
const gateWith = (requests: number, tokens: number): RequestGate =>
  createRequestGate({
    counts: createRequestCounts({
      clock: { now: () => NOON, monotonic: () => 0 },
      before: [{ name: 'ann', tokens, admissions: Array(requests).fill(NOON) }],
    }),
  });
function fullGate(ann: LimitedClient): RequestGate {
  const counts = createRequestCounts({ clock: systemClock });
  for (let i = 0; i < 2; i++) counts.admit(ann);
  return createRequestGate({ counts });
}
function fullQueue(): RequestGate {
  const queue = createFairQueue(1, clockOf({ placeWait: 20 }));
  queue.enter('bob', new AbortController().signal);
  return createRequestGate({ queue });
}
const withoutStore = async (_: LimitedClient, t: TestContext): Promise<RequestGate> =>
  createRequestGate({ counts: await replica(t, `redis://127.0.0.1:${await freePort()}`) });

/** Each with Ann's limits, and a gate that has no room for a request of hers. */
const REFUSALS: readonly (readonly [
  answer: readonly [status: number, code: string, retryAfter: string, again?: 'false'],
  says: string,
  limits: ClientMembers['limits'] & object,
  gate: (ann: LimitedClient, t: TestContext) => RequestGate | Promise<RequestGate>,
])[] = [
  [
    [429, 'requests_per_minute_reached', '60'],
    'this client has reached its limit of requests per minute: 1.',
    { requestsPerMinute: 1 },
    () => gateWith(1, 0),
  ],
  [
    [429, 'tokens_per_day_reached', '43200', 'false'],
    'this client has reached its limit of tokens per day (UTC): 10.',
    { tokensPerDay: 10 },
    () => gateWith(0, 10),
  ],
  [
    [429, 'max_concurrent_reached', '1'],
    'this client has reached its limit of requests at the same time: 2.',
    { maxConcurrent: 2 },
    fullGate,
  ],
  [
    [429, 'max_in_flight_reached', '2'],
    'as many requests run as --max-in-flight allows, and no place became free within 0.02 s.',
    {},
    fullQueue,
  ],
  [
    [503, 'limits_unavailable', '2'],
    'the store of the limits cannot be used: there is no connection.',
    { requestsPerMinute: 1 },
    withoutStore,
  ],
];

describe('a request that its limits refuse', { timeout: 600_000 }, () => {
  for (const [answer, says, limits, gate] of REFUSALS) {
    it(`gets ${answer[0]} ${answer[1]} with Retry-After: ${answer[2]}`, async (t) => {
      const ann = clientOf({ limits });
      const { ask, upstream, gateway } = await scene(t, await gate(ann, t), ann);
      const { status, headers, body } = await ask(post());
      const [expected, code, retryAfter, again] = answer;
      assert.deepEqual(
        [status, headers['privatemode-proxy-error'], headers['retry-after'], headers['x-should-retry']],
        [expected, code, retryAfter, again],
      );
      const { error } = JSON.parse(body) as { error: { code: string; message: string } };
      assert.equal(error.code, code);
      assert.ok(error.message.startsWith(says), error.message);
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
      assert.deepEqual([...gateway.counters.errors], [['ann\nmax_concurrent_reached', 1]]);
    });
  }

  it('is answered before its body has arrived, and its connection ends', async (t) => {
    const { sending } = await scene(t, gateWith(1, 0), clientOf({ limits: { requestsPerMinute: 1 } }));
    const asking = sending(post('', { headers: ['Content-Length: 100000'] }));
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
    const { sending } = await scene(t, createRequestGate({ counts }), ann);
    const asking = sending(get('/v1/models'));
    assert.equal((await answerTo(asking)).status, 429);
    assert.ok('release' in running);
    running.release(0);
    const before = asking.received().length;
    asking.send(get('/v1/models'));
    await eventually('no answer', () => asking.received().slice(before).includes(MODELS));
  });
});
