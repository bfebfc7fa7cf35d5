/**
 * A key of the operator that the service refuses, and a service that wants a newer client: what applications
 * are told, through the gateway.
 */
import assert from 'node:assert/strict';
import { describe, it, type TestContext } from 'node:test';
import { PrivatemodeError } from '../../lib/errors.ts';
import type { GatewayDeps } from '../../lib/gateway/deps.ts';
import { CANARY_KEY } from '../support/doors/canaries.ts';
import { clientOf } from '../support/doors/clients.ts';
import { fakeSession, type TestGatewayOptions } from '../support/doors/gateway.ts';
import { chatBody, codeOf, gatewayFixture, get, post } from '../support/doors/gateway-fixture.ts';
import { eventually } from '../support/processes/eventually.ts';
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
  answer: string | ((body: Buffer) => string | Buffer),
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
  fixture.upstream.on(async (scripted) => {
    const body = await scripted.body();
    await scripted.write(typeof answer === 'string' ? answer : (answer(body as Buffer) as string));
  });
  return { ...fixture, events };
}

const anthropic = () => post(chatBody({ max_tokens: 10 }), { path: '/v1/messages' });

const REFUSALS: readonly (readonly [what: string, apiKey: string | undefined])[] = [
  ['the configured key', undefined],
  ['the key of its entry in the clients file', 'the-service-key-of-ann'],
];

/** Errors of a gateway before the service: without the header that marks a plain error. */
const UNMARKED: readonly (readonly [what: string, body: string, headers?: Record<string, string>])[] = [
  ['in JSON', '{"error":{"message":"unauthorized"}}'],
  ['without a body', ''],
  ['compressed', 'zip', { 'Content-Encoding': 'gzip' }],
];

describe("an operator's key that the service refuses", { concurrency: true }, () => {
  for (const [what, apiKey] of REFUSALS) {
    it(`makes a request with ${what} 400 service_key_rejected, final, under --clients`, async (t) => {
      const { ask, events } = await gatewayTo(t, plainError(401, 'invalid API key'), {
        deps: withClient(apiKey),
      });
      const openai = await ask(post());
      assert.deepEqual([openai.status, codeOf(openai)], [400, 'service_key_rejected']);
      assert.equal(openai.headers['x-should-retry'], 'false');
      assert.equal(openai.headers['www-authenticate'], undefined);
      assert.match(openai.body, /"message":"the service rejects the key of this gateway/);
      const messages = await ask(anthropic());
      assert.deepEqual([messages.status, JSON.parse(messages.body).error.type], [400, 'policy_blocked']);
      const models = await ask(get('/v1/models'));
      assert.deepEqual([models.status, codeOf(models)], [400, 'service_key_rejected']);
      const refused = {
        type: 'refused',
        ...(apiKey === undefined ? { client: undefined, key: CANARY_KEY } : { client: 'ann', key: apiKey }),
      };
      assert.deepEqual(events, [refused, refused, refused]);
    });
  }

  it('makes a request 400 under --clients also if the session fails with api_key_rejected', async (t) => {
    const acquire = () =>
      Promise.reject(
        new PrivatemodeError('api_key_rejected', 'the service rejects the API key: unauthorized'),
      );
    const { ask } = await gatewayTo(t, '', { deps: withClient(), session: fakeSession({ acquire }) });
    const answer = await ask(post());
    assert.deepEqual([answer.status, codeOf(answer)], [400, 'service_key_rejected']);
  });

  it('makes a request 401 api_key_rejected without --clients', async (t) => {
    const { ask, events } = await gatewayTo(t, plainError(401, 'invalid API key'));
    const answer = await ask(post());
    assert.deepEqual([answer.status, codeOf(answer)], [401, 'api_key_rejected']);
    assert.match(answer.body, /"message":"the service rejects the API key/);
    assert.ok(!answer.body.includes(CANARY_KEY));
    assert.deepEqual(events, [{ type: 'refused', client: undefined, key: CANARY_KEY }]);
  });

  it("is handled differently from a client's own key, whose 401 keeps the text of the service", async (t) => {
    const { ask, events, gateway } = await gatewayTo(t, plainError(401, 'invalid API key'), {
      settings: { apiKeyFallback: 'never' },
    });
    const answer = await ask(post(chatBody(), { headers: ['Authorization: Bearer of-the-client'] }));
    assert.deepEqual([answer.status, events], [401, []]);
    assert.match(answer.body, /invalid API key/);
    assert.equal((await ask(post())).status, 401);
    const from = gateway.logLines.flatMap((line) => JSON.parse(line).keyFrom ?? []);
    assert.deepEqual(from, ['the request itself', 'none: the request left without a key']);
  });

  it("is not mistaken for a client's own key `undefined` if no key is configured", async (t) => {
    const { ask, events } = await gatewayTo(t, plainError(401, 'invalid API key'), {
      deps: { key: { value: () => undefined, origin: () => undefined } },
    });
    const answer = await ask(post(chatBody(), { headers: ['Authorization: Bearer undefined'] }));
    assert.deepEqual([answer.status, events], [401, []]);
    assert.match(answer.body, /invalid API key/);
  });

  for (const [what, body, headers] of UNMARKED) {
    it(`is recognized by a 401 without the mark of a plain error, ${what}`, async (t) => {
      const { ask, events, gateway } = await gatewayTo(t, http(401, body, headers));
      const answer = await ask(post(chatBody({ stream: true })));
      assert.deepEqual([answer.status, codeOf(answer)], [401, 'api_key_rejected']);
      assert.deepEqual(events, [{ type: 'refused', client: undefined, key: CANARY_KEY }]);
      assert.deepEqual([...gateway.counters.decryptFailures], []);
    });
  }

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
    const whole = await gatewayTo(t, (body) => completion(body) as unknown as Buffer);
    assert.equal((await whole.ask(post())).status, 200);
    assert.deepEqual(whole.events, [{ type: 'answered', client: undefined, key: CANARY_KEY }]);
    const deps = withClient('the-service-key-of-ann');
    const stream = await gatewayTo(t, (body) => chatStream(body) as unknown as Buffer, { deps });
    assert.equal((await stream.ask(post(chatBody({ stream: true })))).status, 200);
    assert.deepEqual(stream.events, [{ type: 'answered', client: 'ann', key: 'the-service-key-of-ann' }]);
  });
});

describe('a service that wants a newer client', { concurrency: true }, () => {
  const TEXT = 'your client is too old: minimum client version v1.46, see https://evil.example';

  for (const status of [401, 426]) {
    it(`makes a request a final 400 client_too_old if it answers ${status}`, async (t) => {
      const { ask, events } = await gatewayTo(t, plainError(status, TEXT));
      const openai = await ask(post());
      assert.deepEqual([openai.status, codeOf(openai)], [400, 'client_too_old']);
      assert.equal(openai.headers['x-should-retry'], 'false');
      assert.match(
        openai.body,
        /nothing authenticates, that it wants a client of version 1\.46 or newer; this one announces v1\.40\.0/,
      );
      assert.ok(!openai.body.includes('evil'), 'only the digits are quoted');
      const messages = await ask(anthropic());
      assert.deepEqual([messages.status, JSON.parse(messages.body).error.type], [400, 'policy_blocked']);
      assert.deepEqual(events, []);
    });
  }

  for (const [what, body, headers] of [
    ['in plain text', TEXT, {}],
    [
      'as an event stream',
      `data: ${JSON.stringify({ error: TEXT })}\n\n`,
      { 'Content-Type': 'text/event-stream' },
    ],
  ] as const) {
    it(`makes a request a final 400 client_too_old by an error without the mark of a plain one, ${what}`, async (t) => {
      const { upstream, ask, gateway } = await gatewayFixture(t);
      upstream.on(async (scripted) => {
        await scripted.body();
        const whole = http(400, body, headers);
        await scripted.write(whole.slice(0, -50)); // in the middle of the sentence
        await scripted.write(whole.slice(-50));
      });
      const answer = await ask(post(chatBody({ stream: true })));
      assert.deepEqual([answer.status, codeOf(answer)], [400, 'client_too_old']);
      assert.equal(answer.headers['x-should-retry'], 'false');
      assert.match(answer.body, /a client of version 1\.46 or newer/);
      assert.ok(!answer.body.includes('evil'), 'only the digits are quoted');
      assert.deepEqual([...gateway.counters.decryptFailures], []);
    });
  }

  it('is not recognized in an error of more than 4 KiB, which is shown completely', async (t) => {
    const long = `${TEXT}${'x'.repeat(10_000)}`;
    const { ask } = await gatewayTo(t, plainError(400, long));
    const answer = await ask(post());
    assert.equal(answer.status, 400);
    assert.ok(answer.body.includes(long));
  });

  it('does not prevent the retry for an unknown secret', async (t) => {
    const { ask, gateway } = await gatewayTo(t, plainError(500, `no secret for ID "x"; ${TEXT}`));
    const answer = await ask(post());
    assert.equal(codeOf(answer), 'secret_denied');
    assert.equal(gateway.counters.upstreamRetries.get('no_secret'), 1);
  });
});
