/**
 * A client is gone when its response can no longer be written, not when its request has been read (Node emits
 * `close` for both).
 */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { setTimeout as delay, setImmediate as turn } from 'node:timers/promises';
import { fakeSession, type TestGateway } from '../support/doors/gateway.ts';
import { chatBody, gatewayFixture, post } from '../support/doors/gateway-fixture.ts';
import type { RawClient } from '../support/doors/raw-client.ts';
import { eventually } from '../support/processes/eventually.ts';
import {
  chunked,
  completion,
  http,
  plainError,
  STREAM_HEAD,
  sealedAnswers,
} from '../support/remote/sealed-answers.ts';

const STREAMING = chatBody({ stream: true });

/** The ways to vanish. A half-close counts: in Node as in Go nobody is there any more. */
const DEPARTURES: [name: string, leave: (client: RawClient) => void][] = [
  ['closes', ({ socket }) => socket.destroy()],
  ['resets', ({ socket }) => socket.resetAndDestroy()],
  ['half-closes', ({ socket }) => socket.end()],
];

/** Nothing is logged of it but that the client left. */
async function noFailure({ logLines }: TestGateway): Promise<void> {
  for (let i = 0; i < 10; i++) await turn();
  assert.doesNotMatch(logLines.join(''), /Request failed/);
}

interface Stage {
  readonly body?: string;
  readonly headers?: readonly string[];
  /** What the remote sends when it has the request. */
  readonly answers?: (request: Buffer) => string;
  /** What of it the client has read before it leaves. */
  readonly read?: RegExp;
  /** What the gateway has logged before it leaves. */
  readonly logged?: RegExp;
  readonly line: Readonly<Record<string, unknown>>;
}

const STAGES: Readonly<Record<string, Stage>> = {
  'during its upload': { headers: ['Content-Length: 1000'], line: { phase: 'before_headers' } },
  'before the answer': { line: { model: 'm', phase: 'before_headers' } },
  'while a plain error arrives': {
    answers: () => plainError(429, 'no').slice(0, -5),
    logged: /answered with an error status/,
    line: { model: 'm', phase: 'before_headers' },
  },
  'while a whole answer arrives': {
    answers: (request) => completion(request).slice(0, -20),
    line: { model: 'm', phase: 'before_headers' },
  },
  'while an encrypted error arrives': {
    answers: (request) => http(400, sealedAnswers(request).object({ error: {} })).slice(0, -5),
    line: { model: 'm', phase: 'before_headers' },
  },
  'before the first token': {
    body: STREAMING,
    answers: () => STREAM_HEAD,
    read: /\r\n\r\n/,
    line: { status: 200, model: 'm', phase: 'before_first_token' },
  },
  'in mid-stream': {
    body: STREAMING,
    answers: (request) => STREAM_HEAD + chunked(sealedAnswers(request).chunk('hel')),
    read: /"hel"/,
    line: { status: 200, firstTokenMs: true, model: 'm', phase: 'mid_stream', tokensIn: 3, tokensOut: 1 },
  },
};

describe('client aborts', { concurrency: true }, () => {
  for (const [how, leave] of DEPARTURES) {
    for (const [when, stage] of Object.entries(STAGES)) {
      const { body = chatBody(), headers = [], answers = () => '', read, logged, line } = stage;
      it(`the gateway drops the exchange, also upstream, of a client that ${how} ${when}, and logs the phase`, async (t) => {
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
        await delay(20); // in which the gateway reads what was written, which nothing tells for all of them
        if (logged !== undefined)
          await eventually('the line', () => gateway.logLines.some((each) => logged.test(each)));
        leave(asking);
        await eventually('the end of the exchange', () => gateway.active() === 0);
        await eventually('the end of the connection to the remote', () => upstream.connections.open === 0);
        assert.equal(upstream.connections.total, isSent ? 1 : 0);
        assert.equal(upstream.requests.length, isSent ? 1 : 0);
        assert.deepEqual([...gateway.counters.clientAborts], [[line['phase'], 1]]);
        assert.deepEqual([...gateway.counters.decryptFailures], []);
        await noFailure(gateway);
        const lines = gateway.logLines
          .map((each) => JSON.parse(each))
          .filter(({ level }) => level === 'INFO');
        assert.deepEqual(
          lines.map(({ time, level, requestId, durationMs, receivedMs, sentMs, firstTokenMs, ...rest }) => ({
            ...rest,
            ...(firstTokenMs === undefined ? {} : { firstTokenMs: firstTokenMs <= durationMs }),
          })),
          [
            {
              ...{ method: 'POST', path: '/v1/chat/completions', msg: 'Request ended' },
              ...{ outcome: 'client_aborted', ...line },
            },
          ],
        );
      });
    }
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
    await delay(100); // in which a second request would arrive
    assert.equal(upstream.requests.length, 1);
    assert.equal(gateway.counters.upstreamRetries.size, 0);
  });
});
