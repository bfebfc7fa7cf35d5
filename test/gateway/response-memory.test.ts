/** The memory that all responses share which are kept whole until they have authenticated. */

import assert from 'node:assert/strict';
import { describe, it, type TestContext } from 'node:test';
import { createTranslator } from '../../lib/responses-api/translator.ts';
import { ask as askStack } from '../faults/ask.ts';
import {
  answerTo,
  assertError,
  chatBody,
  codeOf,
  type Fixture,
  gatewayFixture,
  post,
} from '../support/doors/gateway-fixture.ts';
import type { RawClient } from '../support/doors/raw-client.ts';
import { startStack } from '../support/doors/stack.ts';
import { eventually } from '../support/processes/eventually.ts';
import {
  chatStream,
  chunked,
  http,
  LAST_CHUNK,
  STREAM_HEAD,
  sealedAnswers,
} from '../support/remote/sealed-answers.ts';

const MIB = 1024 * 1024;
const JSON_TYPE = { 'Content-Type': 'application/json' };

interface Scene extends Fixture {
  /** One that asks for an answer of so many MiB and reads only its beginning. */
  readonly holder: (mebibytes: number) => Promise<RawClient>;
}

/** Models are named by the MiB of their answers, which are twice as large on the wire. */
async function scene(t: TestContext, framing: 'announced' | 'chunked'): Promise<Scene> {
  const fixture = await gatewayFixture(t, {
    settings: { maxBufferedBytes: 28 * MIB },
  });
  const { upstream, client, gateway } = fixture;
  upstream.on(async (scripted) => {
    const body = await scripted.body();
    const mebibytes = Number(scripted.request.headers['privatemode-target-model']);
    if (body.includes('"stream":true')) return void (await scripted.write(chatStream(body)));
    const message = { role: 'assistant', content: 'x'.repeat(mebibytes * MIB) };
    const whole = {
      ...{ id: 'c', object: 'chat.completion', created: 1, model: 'm' },
      choices: [{ index: 0, message, finish_reason: 'stop' }],
    };
    const sealed = sealedAnswers(body).object(whole);
    if (framing === 'announced') return void (await scripted.write(http(200, sealed, JSON_TYPE)));
    await scripted.write(
      'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n',
    );
    for (let at = 0; at < sealed.length; at += MIB / 4)
      await scripted.write(chunked(sealed.slice(at, at + MIB / 4)));
    await scripted.write(LAST_CHUNK);
  });
  return {
    ...fixture,
    async holder(mebibytes) {
      const holding = client();
      holding.socket.once('data', () => holding.socket.pause());
      holding.send(asking(mebibytes));
      await eventually('its answer', () => holding.received() !== '');
      assert.ok(gateway.heldResponses.bufferedBytes > 2 * mebibytes * MIB, 'it is not held');
      return holding;
    },
  };
}

const asking = (mebibytes: number, members: object = {}): Buffer =>
  post(chatBody({ ...members, model: `${mebibytes}` }));

describe('whole responses', { timeout: 600_000 }, () => {
  for (const framing of ['announced', 'chunked'] as const) {
    it(`(${framing}) become 502 response_too_large if they are larger than all of the memory`, async (t) => {
      const { ask } = await scene(t, framing);
      const answer = await ask(asking(15));
      assertError(answer, 502, 'response_too_large');
      assert.match(answer.body, /29360128 bytes \(--max-buffered-bytes\)/);
    });
  }

  it('become 503 with Retry-After if others hold the memory; small ones and streams do not', async (t) => {
    const { holder, ask, gateway } = await scene(t, 'chunked');
    const holding = await holder(12);
    const answer = await ask(asking(6));
    assert.deepEqual([answer.status, codeOf(answer)], [503, 'too_many_responses']);
    assert.match(answer.headers['retry-after'] ?? '', /^[2-5]$/);
    assert.equal((await ask(asking(0))).status, 200);
    assert.equal((await ask(asking(0, { stream: true }))).status, 200);
    holding.socket.destroy();
    await eventually('the memory to be free', () => gateway.heldResponses.bufferedBytes === 0);
    assert.equal((await ask(asking(6))).status, 200);
  });

  it('are bounded by --max-buffered-bytes', async (t) => {
    const stack = await startStack({ flags: ['--max-buffered-bytes=3000'] });
    t.after(() => stack.close());
    const question = { style: 'openai', mode: 'unary', prompt: 'hello', path: undefined } as const;
    const short = await askStack(stack.url, { ...question, model: 'sim-5x0' });
    assert.equal(short.status, 200, short.body);
    const long = await askStack(stack.url, { ...question, model: 'sim-2000x0' });
    assert.deepEqual([long.status, long.error?.code], [502, 'response_too_large']);
  });
});

describe('memory for the parts of a request that its translated response repeats', {
  timeout: 600_000,
}, () => {
  const asking = (bytes: number): Buffer =>
    post(JSON.stringify({ model: 'm', input: 'x', stream: true, metadata: { a: 'y'.repeat(bytes) } }), {
      path: '/v1/responses',
    });

  it('is reserved before the request is sent, and freed when the client leaves', async (t) => {
    const { gateway, upstream, client, sending } = await gatewayFixture(t, {
      settings: { maxBufferedBytes: MIB },
      deps: { createTranslator },
    });
    upstream.on(async (scripted) => {
      await scripted.body();
      assert.ok(gateway.heldResponses.bufferedBytes > 600_000, String(gateway.heldResponses.bufferedBytes));
      await scripted.write(STREAM_HEAD);
    });
    const holding = client();
    holding.send(asking(200_000));
    await eventually('the head of its response', () => holding.received() !== '');
    assert.ok(gateway.heldResponses.bufferedBytes > 600_000);
    assertError(await answerTo(sending(asking(200_000))), 503, 'too_many_responses');
    assert.equal(upstream.requests.length, 1);
    holding.socket.destroy();
    await eventually('the memory to be free', () => gateway.heldResponses.bufferedBytes === 0);
  });
});
