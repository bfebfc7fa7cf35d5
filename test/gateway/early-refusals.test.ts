/**
 * A refusal while the body is still arriving: closing at once would reset the connection and lose the
 * response (RFC 9112 9.6).
 */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { describe, it } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { PrivatemodeError } from '../../lib/errors.ts';
import { fakeSession } from '../support/doors/gateway.ts';
import {
  answerTo,
  assertError,
  chatBody,
  gatewayFixture,
  get,
  post,
} from '../support/doors/gateway-fixture.ts';
import { eventually } from '../support/processes/eventually.ts';
import { completion, http } from '../support/remote/sealed-answers.ts';

const settings = { maxBodyBytes: 100_000 };
const times = { discardWait: 300 };
const TOO_LARGE = chatBody({ user: 'x'.repeat(3_000_000) });

describe('refusals before the end of the upload', { concurrency: true }, () => {
  it('a declared body over the limit is refused at once, and nothing is sent', async (t) => {
    const { upstream, sending } = await gatewayFixture(t, { settings, times });
    const asking = sending(post('{"model":', { headers: ['Content-Length: 100001'] }));
    const answer = await answerTo(asking); // the rest of the body never comes
    assertError(answer, 413, 'body_too_large');
    assert.equal(answer.headers['connection'], 'close');
    assert.equal(await asking.ended, 'end');
    assert.equal(upstream.connections.total, 0);
  });

  it('a body of exactly the limit passes', async (t) => {
    const { ask } = await gatewayFixture(t, { answers: completion, settings });
    const padding = settings.maxBodyBytes - chatBody({ user: '' }).length;
    assert.equal((await ask(post(chatBody({ user: 'x'.repeat(padding) })))).status, 200);
  });

  it('a chunked body is refused with 413 as soon as it exceeds the limit', async (t) => {
    const { upstream, sending } = await gatewayFixture(t, { settings });
    const endless = `10\r\n{"model":"m","a"\r\n2\r\n:"\r\n${`1000\r\n${'x'.repeat(4096)}\r\n`.repeat(40)}`;
    const asking = sending(post(endless, { headers: ['Transfer-Encoding: chunked'] }));
    assertError(await answerTo(asking, 9_000), 413, 'body_too_large');
    assert.equal(upstream.connections.total, 0);
  });

  for (const [what, status, { length = 1_000, headers = [] as string[] }] of [
    ['over the limit', 413, { length: 100_001 }],
    [
      'of a foreign page',
      403,
      { headers: ['Origin: https://foreign.example', 'Sec-Fetch-Site: cross-site'] },
    ],
  ] as const) {
    it(`a body ${what}, announced with Expect, gets ${status} and no 100`, async (t) => {
      const { client } = await gatewayFixture(t, { settings });
      const asking = client();
      const expecting = [`Content-Length: ${length}`, 'Expect: 100-continue', ...headers];
      asking.send(post('', { headers: expecting }));
      assert.equal((await answerTo(asking)).status, status);
      assert.ok(!asking.received().includes(' 100 '));
    });
  }

  it('a request with Expect within the limit gets its 100 before the body', async (t) => {
    const { sending } = await gatewayFixture(t, { answers: completion, settings });
    const asking = sending(
      post('', { headers: [`Content-Length: ${chatBody().length}`, 'Expect: 100-continue'] }),
    );
    await asking.until(/^HTTP\/1\.1 100 Continue\r\n\r\n/);
    asking.send(chatBody());
    assert.equal((await answerTo(asking)).status, 200);
  });

  it('a client that goes on sending a refused body still reads the refusal', async (t) => {
    const { sending } = await gatewayFixture(t, { settings });
    const asking = sending(
      post(TOO_LARGE.slice(0, 900_000), { headers: [`Content-Length: ${TOO_LARGE.length}`] }),
    );
    const answer = await answerTo(asking);
    assert.equal(answer.status, 413);
    assert.equal(await asking.ended, 'end');
  });

  it('the rest of a refused body is thrown away for a bounded time', async (t) => {
    const { gateway, sending } = await gatewayFixture(t, { settings, times });
    const asking = sending(post('{', { headers: ['Content-Length: 100001'] }));
    const begun = performance.now();
    await once(asking.socket, 'close');
    const waited = performance.now() - begun;
    assert.ok(waited > 250 && waited < 9_000, `${waited} ms`);
    assert.equal(gateway.active(), 0);
  });

  it('the rest of a refused body is thrown away up to a bounded length', async (t) => {
    const { sending } = await gatewayFixture(t, { settings });
    /** ms until the connection ended. */
    const refused = async (): Promise<number> => {
      const asking = sending(post('{', { headers: ['Content-Length: 1000000000'] }));
      const begun = performance.now();
      const timer = setInterval(() => asking.socket.writable && asking.send(Buffer.alloc(300_000)), 20);
      await asking.ended;
      clearInterval(timer);
      return performance.now() - begun;
    };
    // A pause of this process may make one of them longer, but time alone makes all of them a second long.
    await eventually('an end before a second was over', async () => (await refused()) < 700);
  });

  it('a request to a service that is not verified gets 503 not_ready before the rest of the body has arrived', async (t) => {
    const { upstream, sending } = await gatewayFixture(t, {
      session: fakeSession({
        acquire: async () => {
          await delay(50);
          throw new PrivatemodeError('not_ready', 'not yet');
        },
      }),
    });
    const asking = sending(post(chatBody(), { headers: ['Content-Length: 100000'] }));
    const answer = await answerTo(asking);
    assertError(answer, 503, 'not_ready');
    assert.equal(answer.headers['retry-after'], '2');
    assert.equal(upstream.connections.total, 0);
  });

  it('a GET with a body is answered before the body has arrived, and its connection ends', async (t) => {
    const { upstream, sending } = await gatewayFixture(t);
    upstream.on((scripted) => scripted.write(http(200, '{"data":[]}')));
    const asking = sending(get('/v1/models', ['Content-Length: 1000000']));
    const timer = setInterval(() => asking.socket.writable && asking.send('x'), 20);
    const answer = await answerTo(asking);
    assert.deepEqual([answer.status, answer.headers['connection']], [200, 'close']);
    await asking.ended;
    clearInterval(timer);
    assert.equal(upstream.requests[0]?.body.length, 0);
  });

  for (const [what, body, header] of [
    ['a compressed body', chatBody(), 'Content-Encoding: gzip'],
    [
      'a body with Transfer-Encoding: gzip, chunked',
      '1\r\n{\r\n0\r\n\r\n',
      'Transfer-Encoding: gzip, chunked',
    ],
  ] as const) {
    it(`${what} is refused`, async (t) => {
      const { upstream, ask } = await gatewayFixture(t, { answers: completion });
      assertError(await ask(post(body, { headers: [header] })), 415, 'unsupported_encoding');
      assert.equal(upstream.connections.total, 0);
    });
  }
});
