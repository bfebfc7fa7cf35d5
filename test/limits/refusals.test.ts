/** What the refusal of a request that is beyond a limit looks like, in each dialect and on its connection. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { type ErrorCode, PrivatemodeError } from '../../lib/errors.ts';
import type { RequestReceipt } from '../../lib/receipts/receipt.ts';
import { clientOf } from '../support/doors/clients.ts';
import { chatBody, gatewayFixture, post } from '../support/doors/gateway-fixture.ts';
import { eventually } from '../support/processes/eventually.ts';

/** A gateway whose requests are all Ann's, and are refused by that limit. */
const refusing = (code: ErrorCode) => ({
  gate: { enter: () => Promise.reject(new PrivatemodeError(code, 'so it is', { retryAfter: 7 })) },
  clients: { authenticate: () => clientOf() },
});

const DIALECTS = [
  ['a chat', post(), undefined],
  ['Anthropic messages', post(chatBody(), { path: '/v1/messages' }), 'error'],
] as const;

describe('a request that a limit refuses', { timeout: 600_000 }, () => {
  for (const [code, status, again] of [
    ['requests_per_minute_reached', 429],
    ['tokens_per_day_reached', 429, 'false'],
    ['max_concurrent_reached', 429],
    ['max_in_flight_reached', 429],
    ['limits_unavailable', 503],
  ] as const) {
    it(`gets ${status} ${code} in its dialect, is recorded as refused or failed, and nothing is sent`, async (t) => {
      const receipts: RequestReceipt[] = [];
      const add = (receipt: RequestReceipt) => receipts.push(receipt);
      const deps = { ...refusing(code), receipts: { instance: 'abcdefghijkl', add } };
      const { ask, upstream, gateway } = await gatewayFixture(t, { deps });
      for (const [dialect, request, expected] of DIALECTS) {
        const { headers, body, ...answer } = await ask(request);
        assert.deepEqual(
          [
            answer.status,
            headers['privatemode-proxy-error'],
            headers['retry-after'],
            headers['x-should-retry'],
          ],
          [status, code, '7', again],
        );
        assert.equal(headers['content-type'], 'application/json');
        const { type, error } = JSON.parse(body);
        assert.deepEqual([type, error.code], [expected, code], dialect);
        assert.ok(error.message.startsWith('so it is. '), error.message);
      }
      assert.equal(upstream.connections.total, 0);
      await eventually('both receipts', () => receipts.length === 2);
      const outcome = status === 429 ? 'refused' : 'failed';
      for (const { request, ...receipt } of receipts)
        assert.deepEqual(
          [receipt.client, receipt.code, receipt.outcome, receipt.status, request.bytes],
          ['ann', code, outcome, status, 0],
        );
      const lines = gateway.logLines
        .map((text) => JSON.parse(text))
        .filter(({ msg }) => msg === 'Request ended');
      assert.deepEqual(
        lines.map((line) => [line.client, line.code, line.outcome]),
        [0, 1].map(() => ['ann', code, outcome]),
      );
      assert.deepEqual([...gateway.counters.errors], [[`ann\n${code}`, 2]]);
    });
  }
});
