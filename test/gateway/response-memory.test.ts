/** The memory that all responses share which are kept whole until they have authenticated. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { createTranslator } from '../../lib/responses-api/translator.ts';
import { answerTo, assertError, chatBody, gatewayFixture, post } from '../support/doors/gateway-fixture.ts';
import { eventually } from '../support/processes/eventually.ts';
import {
  COMPLETION,
  chatStream,
  chunked,
  http,
  LAST_CHUNK,
  STREAM_HEAD,
  sealedAnswers,
} from '../support/remote/sealed-answers.ts';

const MIB = 1024 * 1024;

/** A sealed answer of a little more than so many bytes. */
const answerOf = (request: Buffer, bytes: number): string => {
  const message = { role: 'assistant', content: 'x'.repeat(bytes / 2) };
  const choices = [{ index: 0, message, finish_reason: 'stop' }];
  return sealedAnswers(request).object({ ...COMPLETION, choices });
};

describe('whole responses', { timeout: 600_000 }, () => {
  const settings = { maxBufferedBytes: 2 * MIB };

  it('become 502 response_too_large if they are larger than all of the memory, announced or not', async (t) => {
    const { upstream, ask } = await gatewayFixture(t, { settings });
    const head = 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n';
    for (const framed of [
      (text: string) => http(200, text),
      (text: string) => head + (text.match(/.{1,65536}/g) ?? []).map(chunked).join('') + LAST_CHUNK,
    ]) {
      upstream.answers((request) => framed(answerOf(request, 2 * MIB)));
      const answer = await ask(post());
      assertError(answer, 502, 'response_too_large');
      assert.match(answer.body, /2097152 bytes \(--max-buffered-bytes\)/);
    }
  });

  it('become 503 with Retry-After if others hold the memory; small ones and streams do not', async (t) => {
    const { upstream, sending, ask, gateway } = await gatewayFixture(t, { settings });
    const large = (request: Buffer) => http(200, answerOf(request, 1.2 * MIB));
    upstream.answers((request) => large(request).slice(0, -10)); // its end never comes
    const holding = sending(post());
    await eventually('its answer', () => gateway.heldResponses.bufferedBytes > 1.2 * MIB);
    upstream.answers(large);
    const answer = await ask(post());
    assertError(answer, 503, 'too_many_responses');
    assert.match(answer.headers['retry-after'] ?? '', /^[2-5]$/);
    upstream.answers((request) => http(200, answerOf(request, 100)));
    assert.equal((await ask(post())).status, 200);
    upstream.answers(chatStream);
    assert.equal((await ask(post(chatBody({ stream: true })))).status, 200);
    holding.socket.destroy();
    await eventually('the memory to be free', () => gateway.heldResponses.bufferedBytes === 0);
    upstream.answers(large);
    assert.equal((await ask(post())).status, 200);
  });
});

describe('memory for the parts of a request that its translated response repeats', () => {
  const asking = (bytes: number): Buffer =>
    post(JSON.stringify({ model: 'm', input: 'x', stream: true, metadata: { a: 'y'.repeat(bytes) } }), {
      path: '/v1/responses',
    });

  it('is reserved before the request is sent, and freed when the client leaves', async (t) => {
    const { gateway, upstream, sending } = await gatewayFixture(t, {
      settings: { maxBufferedBytes: MIB },
      deps: { createTranslator },
    });
    upstream.on(async (scripted) => {
      await scripted.body();
      assert.ok(gateway.heldResponses.bufferedBytes > 600_000, String(gateway.heldResponses.bufferedBytes));
      await scripted.write(STREAM_HEAD);
    });
    const holding = sending(asking(200_000));
    await eventually('the head of its response', () => holding.received() !== '');
    assert.ok(gateway.heldResponses.bufferedBytes > 600_000);
    assertError(await answerTo(sending(asking(200_000))), 503, 'too_many_responses');
    assert.equal(upstream.requests.length, 1);
    holding.socket.destroy();
    await eventually('the memory to be free', () => gateway.heldResponses.bufferedBytes === 0);
  });
});
