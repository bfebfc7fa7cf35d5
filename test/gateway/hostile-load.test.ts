/** Many clients that take their time, on purpose: each holds its own connection, and nothing else. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { answerTo, chatBody, gatewayFixture, post } from '../support/doors/gateway-fixture.ts';
import type { RawClient } from '../support/doors/raw-client.ts';
import { eventually } from '../support/processes/eventually.ts';
import {
  chatStream,
  chunked,
  DONE,
  LAST_CHUNK,
  STREAM_HEAD,
  sealedAnswers,
} from '../support/remote/sealed-answers.ts';

setFlagsFromString('--expose-gc');
const collect = runInNewContext('gc') as () => void;

/** Everything that is held after a collection. */
const memory = (): number => {
  collect();
  const { heapUsed, arrayBuffers } = process.memoryUsage();
  return heapUsed + arrayBuffers;
};

describe('slow readers', { timeout: 600_000 }, () => {
  it('do not delay another client if 100 of them never read, and leave no exchange behind', async (t) => {
    const { upstream, gateway, ask, client } = await gatewayFixture(t);
    upstream.on(async (scripted) => {
      const body = await scripted.body();
      if (scripted.request.headers['privatemode-target-model'] === 'quick') {
        await scripted.write(chatStream(body));
        return;
      }
      const sealed = sealedAnswers(body);
      scripted.write(STREAM_HEAD);
      for (let open = true; open; ) {
        scripted.write(chunked(sealed.chunk('x'.repeat(1_000))));
        open = await Promise.race([scripted.closed.then(() => false), delay(1_000, true)]);
      }
    });
    const readers = Array.from({ length: 100 }, () => client());
    for (const { socket, send } of readers) {
      socket.pause();
      send(post(chatBody({ stream: true })));
    }
    await eventually('all to be served', () => upstream.requests.length === 100, 120_000);
    const begun = performance.now();
    const answer = await ask(post(chatBody({ stream: true, model: 'quick' })));
    assert.ok(answer.complete);
    assert.ok(performance.now() - begun < 10_000, 'others were held up');
    assert.equal(gateway.active(), 100);
    for (const { socket } of readers) socket.destroy();
    await eventually('the end of all exchanges', () => gateway.active() === 0);
    await eventually('the end of the connections to the remote', () => upstream.connections.open <= 1);
  });

  it('cost less than 3 MiB each if they stop in the middle of a large response', async (t) => {
    const { upstream, gateway, client } = await gatewayFixture(t);
    const block = 'x'.repeat(64 * 1024);
    upstream.on(async (scripted) => {
      const sealed = sealedAnswers(await scripted.body());
      scripted.write(STREAM_HEAD);
      for (let i = 0; i < 60; i++) await scripted.write(chunked(sealed.chunk(block)));
      await scripted.write(chunked(sealed.chunk('', 'stop')) + chunked(DONE) + LAST_CHUNK);
    });
    const readers = Array.from({ length: 20 }, () => client());
    const before = memory();
    for (const reader of readers) {
      reader.socket.pause();
      reader.send(post(chatBody({ stream: true })));
    }
    await eventually('all to be served', () => gateway.active() === readers.length);
    await delay(1_500); // all 8 MiB of each could come in this time
    const perReader = (memory() - before) / readers.length / 2 ** 20;
    assert.ok(perReader < 3, `${perReader.toFixed(1)} MiB for each reader`);
    const [patient, ...others] = readers as [RawClient, ...RawClient[]];
    for (const { socket } of others) socket.destroy();
    patient.socket.resume();
    const answer = await answerTo(patient);
    assert.ok(answer.complete && answer.body.length > 60 * block.length);
  });
});
