/** A service that sends 1xx responses for ever must not keep a request alive. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { codeOf, gatewayFixture, post } from '../support/gateway-fixture.ts';
import { completion } from '../support/sealed-answers.ts';

const BURST = [
  'HTTP/1.1 100 Continue\r\n\r\n',
  'HTTP/1.1 102 Processing\r\n\r\n',
  'HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n',
];

describe('informational responses', { concurrency: true }, () => {
  it('do not postpone the time-out of the first byte', async (t) => {
    const { upstream, ask } = await gatewayFixture(t, { firstByteTimeout: 500 });
    upstream.on(async (scripted) => {
      await scripted.body();
      for (let i = 0, open = true; open; i++) {
        scripted.write(BURST[i % BURST.length] as string);
        open = await Promise.race([scripted.closed.then(() => false), delay(50, true)]);
      }
    });
    const begun = performance.now();
    const answer = await ask(post());
    const waited = performance.now() - begun;
    assert.deepEqual([answer.status, codeOf(answer)], [504, 'first_byte_timeout']);
    assert.ok(waited > 450 && waited < 2_000, `${waited} ms`);
  });

  it('are not passed on, and the answer behind them is', async (t) => {
    const { upstream, client } = await gatewayFixture(t);
    upstream.on(async (scripted) => {
      const body = await scripted.body();
      for (let i = 0; i < 60; i++) await scripted.write(BURST[i % BURST.length] as string);
      await scripted.write(completion(body));
    });
    const asking = client();
    asking.send(post());
    const text = await asking.until(/"hello"/);
    assert.match(text, /^HTTP\/1\.1 200 OK\r\n/);
    assert.equal(text.split('HTTP/1.1').length, 2);
  });

  it('a protocol switch that nobody asked for is an error', async (t) => {
    const { upstream, ask } = await gatewayFixture(t, {
      answers: 'HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n',
    });
    const answer = await ask(post());
    assert.deepEqual([answer.status, codeOf(answer)], [502, 'upstream_reset']);
    assert.equal(upstream.requests.length, 1);
  });
});
