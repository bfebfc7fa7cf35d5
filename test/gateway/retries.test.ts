/**
 * The retry table (docs/protocol/inference.md section 10): what is sent a second time, and what never is. Its
 * rows for connections are tested in upstream-request.test.ts and stale-connections.test.ts.
 */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { PrivatemodeError } from '../../lib/errors.ts';
import { EPOCH, type FakeSession, fakeSession, NEXT_EPOCH, NEXT_SECRET } from '../support/doors/gateway.ts';
import { assertError, CANARY, gatewayFixture, get, post } from '../support/doors/gateway-fixture.ts';
import { PLAIN_MEMBERS } from '../support/remote/plain-members.ts';
import type { Script } from '../support/remote/scripted-upstream.ts';
import { COMPLETION, exchangeOf, http, plainError, sealedAnswers } from '../support/remote/sealed-answers.ts';

const NO_SECRET = 'getting secret for OCSP verification: no secret for ID "x"';

const saying =
  (answer: string): Script =>
  async (scripted) => {
    await scripted.body();
    await scripted.write(answer);
  };
const noSecret = saying(plainError(500, NO_SECRET));
const answeringNext: Script = async (scripted) => {
  const sealed = sealedAnswers(await scripted.body(), PLAIN_MEMBERS.R, NEXT_SECRET);
  await scripted.write(http(200, sealed.object(COMPLETION), { 'Content-Type': 'application/json' }));
};

describe('the retry for a forgotten secret (no_secret)', { concurrency: true }, () => {
  it('seals the request again with a renewed secret', async (t) => {
    const session = fakeSession();
    const { upstream, gateway, ask } = await gatewayFixture(t, { session });
    upstream.on(noSecret, answeringNext);
    const answer = await ask(post());
    assert.equal(answer.status, 200);
    assert.equal(answer.headers['privatemode-proxy-secret-id'], NEXT_EPOCH.secretId);
    assert.equal(answer.headers['privatemode-proxy-manifest-sha256'], NEXT_EPOCH.manifestSha256);
    assert.equal(answer.headers['privatemode-proxy-attested-at'], '2026-01-02T00:00:00.000Z');
    assert.deepEqual(session.rejected, [EPOCH.secretId]);
    assert.deepEqual([...gateway.counters.upstreamRetries], [['no_secret', 1]]);
    const [first, second] = upstream.requests;
    assert.equal(upstream.requests.length, 2);
    assert.equal(first?.headers['privatemode-secret-id'], EPOCH.secretId);
    assert.equal(second?.headers['privatemode-secret-id'], NEXT_EPOCH.secretId);
    assert.equal(exchangeOf(second?.body as Buffer).id, NEXT_EPOCH.secretId);
    assert.notDeepEqual(exchangeOf(second?.body as Buffer).nonce, exchangeOf(first?.body as Buffer).nonce);
    assert.notEqual(
      second?.headers['privatemode-nvidia-ocsp-policy-mac'],
      first?.headers['privatemode-nvidia-ocsp-policy-mac'],
    );
    assert.match(second?.headers['privatemode-user-request-id'] ?? '', /^proxy_[0-9a-f-]{36}_1$/);
  });

  const unmarked: [name: string, answer: string][] = [
    ['not marked as plain', http(500, JSON.stringify({ error: { message: NO_SECRET } }))],
    ['declared as events', http(500, `data: ${NO_SECRET}\n\n`, { 'Content-Type': 'text/event-stream' })],
  ];
  for (const [name, answer] of unmarked) {
    it(`happens after a refusal ${name}`, async (t) => {
      const session = fakeSession();
      const { upstream, ask } = await gatewayFixture(t, { session });
      upstream.on(saying(answer), answeringNext);
      assert.equal((await ask(post())).status, 200);
      assert.deepEqual(session.rejected, [EPOCH.secretId]);
    });
  }

  it('does not happen without a new secret, and the client gets the reason for that', async (t) => {
    const failing: FakeSession = fakeSession({
      renewAfterDenial: async () => {
        throw new PrivatemodeError('attestation_failed', 'the evidence was rejected');
      },
    });
    const { upstream, gateway, ask } = await gatewayFixture(t, { session: failing });
    upstream.on(noSecret);
    assertError(await ask(post()), 400, 'attestation_failed');
    assert.equal(upstream.requests.length, 1);
    assert.equal(gateway.counters.upstreamRetries.size, 0);
  });

  it('only renews the secret if the first attempt was reset, and the client gets 503 secret_denied', async (t) => {
    const session = fakeSession();
    const { upstream, ask } = await gatewayFixture(t, { session });
    upstream.on(async (scripted) => {
      await scripted.body();
      scripted.reset();
    }, noSecret);
    const answer = await ask(post());
    assertError(answer, 503, 'secret_denied');
    assert.doesNotMatch(answer.body, /no secret for ID/);
    assert.deepEqual(session.rejected, [EPOCH.secretId]);
    assert.equal(upstream.requests.length, 2);
  });

  it('is not followed by a third attempt if it is reset', async (t) => {
    const { upstream, ask } = await gatewayFixture(t);
    upstream.on(noSecret, async (scripted) => {
      await scripted.body();
      scripted.reset();
    });
    assert.equal((await ask(post())).status, 502);
    assert.equal(upstream.requests.length, 2);
  });

  it('does not happen if the refusal breaks off', async (t) => {
    const session = fakeSession();
    const { upstream, ask } = await gatewayFixture(t, { session });
    upstream.on(async (scripted) => {
      await scripted.body();
      await scripted.write(plainError(500, NO_SECRET).slice(0, -1));
      await delay(10); // what was written has left, or the reset would overtake it
      scripted.reset();
    });
    assertError(await ask(post()), 502, 'stream_unfinished');
    assert.equal(upstream.requests.length, 1);
    assert.deepEqual(session.rejected, []);
  });

  const others: [name: string, answer: string][] = [
    ['status 503 with the words of no_secret', plainError(503, NO_SECRET)],
    ['status 400 with the words of no_secret', plainError(400, NO_SECRET)],
    ['status 500 with other words', plainError(500, 'no secrets at all')],
    ['a redirect', 'HTTP/1.1 302 Found\r\nLocation: /v1/models\r\nContent-Length: 0\r\n\r\n'],
  ];
  for (const [name, answer] of others) {
    it(`does not happen after ${name}`, async (t) => {
      const session = fakeSession();
      const { upstream, ask } = await gatewayFixture(t, { session });
      upstream.on(saying(answer));
      await ask(post());
      assert.equal(upstream.requests.length, 1);
      assert.deepEqual(session.rejected, []);
    });
  }

  it('does not happen after a sealed error of status 500, which the client gets', async (t) => {
    const session = fakeSession();
    const { upstream, ask } = await gatewayFixture(t, { session });
    upstream.on(async (scripted) => {
      const sealed = sealedAnswers(await scripted.body(), PLAIN_MEMBERS.R);
      await scripted.write(http(500, sealed.object({ error: { message: NO_SECRET } })));
    });
    const answer = await ask(post());
    assert.equal(answer.status, 500);
    assert.equal((JSON.parse(answer.body) as { error: { message: string } }).error.message, NO_SECRET);
    assert.deepEqual(session.rejected, []);
  });

  it('does not happen for a request without encryption', async (t) => {
    const session = fakeSession();
    const { upstream, ask } = await gatewayFixture(t, { session });
    upstream.on((scripted) => scripted.write(plainError(500, NO_SECRET)));
    assert.equal((await ask(get('/v1/models'))).status, 500);
    assert.equal(upstream.requests.length, 1);
    assert.deepEqual(session.rejected, []);
  });
});

describe('a response', () => {
  const form = [
    '--b\r\nContent-Disposition: form-data; name="files"; filename="a.txt"\r\n\r\n',
    `${CANARY}\r\n--b--\r\n`,
  ].join('');
  const json = { 'Content-Type': 'application/json' };
  const rows: [what: string, request: Buffer, answer: Script, told: string[]][] = [
    [
      'is reported to the session as authentic if the session has no secret in force',
      post(),
      async (scripted) => {
        const sealed = sealedAnswers(await scripted.body(), PLAIN_MEMBERS.R);
        await scripted.write(http(200, sealed.object(COMPLETION), json));
      },
      [EPOCH.secretId],
    ],
    [
      'does not count as authentic if nothing in it is encrypted',
      post(form, {
        path: '/unstructured/general/v0/general',
        headers: ['Content-Type: multipart/form-data; boundary=b'],
      }),
      saying(http(200, '[]', { ...json, 'Privatemode-Encrypted': 'true' })),
      [],
    ],
    ['does not count as authentic if it is a plain error', post(), saying(plainError(503, 'busy')), []],
  ];
  it('is not reported to the session if its secret was in force when the request was sent', async (t) => {
    const authenticated: string[] = [];
    const session = fakeSession({ authenticated: (secretId) => authenticated.push(secretId) });
    const { upstream, ask } = await gatewayFixture(t, { session });
    upstream.on(rows[0]?.[2] as Script);
    assert.equal((await ask(post())).status, 200);
    assert.deepEqual(authenticated, []);
  });
  for (const [what, request, answer, told] of rows) {
    it(what, async (t) => {
      const authenticated: string[] = [];
      const current = () => undefined;
      const session = fakeSession({ current, authenticated: (secretId) => authenticated.push(secretId) });
      const { upstream, ask } = await gatewayFixture(t, { session });
      upstream.on(answer);
      await ask(request);
      assert.deepEqual(authenticated, told);
    });
  }
});
