/**
 * A key of the operator that the service refuses, and a service that wants a newer client: what applications
 * are told, through the gateway.
 */
import assert from 'node:assert/strict';
import { describe, it, type TestContext } from 'node:test';
import type { GatewayDeps } from '../../lib/gateway/deps.ts';
import { CANARY_KEY } from '../support/doors/canaries.ts';
import { clientOf } from '../support/doors/clients.ts';
import type { TestGatewayOptions } from '../support/doors/gateway.ts';
import {
  assertError,
  chatBody,
  codeOf,
  gatewayFixture,
  get,
  post,
} from '../support/doors/gateway-fixture.ts';
import { eventually } from '../support/processes/eventually.ts';
import type { Reply } from '../support/remote/scripted-upstream.ts';
import {
  chatStream,
  completion,
  http,
  plainError,
  sealedAnswers,
  tampered,
} from '../support/remote/sealed-answers.ts';

const KEY = { value: () => CANARY_KEY, origin: () => '--api-key @key.txt' };

const withClient = (apiKey?: string): Partial<GatewayDeps> => ({
  key: KEY,
  clients: { authenticate: () => clientOf({ apiKey }) },
});

/** What the gateway observes of a key of the operator. `client`: undefined for the key of --api-key. */
interface OwnKeyEvent {
  readonly type: 'refused' | 'answered';
  readonly client: string | undefined;
  readonly key: string;
}

/** A gateway whose service answers `answer`, and what it observes of the operator's key. */
async function gatewayTo(
  t: TestContext,
  answer: Reply,
  { deps = {}, ...more }: Partial<TestGatewayOptions> = {},
) {
  const events: OwnKeyEvent[] = [];
  const fixture = await gatewayFixture(t, {
    ...more,
    deps: {
      key: KEY,
      ownKeys: {
        refused: (client, key) => void events.push({ type: 'refused', client, key }),
        answered: (client, key) => void events.push({ type: 'answered', client, key }),
      },
      ...deps,
    },
  });
  fixture.upstream.answers(answer);
  return { ...fixture, events };
}

const anthropic = () => post(chatBody({ max_tokens: 10 }), { path: '/v1/messages' });

/** Errors of a gateway before the service: without the header that marks a plain error. */
const UNMARKED: readonly (readonly [body: string, headers?: Record<string, string>])[] = [
  ['{"error":{"message":"unauthorized"}}'],
  [''],
  ['zip', { 'Content-Encoding': 'gzip' }],
];

describe("an operator's key that the service refuses", { concurrency: true }, () => {
  it('makes a request 400 service_key_rejected, final, under --clients, with the configured key or that of its entry', async (t) => {
    for (const apiKey of [undefined, 'the-service-key-of-ann']) {
      const { ask, events } = await gatewayTo(t, plainError(401, 'invalid API key'), {
        deps: withClient(apiKey),
      });
      for (const request of [post(), get('/v1/models')]) {
        const openai = await ask(request);
        assertError(openai, 400, 'service_key_rejected');
        assert.equal(openai.headers['x-should-retry'], 'false');
        assert.equal(openai.headers['www-authenticate'], undefined);
      }
      const messages = await ask(anthropic());
      assert.deepEqual([messages.status, JSON.parse(messages.body).error.type], [400, 'policy_blocked']);
      const whose = { client: apiKey && 'ann', key: apiKey ?? CANARY_KEY };
      assert.deepEqual(events, Array(3).fill({ type: 'refused', ...whose }));
    }
  });

  it("is handled differently from a client's own key, whose 401 keeps the text of the service", async (t) => {
    for (const [token, options] of [
      ['of-the-client', { settings: { apiKeyFallback: 'never' } }],
      ['undefined', { deps: { key: { value: () => undefined, origin: () => undefined } } }],
    ] as const) {
      const { ask, events, gateway } = await gatewayTo(t, plainError(401, 'invalid API key'), options);
      const answer = await ask(post(chatBody(), { headers: [`Authorization: Bearer ${token}`] }));
      assert.deepEqual([answer.status, events], [401, []]);
      assert.match(answer.body, /invalid API key/);
      await ask(post());
      const from = gateway.logLines.flatMap((line) => JSON.parse(line).keyFrom ?? []);
      assert.deepEqual(from, ['the request itself', 'none: the request left without a key']);
    }
  });

  it('is recognized by a 401 without the mark of a plain error', async (t) => {
    for (const [body, headers] of UNMARKED) {
      const { ask, events, gateway } = await gatewayTo(t, http(401, body, headers));
      assertError(await ask(post(chatBody({ stream: true }))), 401, 'api_key_rejected');
      assert.deepEqual(events, [{ type: 'refused', client: undefined, key: CANARY_KEY }]);
      assert.deepEqual([...gateway.counters.decryptFailures], []);
    }
  });

  it('is not recognized by a 401 with an encrypted error that was changed on the way', async (t) => {
    const changed = (body: Buffer) =>
      tampered(http(401, sealedAnswers(body).object({ error: { message: 'no' } })));
    const { ask, events, gateway } = await gatewayTo(t, changed);
    const answer = await ask(post());
    assert.deepEqual([answer.status, codeOf(answer), events], [401, 'response_not_authentic', []]);
    assert.deepEqual([...gateway.counters.decryptFailures], [['response_not_authentic', 1]]);
  });

  it('is not recognized by a 401 whose client left before all of it had come', async (t) => {
    const { sending, events, gateway } = await gatewayTo(t, plainError(401, 'invalid API key').slice(0, -5));
    const asking = sending(post());
    await eventually('the head of the error', () => /"status":401/.test(gateway.logLines.join('')));
    asking.socket.destroy();
    await eventually('the end of the exchange', () => gateway.active() === 0);
    assert.deepEqual(events, []);
  });

  it('counts as accepted after an authenticated response, streamed or whole', async (t) => {
    const whole = await gatewayTo(t, completion);
    assert.equal((await whole.ask(post())).status, 200);
    assert.deepEqual(whole.events, [{ type: 'answered', client: undefined, key: CANARY_KEY }]);
    const deps = withClient('the-service-key-of-ann');
    const stream = await gatewayTo(t, chatStream, { deps });
    assert.equal((await stream.ask(post(chatBody({ stream: true })))).status, 200);
    assert.deepEqual(stream.events, [{ type: 'answered', client: 'ann', key: 'the-service-key-of-ann' }]);
  });
});

describe('a service that wants a newer client', { concurrency: true }, () => {
  const TEXT = 'your client is too old: minimum client version v1.46, see https://evil.example';

  it('makes a request a final 400 client_too_old, marked as a plain error or not, and only its digits are quoted', async (t) => {
    const events = `data: ${JSON.stringify({ error: TEXT })}\n\n`;
    for (const answer of [
      plainError(401, TEXT),
      plainError(426, TEXT),
      http(400, TEXT),
      http(400, events, { 'Content-Type': 'text/event-stream' }),
    ]) {
      const { ask, gateway, events: told } = await gatewayTo(t, answer);
      for (const request of [post(chatBody({ stream: true })), post()]) {
        const openai = await ask(request);
        assertError(openai, 400, 'client_too_old');
        assert.equal(openai.headers['x-should-retry'], 'false');
        assert.match(openai.body, /a client of version 1\.46 or newer/);
        assert.ok(!openai.body.includes('evil'));
      }
      assert.equal(JSON.parse((await ask(anthropic())).body).error.type, 'policy_blocked');
      assert.deepEqual([told, [...gateway.counters.decryptFailures]], [[], []]);
    }
  });
});
