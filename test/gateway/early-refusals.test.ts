/**
 * A refusal while the body is still arriving: closing at once would reset the connection and lose the
 * response (RFC 9112 9.6).
 */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import { PrivatemodeError } from '../../lib/errors.ts';
import { fakeSession } from '../support/doors/gateway.ts';
import { answerTo, assertError, chatBody, gatewayFixture, post } from '../support/doors/gateway-fixture.ts';
import { completion } from '../support/remote/sealed-answers.ts';

const settings = { maxBodyBytes: 100_000 };
const times = { discardWait: 300 };

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

  it('a chunked body is refused with 413 as soon as it exceeds the limit', async (t) => {
    const { upstream, sending } = await gatewayFixture(t, { settings });
    const endless = `10\r\n{"model":"m","a"\r\n2\r\n:"\r\n${`1000\r\n${'x'.repeat(4096)}\r\n`.repeat(40)}`;
    const asking = sending(post(endless, { headers: ['Transfer-Encoding: chunked'] }));
    assertError(await answerTo(asking, 9_000), 413, 'body_too_large');
    assert.equal(upstream.connections.total, 0);
  });

  it('a body that is refused by its head, and announced with Expect, gets no 100', async (t) => {
    const { sending } = await gatewayFixture(t, { settings });
    for (const [status, headers] of [
      [413, ['Content-Length: 100001']],
      [403, ['Content-Length: 9', 'Origin: https://foreign.example', 'Sec-Fetch-Site: cross-site']],
    ] as const) {
      const asking = sending(post('', { headers: [...headers, 'Expect: 100-continue'] }));
      assert.equal((await answerTo(asking)).status, status);
      assert.ok(!asking.received().includes(' 100 '));
    }
  });

  it('a body of exactly the limit passes, and gets its 100 before, if it is announced with Expect', async (t) => {
    const { sending } = await gatewayFixture(t, { answers: completion, settings });
    const body = chatBody({ user: 'x'.repeat(settings.maxBodyBytes - chatBody({ user: '' }).length) });
    const asking = sending(post('', { headers: [`Content-Length: ${body.length}`, 'Expect: 100-continue'] }));
    await asking.until(/^HTTP\/1\.1 100 Continue\r\n\r\n/);
    asking.send(body);
    assert.equal((await answerTo(asking)).status, 200);
  });

  it('the rest of a refused body is thrown away up to a bounded length', async (t) => {
    const { sending } = await gatewayFixture(t, { settings, times: { discardWait: 600_000 } });
    const asking = sending(post('{', { headers: ['Content-Length: 200000000'] }));
    const timer = setInterval(() => asking.socket.writable && asking.send(Buffer.alloc(300_000)), 20);
    t.after(() => clearInterval(timer));
    await asking.ended; // long before the time is over
    assert.ok(asking.socket.bytesWritten < 100_000_000, `${asking.socket.bytesWritten} bytes`);
  });

  it('a request to a service that is not verified gets 503 not_ready before the rest of the body has arrived', async (t) => {
    const { upstream, sending } = await gatewayFixture(t, {
      session: fakeSession({
        acquire: async () => {
          await turn();
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

  it('a compressed body is refused, whichever header says so', async (t) => {
    const { upstream, ask } = await gatewayFixture(t);
    for (const [body, header] of [
      [chatBody(), 'Content-Encoding: gzip'],
      ['1\r\n{\r\n0\r\n\r\n', 'Transfer-Encoding: gzip, chunked'],
    ] as const)
      assertError(await ask(post(body, { headers: [header] })), 415, 'unsupported_encoding');
    assert.equal(upstream.connections.total, 0);
  });
});
