/** The upstream request: nothing is sent before its body can be attached, and a body that fails takes the request down. */
import assert from 'node:assert/strict';
import { Readable } from 'node:stream';
import { describe, it } from 'node:test';
import { PrivatemodeError } from '../../lib/errors.ts';
import { chatBody, codeOf, gatewayFixture, post } from '../support/gateway-fixture.ts';
import { completion, openedRequest } from '../support/sealed-answers.ts';

describe('an upstream request', () => {
  it('seals and sends a request with Expect like any other', async (t) => {
    const { upstream, client } = await gatewayFixture(t, { answers: completion });
    const asking = client();
    const request = post(chatBody(), { headers: ['Expect: 100-continue'] });
    const head = request.indexOf('\r\n\r\n') + 4;
    asking.send(request.subarray(0, head));
    await asking.until(/^HTTP\/1\.1 100 Continue\r\n\r\n$/);
    asking.send(request.subarray(head));
    await asking.until(/HTTP\/1\.1 200/);
    assert.equal(upstream.requests[0]?.headers['expect'], undefined);
    assert.equal(openedRequest(upstream.requests[0]?.body as Buffer).size, 2);
  });

  it('keeps many requests at once apart: each body goes out under its own head', async (t) => {
    const { upstream, ask } = await gatewayFixture(t, { answers: completion });
    const names = Array.from({ length: 20 }, (_, i) => `model-${i}`);
    await Promise.all(names.map((model) => ask(post(chatBody({ model, user: `for ${model}` })))));
    const seen = upstream.requests.map(({ headers, body }) => [
      headers['privatemode-target-model'],
      openedRequest(body).get('user'),
    ]);
    assert.deepEqual(seen.toSorted(), names.map((name) => [name, JSON.stringify(`for ${name}`)]).toSorted());
  });
});

describe('an upstream request whose body cannot be sealed to its end', () => {
  it('takes the half-sent request down with it, and is told', async (t) => {
    const headSeen = Promise.withResolvers<void>();
    const remoteClosed = Promise.withResolvers<void>();
    async function* failing(): AsyncGenerator<Buffer> {
      yield Buffer.alloc(100, 'x');
      await headSeen.promise;
      throw new PrivatemodeError('internal', 'the seal broke');
    }
    const { upstream, ask } = await gatewayFixture(t, {
      wrapUpstream: (real) => ({
        ...real,
        send: (req, res, attempt) => real.send(req, res, { ...attempt, body: Readable.from(failing()) }),
      }),
    });
    upstream.on(({ closed }) => {
      headSeen.resolve();
      void closed.then(remoteClosed.resolve);
    });
    const answer = await ask(post());
    assert.deepEqual([answer.status, codeOf(answer)], [500, 'internal']);
    await remoteClosed.promise;
    assert.deepEqual(
      upstream.requests.map(({ complete }) => complete),
      [false],
    );
  });
});
