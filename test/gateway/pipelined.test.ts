/** Requests that a client sends ahead of their responses run beside each other, and none is lost. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { chatBody, gatewayFixture, get, post } from '../support/doors/gateway-fixture.ts';
import { readAnswer } from '../support/doors/raw-client.ts';
import { eventually } from '../support/processes/eventually.ts';
import { COMPLETION, http, openedRequest, sealedAnswers } from '../support/remote/sealed-answers.ts';

const MODELS = '{"object":"list","data":[]}';
const times = <T>(count: number, make: (index: number) => T): T[] =>
  Array.from({ length: count }, (_, i) => make(i));

const responsesIn = (text: string): number => text.split('HTTP/1.1 ').length - 1;

describe('a gateway with pipelined requests', { timeout: 600_000 }, () => {
  for (const leave of ['destroy', 'end', 'resetAndDestroy'] as const) {
    it(`leaves none of 20 requests behind if its client leaves by ${leave} before the first response`, async (t) => {
      const { upstream, gateway, sending } = await gatewayFixture(t);
      upstream.on(async (scripted) => void (await scripted.body()));
      const asking = sending(get('/v1/models').repeat(20));
      await eventually('all at the service', () => upstream.requests.length === 20);
      asking.socket[leave]();
      await eventually('their end', () => gateway.active() === 0);
      await eventually('the end of their connections', () => upstream.connections.open === 0);
    });
  }

  it('answers 200 requests, with and without bodies, each with its own response and in their order', async (t) => {
    const { client, upstream } = await gatewayFixture(t);
    upstream.on(async (scripted) => {
      const body = await scripted.body();
      if (scripted.request.method === 'GET') return scripted.write(http(200, MODELS));
      const content = JSON.parse(openedRequest(body).get('user')!) as string;
      const choices = [{ index: 0, message: { role: 'assistant', content }, finish_reason: 'stop' }];
      const answer = sealedAnswers(body).object({ ...COMPLETION, choices });
      return scripted.write(http(200, answer, { 'Content-Type': 'application/json' }));
    });
    const asking = client();
    const userOf = (i: number): string => `${i}${'x'.repeat(i * 300)}`;
    for (let i = 0; i < 100; i++) {
      asking.send(post(chatBody({ user: userOf(i) })));
      asking.send(get('/v1/models'));
    }
    const isAll = (text: string): boolean => responsesIn(text) === 200 && text.endsWith(MODELS);
    await eventually('all answers', () => isAll(asking.received()));
    const said: unknown[] = [];
    for (let rest = asking.received(); said.length < 200; ) {
      const answer = readAnswer(rest);
      assert.ok(answer?.complete && answer.status === 200, rest.slice(0, 500));
      said.push(answer.body === MODELS ? MODELS : JSON.parse(answer.body).choices[0].message.content);
      rest = answer.rest;
    }
    assert.deepEqual(said, times(100, (i) => [userOf(i), MODELS]).flat());
    assert.equal(upstream.requests.length, 200);
  });
});
