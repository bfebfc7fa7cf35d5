/** The time limits: Node's own do not fit long uploads and streams that last minutes. */
import assert from 'node:assert/strict';
import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { once } from 'node:events';
import type { Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { describe, it } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
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
import { chunked, completion, STREAM_HEAD, sealedAnswers } from '../support/remote/sealed-answers.ts';

describe('limits of time', { concurrency: true }, () => {
  describe('time-outs of the listener', { concurrency: true }, () => {
    it('are not those of Node: long uploads live, slow heads do not, idle connections stay for a while', async (t) => {
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
      assert.deepEqual([requestTimeout, headersTimeout, keepAliveTimeout, timeout], [0, 15_000, 75_000, 0]);
    });

    it('a head that trickles in is 408 in time', async (t) => {
      const { upstream, client } = await gatewayFixture(t, { patience: { headTimeout: 500 } });
      const asking = client();
      const timer = setInterval(() => asking.socket.writable && asking.send('X: y\r\n'), 50);
      t.after(() => clearInterval(timer));
      asking.send('POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n');
      const begun = performance.now();
      const answer = await answerTo(asking);
      assert.equal(answer.status, 408);
      assert.ok(performance.now() - begun < 3_000);
      assert.equal(upstream.connections.total, 0);
    });

    it('a connection that says nothing is ended in time', async (t) => {
      const { client } = await gatewayFixture(t, { patience: { headTimeout: 500 } });
      const silent = client();
      const begun = performance.now();
      await once(silent.socket, 'close');
      assert.ok(performance.now() - begun < 4_000);
    });

    it('a body is not bound by the time limit of the head', async (t) => {
      const { client } = await gatewayFixture(t, { answers: completion, patience: { headTimeout: 300 } });
      const asking = client();
      const request = post();
      asking.send(request.subarray(0, -10));
      await delay(2_000); // the listener looks every second
      asking.send(request.subarray(-10));
      assert.equal((await answerTo(asking)).status, 200);
    });
  });

  describe('the minimum upload rate', { concurrency: true }, () => {
    const options = { settings: { minUploadRate: 1_000 }, patience: { uploadRateGrace: 500 } };

    it('an upload below it is 408', async (t) => {
      const { upstream, sending } = await gatewayFixture(t, options);
      const asking = sending(post(chatBody().slice(0, 60), { headers: ['Content-Length: 5000'] }));
      const timer = setInterval(() => asking.socket.writable && asking.send('x'), 50);
      t.after(() => clearInterval(timer));
      assertError(await answerTo(asking), 408, 'upload_too_slow');
      assert.equal(upstream.connections.total, 0);
    });

    it('a fast beginning does not buy time: what counts is the last interval', async (t) => {
      const { client } = await gatewayFixture(t, options);
      const asking = client();
      // By the average since the start, this would do for half a minute.
      asking.send(
        post(chatBody({ user: 'x'.repeat(30_000) }).slice(0, -2), { headers: ['Content-Length: 40000'] }),
      );
      const timer = setInterval(() => asking.socket.writable && asking.send('x'), 50);
      t.after(() => clearInterval(timer));
      assertError(await answerTo(asking, 8_000), 408, 'upload_too_slow');
    });

    it('an upload above it may take its time', async (t) => {
      const { sending } = await gatewayFixture(t, { answers: completion, ...options });
      const body = Buffer.from(chatBody({ user: 'x'.repeat(10_000) }));
      const asking = sending(post('', { headers: [`Content-Length: ${body.length}`] }));
      for (let at = 0; at < body.length; at += 500) {
        asking.send(body.subarray(at, at + 500));
        await delay(100); // 5,000 bytes a second
      }
      assert.equal((await answerTo(asking)).status, 200);
    });

    it('0 never gives up', async (t) => {
      const { client } = await gatewayFixture(t, {
        answers: completion,
        ...options,
        settings: { minUploadRate: 0 },
      });
      const asking = client();
      const request = post();
      asking.send(request.subarray(0, -10));
      await delay(2_200); // four times the grace, and two looks at the rate
      asking.send(request.subarray(-10));
      assert.equal((await answerTo(asking)).status, 200);
    });
  });

  describe('time-outs towards the remote', { concurrency: true }, () => {
    it('a remote that is reached in time may answer after the connect time-out', async (t) => {
      const { upstream, ask } = await gatewayFixture(t, { settings: { connectTimeout: 500 } });
      upstream.on(async (scripted) => {
        const body = await scripted.body();
        await delay(900); // more than the connect time-out
        await scripted.write(completion(body));
      });
      assert.equal((await ask(post())).status, 200);
    });

    it('a remote that stops reading the upload is 504 after the first-byte time-out', async (t) => {
      const { upstream, ask } = await gatewayFixture(t, {
        settings: { firstByteTimeout: 500, maxBodyBytes: 40_000_000 },
      });
      upstream.on((scripted) => scripted.pause());
      assertError(await ask(post(chatBody({ user: 'x'.repeat(20_000_000) }))), 504, 'first_byte_timeout');
    });

    it('a remote that reads the upload slowly has its time', async (t) => {
      const { upstream, ask } = await gatewayFixture(t, {
        settings: { firstByteTimeout: 700, maxBodyBytes: 40_000_000 },
      });
      upstream.on(async (scripted) => {
        const body = scripted.body();
        for (let read = false; !read; ) {
          scripted.pause();
          await delay(200);
          scripted.resume();
          read = await Promise.race([body.then(() => true), delay(10, false)]);
        }
        await scripted.write(completion(await body));
      });
      const begun = performance.now();
      assert.equal((await ask(post(chatBody({ user: 'x'.repeat(20_000_000) })))).status, 200);
      assert.ok(performance.now() - begun > 900, 'too fast to show anything');
    });

    for (const stream of [true, false]) {
      it(`a silence in ${stream ? 'a stream' : 'a whole answer'} ends it after the idle time-out`, async (t) => {
        const { upstream, ask } = await gatewayFixture(t, { settings: { streamIdleTimeout: 300 } });
        upstream.on(async (scripted) => {
          const sealed = sealedAnswers(await scripted.body());
          const head = stream ? STREAM_HEAD : 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n';
          await scripted.write(head + chunked(stream ? sealed.chunk('hel') : '{"id": '));
        });
        const answer = await ask(post(chatBody({ stream })));
        assert.equal(answer.status, stream ? 200 : 504);
        assert.match(answer.body, /"code":"stream_idle_timeout"/);
        assert.equal(answer.complete, !stream);
      });
    }

    it('an upload that outlives its epoch is sealed for the next one', async (t) => {
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
