/**
 * A client is gone when its response can no longer be written, not when its request has been read (Node emits
 * `close` for both).
 */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { fakeSession } from '../support/doors/gateway.ts';
import { chatBody, gatewayFixture, post } from '../support/doors/gateway-fixture.ts';
import type { RawClient } from '../support/doors/raw-client.ts';
import { eventually } from '../support/processes/eventually.ts';
import { settle } from '../support/remote/fake-clock.ts';
import { beginning, completion, plainError, STREAM_HEAD } from '../support/remote/sealed-answers.ts';

const STREAMING = chatBody({ stream: true });

/** The ways to vanish. A half-close counts: in Node as in Go nobody is there any more. */
const DEPARTURES: readonly ((client: RawClient) => void)[] = [
  ({ socket }) => socket.destroy(),
  ({ socket }) => socket.resetAndDestroy(),
  ({ socket }) => socket.end(),
];

interface Stage {
  readonly body?: string;
  readonly headers?: readonly string[];
  /** What the remote sends when it has the request. */
  readonly answers?: (request: Buffer) => string;
  /** What of it the client has read before it leaves. */
  readonly read?: RegExp;
  readonly line: { phase: string; status?: number; model?: string; tokensOut?: number };
}

const BEFORE = { model: 'm', phase: 'before_headers' };
const STAGES: Readonly<Record<string, Stage>> = {
  'during its upload': { headers: ['Content-Length: 1000'], line: { phase: 'before_headers' } },
  'before the answer': { line: BEFORE },
  'while a plain error arrives': { answers: () => plainError(429, 'no').slice(0, -5), line: BEFORE },
  'while a whole answer arrives': { answers: (request) => completion(request).slice(0, -20), line: BEFORE },
  'before the first token': {
    ...{ body: STREAMING, answers: () => STREAM_HEAD, read: /\r\n\r\n/ },
    line: { status: 200, model: 'm', phase: 'before_first_token' },
  },
  'in mid-stream': {
    ...{ body: STREAMING, answers: beginning, read: /"hel"/ },
    line: { status: 200, model: 'm', phase: 'mid_stream', tokensOut: 1 },
  },
};

describe('client aborts', { concurrency: true }, () => {
  for (const [when, stage] of Object.entries(STAGES)) {
    const { body = chatBody(), headers = [], answers = () => '', read, line } = stage;
    it(`the gateway drops the exchange, also upstream, of a client that leaves ${when}, and logs the phase`, async (t) => {
      for (const leave of DEPARTURES) {
        const { upstream, gateway, sending } = await gatewayFixture(t);
        const asked = Promise.withResolvers<void>();
        upstream.on(async (scripted) => {
          await scripted.write(answers(await scripted.body()));
          asked.resolve();
        });
        const asking = sending(post(body, { headers }));
        const isSent = headers.length === 0;
        if (isSent) await asked.promise;
        else await eventually('the request', () => gateway.active() === 1);
        if (read !== undefined) await asking.until(read);
        leave(asking);
        await eventually('the end of the exchange', () => gateway.active() === 0);
        await eventually('the end of the connection to the remote', () => upstream.connections.open === 0);
        assert.equal(upstream.requests.length, isSent ? 1 : 0);
        assert.deepEqual([...gateway.counters.clientAborts], [[line.phase, 1]]);
        assert.deepEqual([...gateway.counters.decryptFailures], []);
        await settle();
        assert.doesNotMatch(gateway.logLines.join(''), /Request failed/);
        const lines = gateway.logLines.map((each) => JSON.parse(each));
        const told = lines.filter(({ level }) => level === 'INFO');
        assert.deepEqual(
          told.map(({ outcome, phase, status, model, tokensOut }) => [
            outcome,
            phase,
            status,
            model,
            tokensOut,
          ]),
          [['client_aborted', line.phase, line.status, line.model, line.tokensOut]],
        );
      }
    });
  }

  it('the gateway sends no second request for a client that leaves while the secret is renewed', async (t) => {
    const session = fakeSession();
    const { upstream, gateway, sending } = await gatewayFixture(t, {
      session: {
        ...session,
        async renewAfterDenial(secretId) {
          asking.socket.destroy();
          await eventually('the end of the exchange', () => gateway.active() === 0);
          return session.renewAfterDenial(secretId);
        },
      },
    });
    upstream.answers(plainError(500, 'no secret for ID "x"'));
    const asking = sending(post());
    await eventually('the renewal of the secret', () => session.rejected.length === 1);
    await settle();
    assert.equal(upstream.requests.length, 1);
    assert.equal(gateway.counters.upstreamRetries.size, 0);
  });
});
