/** The head of a stream, which clients show as a connection that stands. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { chatBody, gatewayFixture, post } from '../support/gateway-fixture.ts';
import { chatStream, STREAM_HEAD } from '../support/sealed-answers.ts';

describe('the head of a stream', () => {
  it('reaches the client before there is any event', async (t) => {
    const { upstream, client } = await gatewayFixture(t);
    const { promise: seen, resolve: sees } = Promise.withResolvers<void>();
    upstream.on(async (scripted) => {
      const request = await scripted.body();
      await scripted.write(STREAM_HEAD);
      await seen;
      await scripted.write(chatStream(request).slice(STREAM_HEAD.length));
    });
    const asking = client();
    asking.send(post(chatBody({ stream: true })));
    const head = await asking.until(/\r\n\r\n/);
    assert.match(head, /^HTTP\/1.1 200 .*content-type: text\/event-stream/is);
    assert.doesNotMatch(head, /data:/);
    sees();
    await asking.until(/data: \[DONE\]/);
  });

  it('comes with the events that are there already, each once', async (t) => {
    const { upstream, ask } = await gatewayFixture(t);
    upstream.on(async (scripted) => {
      const request = await scripted.body();
      await scripted.write(chatStream(request));
    });
    const answer = await ask(post(chatBody({ stream: true })));
    assert.equal(answer.complete, true);
    assert.deepEqual(answer.body.match(/"content":"[a-z]*"|\[DONE\]/g), [
      '"content":"hel"',
      '"content":"lo"',
      '[DONE]',
    ]);
  });
});
