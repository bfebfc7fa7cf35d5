/** The time limits: Node's own do not fit long uploads and streams that last minutes. */
import assert from 'node:assert/strict';
import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import type { Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { describe, it } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { TIMES } from '../../lib/times.ts';
import { EPOCH, fakeSession, NEXT_EPOCH } from '../support/doors/gateway.ts';
import {
  answerTo,
  assertError,
  chatBody,
  gatewayFixture,
  get,
  post,
} from '../support/doors/gateway-fixture.ts';
import { eventually } from '../support/processes/eventually.ts';
import { createFakeClock } from '../support/remote/fake-clock.ts';
import { completion, STREAM_HEAD } from '../support/remote/sealed-answers.ts';

describe('limits of time', () => {
  describe('time-outs of the listener', { concurrency: true }, () => {
    it('are none for an upload, 15 s for a request head, 75 s for an idle connection, 10 min for one that takes nothing', async (t) => {
      const { gateway, ask } = await gatewayFixture(t);
      let listener: Server | undefined;
      const seen = (message: unknown): void => {
        const { server } = message as { server: Server };
        if ((server.address() as AddressInfo).port === gateway.port) listener = server;
      };
      subscribe('http.server.request.start', seen);
      t.after(() => unsubscribe('http.server.request.start', seen));
      await ask(get('/healthz'));
      const { requestTimeout, headersTimeout, keepAliveTimeout, timeout } = listener as Server;
      assert.deepEqual(
        [requestTimeout, headersTimeout, keepAliveTimeout, timeout],
        [0, 15_000, 75_000, 600_000],
      );
    });

    it('a request head that trickles in gets 408', async (t) => {
      const { upstream, client } = await gatewayFixture(t, { times: { headTimeout: 500, headLook: 100 } });
      const asking = client();
      const timer = setInterval(() => asking.socket.writable && asking.send('X: y\r\n'), 50);
      t.after(() => clearInterval(timer));
      asking.send('POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n');
      const answer = await answerTo(asking);
      assert.equal(answer.status, 408);
      assert.equal(upstream.connections.total, 0);
    });

    it('the time limit of the head does not apply to the body', async (t) => {
      const times = { headTimeout: 300, headLook: 100 };
      const { client } = await gatewayFixture(t, { answers: completion, times });
      const asking = client();
      const request = post();
      asking.send(request.subarray(0, -10));
      await delay(1_000); // three times the limit, with many looks of the listener
      asking.send(request.subarray(-10));
      assert.equal((await answerTo(asking)).status, 200);
    });
  });

  it('an upload below the minimum rate gets 408', async (t) => {
    const { upstream, sending } = await gatewayFixture(t, {
      times: { uploadSpan: 500 },
    });
    const asking = sending(post(chatBody().slice(0, 60), { headers: ['Content-Length: 5000'] }));
    const timer = setInterval(() => asking.socket.writable && asking.send('x'), 50);
    t.after(() => clearInterval(timer));
    assertError(await answerTo(asking), 408, 'upload_too_slow');
    assert.equal(upstream.connections.total, 0);
  });

  describe('time-outs towards the remote', () => {
    it('a remote that has begun its response and still reads the upload is cut after --stream-idle-timeout', async (t) => {
      const settings = { maxBodyBytes: 64 * 1024 * 1024, streamIdleTimeout: 500 };
      const { upstream, gateway, sending } = await gatewayFixture(t, { settings });
      let looks = 0;
      upstream.on(async (scripted) => {
        let isOpen = true;
        void scripted.closed.then(() => (isOpen = false));
        scripted.pause();
        await scripted.write(STREAM_HEAD);
        while (isOpen && looks < 100) {
          looks += 1;
          await delay(50);
          scripted.resume();
          await delay(1);
          scripted.pause();
        }
      });
      const answer = await answerTo(sending(post(chatBody({ stream: true, user: 'x'.repeat(40_000_000) }))));
      assert.match(answer.body, /stream_idle_timeout/);
      assert.ok(looks < 30, 'its reading kept the response open');
      await eventually('the end of the exchange', () => gateway.active() === 0);
    });

    it('a remote to which the connection is open may answer after the connect time-out', async (t) => {
      const clock = createFakeClock(0, { ...TIMES, connectTimeout: 3_000 });
      const { upstream, ask } = await gatewayFixture(t, { clock });
      upstream.on(async (scripted) => {
        const body = await scripted.body();
        await clock.advance(3_300);
        await scripted.write(completion(body));
      });
      assert.equal((await ask(post())).status, 200);
    });

    const upload = post(chatBody({ user: 'x'.repeat(20_000_000) }));

    it('a remote that stops reading the upload gives 504 after the first-byte time-out', async (t) => {
      const { upstream, sending } = await gatewayFixture(t, {
        settings: { firstByteTimeout: 500, maxBodyBytes: 40_000_000 },
      });
      upstream.on((scripted) => scripted.pause());
      assertError(await answerTo(sending(upload), 60_000), 504, 'first_byte_timeout');
    });

    it('a remote that reads the upload slowly does not exceed the first-byte time-out', async (t) => {
      const clock = createFakeClock();
      const { upstream, sending } = await gatewayFixture(t, {
        clock,
        settings: { firstByteTimeout: 5_000, maxBodyBytes: 40_000_000 },
      });
      upstream.on(async (scripted) => {
        for (let paused = 0; paused < 3; paused++) {
          scripted.pause();
          await clock.advance(4_000);
          assert.equal(scripted.request.complete, false, 'the upload was over too early to show anything');
          const before = upstream.received().length;
          scripted.resume();
          await eventually('more of the upload', () => upstream.received().length > before + 2_000_000);
        }
        await scripted.write(completion(await scripted.body()));
      });
      assert.equal((await answerTo(sending(upload), 60_000)).status, 200);
    });

    it('an upload that takes longer than its epoch is sealed for the next epoch', async (t) => {
      let now = EPOCH;
      let asked = 0;
      const acquire = async () => {
        asked += 1;
        return now;
      };
      const { upstream, client } = await gatewayFixture(t, { session: fakeSession({ acquire }) });
      const asking = client();
      const request = post();
      asking.send(request.subarray(0, -10));
      await eventually('the wish for an epoch, before the body has come', () => asked === 1);
      now = NEXT_EPOCH;
      asking.send(request.subarray(-10));
      upstream.on((scripted) => scripted.write('HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n'));
      await answerTo(asking);
      assert.equal(upstream.requests[0]?.headers['privatemode-secret-id'], NEXT_EPOCH.secretId);
    });
  });
});
