/**
 * API keys and salts: whose key the service sees and what attests, whose cache it is (all cases: rewrite-auth
 * and inject-salt in test/pipeline/), and what applications are told if the operator's key is refused.
 */
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, it, type TestContext } from 'node:test';
import type { GatewayDeps } from '../../lib/gateway/deps.ts';
import { CANARY_KEY } from '../support/doors/canaries.ts';
import { clientOf } from '../support/doors/clients.ts';
import type { TestGatewayOptions } from '../support/doors/gateway.ts';
import {
  assertError,
  CANARY,
  chatBody,
  codeOf,
  gatewayFixture,
  get,
  post,
} from '../support/doors/gateway-fixture.ts';
import { startStack } from '../support/doors/stack.ts';
import { eventually } from '../support/processes/eventually.ts';
import { temporaryDirectory } from '../support/processes/temporary-directory.ts';
import type { Reply } from '../support/remote/scripted-upstream.ts';
import {
  chatStream,
  completion,
  http,
  plainError,
  sealedAnswers,
  tampered,
} from '../support/remote/sealed-answers.ts';

async function scene(t: TestContext, options: Parameters<typeof startStack>[0]) {
  const stack = await startStack(options);
  t.after(() => stack.close());
  return {
    stack,
    chat: (headers: Record<string, string> = {}): Promise<Response> =>
      fetch(`${stack.url}/v1/chat/completions`, {
        method: 'POST',
        headers,
        body: JSON.stringify({ model: 'sim-echo', messages: [{ role: 'user', content: 'x' }] }),
      }),
    /** Authorization of the last request. */
    seen: () => stack.simulator.recorder.requests().at(-1)?.headers['authorization'],
  };
}

it("without a key configured, a request without one gets 401 before anything is attested; a client's attests and leaves", async (t) => {
  const { stack, chat, seen } = await scene(t, { apiKey: null, simulator: { apiKey: 'client-key' } });
  const answer = await chat();
  assert.deepEqual([answer.status, answer.headers.get('www-authenticate')], [401, 'Bearer']);
  assert.match(await answer.text(), /"code":"api_key_missing"/);
  assert.equal(stack.simulator.counts['attest'], 0);
  assert.equal((await chat({ 'x-api-key': 'client-key' })).status, 200);
  assert.equal(seen(), 'Bearer client-key');
  stack.simulator.setApiKeys(undefined);
  assert.equal((await chat({ authorization: 'Bearer another' })).status, 200);
  assert.equal(seen(), 'Bearer another');
});

it('a key file is read again on a reload, for the next request, and no key is in the log', async (t) => {
  const path = join(temporaryDirectory('privatemode-key-'), 'key');
  writeFileSync(path, ' first-key\n');
  const { stack, chat, seen } = await scene(t, { apiKey: `@${path}` });
  await chat();
  assert.equal(seen(), 'Bearer first-key');
  writeFileSync(path, `second-${CANARY}`);
  stack.proxy.reload();
  await eventually('the next key', () => chat().then(() => seen() === `Bearer second-${CANARY}`));
  assert.ok(!stack.logLines.join('').includes(CANARY));
});

it('the prompt cache has a salt for each request by default; with --disable-prompt-cache=false a random one per start, or that of --prompt-cache-salt (docs/protocol/inference.md 8)', async (t) => {
  const shared = '--disable-prompt-cache=false';
  const given = 'a literal salt of 32 bytes or more, for all';
  const salts: string[] = [];
  for (const flags of [[], [shared], [shared], [shared, `--prompt-cache-salt=${given}`]]) {
    const { stack, chat } = await scene(t, { flags });
    for (let i = 0; i < 2; i++) {
      assert.equal((await chat()).status, 200);
      const { cache_salt: salt } = JSON.parse(stack.simulator.exchanges.last()?.opened ?? '');
      assert.ok(!stack.logLines.join('').includes(salt), 'the salt is in the log');
      salts.push(salt);
    }
  }
  const order = salts.map((salt) => salts.indexOf(salt));
  assert.deepEqual(order, [0, 1, 2, 2, 4, 4, 6, 6], 'which are the same');
  assert.equal(salts[6], given);
  for (const salt of salts.slice(0, 6)) assert.match(salt, /^[A-Za-z0-9+/]{43}=$/);
});

const KEY = { value: () => CANARY_KEY, origin: () => '--api-key @key.txt' };

const withClient = (apiKey?: string): Partial<GatewayDeps> => ({
  key: KEY,
  clients: { authenticate: () => clientOf({ apiKey }) },
});

/** A gateway whose service answers `answer`, and what it observes of a key of the operator. */
async function gatewayTo(
  t: TestContext,
  answer: Reply,
  { deps = {}, ...more }: Partial<TestGatewayOptions> = {},
) {
  const events: { type: string; client: string | undefined; key: string }[] = [];
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

const TEXT = 'your client is too old: minimum client version v1.46, see https://evil.example';

it('a service that wants a newer client makes a request a final 400 client_too_old, marked as a plain error or not, and only its digits are quoted', async (t) => {
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
