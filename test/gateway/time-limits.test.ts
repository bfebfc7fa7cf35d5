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
import { completion, http, STREAM_HEAD } from '../support/remote/sealed-answers.ts';

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

  it('give 408 to a request head that trickles in, and do not apply to the body', async (t) => {
    const times = { headTimeout: 200, headLook: 50 };
    const { upstream, client } = await gatewayFixture(t, { answers: completion, times });
    const asking = client();
    const timer = setInterval(() => asking.socket.writable && asking.send('X: y\r\n'), 50);
    t.after(() => clearInterval(timer));
    asking.send('POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n');
    assert.equal((await answerTo(asking)).status, 408);
    assert.equal(upstream.connections.total, 0);
    const uploading = client();
    uploading.send(post().subarray(0, -10));
    await delay(300); // longer than the limit, with some looks of the listener
    uploading.send(post().subarray(-10));
    assert.equal((await answerTo(uploading)).status, 200);
  });
});

describe('time-outs towards the remote', () => {
  it('informational responses do not postpone the time-out of the first byte', async (t) => {
    const { upstream, ask } = await gatewayFixture(t, { settings: { firstByteTimeout: 300 } });
    upstream.on(async (scripted) => {
      await scripted.body();
      const timer = setInterval(
        () => scripted.write('HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n'),
        20,
      );
      await scripted.closed.finally(() => clearInterval(timer));
    });
    assertError(await ask(post()), 504, 'first_byte_timeout');
  });

  it('a remote that has begun its response and still reads the upload is cut after --stream-idle-timeout', async (t) => {
    const settings = { maxBodyBytes: 64 * 1024 * 1024, streamIdleTimeout: 300 };
    const { upstream, gateway, sending } = await gatewayFixture(t, { settings });
    upstream.on(async (scripted) => {
      scripted.pause();
      await scripted.write(STREAM_HEAD);
      const timer = setInterval(() => {
        scripted.resume();
        setImmediate(() => scripted.pause());
      }, 50);
      await scripted.closed.finally(() => clearInterval(timer));
    });
    const answer = await answerTo(sending(post(chatBody({ stream: true, user: 'x'.repeat(40_000_000) }))));
    assert.match(answer.body, /stream_idle_timeout/);
    assert.equal(upstream.requests[0]?.complete, false, 'it read too fast to show anything');
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

  it('a remote that reads the upload slowly does not exceed the first-byte time-out; one that stops reading does', async (t) => {
    const clock = createFakeClock();
    const settings = { firstByteTimeout: 5_000, maxBodyBytes: 40_000_000 };
    const { upstream, ask } = await gatewayFixture(t, { clock, settings });
    let isSlow = true;
    upstream.on(async (scripted) => {
      for (let paused = 0; paused < 3; paused++) {
        scripted.pause();
        await clock.advance(4_000);
        assert.equal(scripted.request.complete, false, 'the upload was over too early to show anything');
        const before = upstream.received().length;
        scripted.resume();
        await eventually('more of the upload', () => upstream.received().length > before + 2_000_000);
      }
      if (isSlow) return scripted.write(completion(await scripted.body()));
      scripted.pause();
      for (let open = true; open; ) {
        await clock.advance(5_000);
        open = await Promise.race([scripted.closed.then(() => false), delay(50, true)]);
      }
    });
    const upload = post(chatBody({ user: 'x'.repeat(20_000_000) }));
    assert.equal((await ask(upload)).status, 200);
    isSlow = false;
    assertError(await ask(upload), 504, 'first_byte_timeout');
  });

  it('an upload that takes longer than its epoch is sealed for the next epoch', async (t) => {
    let now = EPOCH;
    let asked = 0;
    const acquire = async () => {
      asked += 1;
      return now;
    };
    const { upstream, client } = await gatewayFixture(t, {
      session: fakeSession({ acquire }),
      answers: http(503, ''),
    });
    const asking = client();
    asking.send(post().subarray(0, -10));
    await eventually('the wish for an epoch, before the body has come', () => asked === 1);
    now = NEXT_EPOCH;
    asking.send(post().subarray(-10));
    await answerTo(asking);
    assert.equal(upstream.requests[0]?.headers['privatemode-secret-id'], NEXT_EPOCH.secretId);
  });
});
