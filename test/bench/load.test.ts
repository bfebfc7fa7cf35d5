import assert from 'node:assert/strict';
import { type AddressInfo, createServer } from 'node:net';
import { after, before, describe, it } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { createEventCounter } from '../../bench/event-counter.ts';
import { openStream } from '../../bench/load.ts';

const HEAD = 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n';
/** Two events in one chunk, cut where the network might: within the mark of the second. */
const ANSWER = [`${HEAD}17\r\ndata: {}\n\nda`, 'ta: [DONE]\n\n\r\n0\r\n\r\n'] as const;

describe('the event counter of the benchmark', () => {
  const answer = Buffer.from(
    `${HEAD}13\r\ndata: {"a":1}\n\ndata\r\n3\r\n: x\r\n9\r\n\n\ndata: y\r\n0\r\n\r\n`,
  );

  it('finds every event, whatever the size of the pieces', () => {
    for (let size = 1; size <= answer.length; size++) {
      const counter = createEventCounter();
      let found = 0;
      for (let at = 0; at < answer.length; at += size) found += counter.feed(answer.subarray(at, at + size));
      assert.deepEqual([found, counter.ended], [3, true], `pieces of ${size}`);
    }
  });

  it('has not ended before the last chunk, and throws at the status 503', () => {
    const counter = createEventCounter();
    counter.feed(answer.subarray(0, -7));
    assert.equal(counter.ended, false);
    const refusal = Buffer.from('HTTP/1.1 503 Service Unavailable\r\nContent-Length: 4\r\n\r\nlate');
    assert.throws(() => createEventCounter().feed(refusal), /503 Service Unavailable[\s\S]*late/);
  });
});

describe('the load generator of the benchmark', () => {
  let request = Buffer.alloc(0);
  let pieces = 0;
  /** The second part of an answer comes after this. */
  let between: Promise<unknown> = Promise.resolve();
  const server = createServer((socket) => {
    request = Buffer.alloc(0);
    pieces = 0;
    socket.setNoDelay(true);
    socket.on('error', () => {});
    socket.on('data', (chunk: Buffer) => {
      request = Buffer.concat([request, chunk]);
      pieces += 1;
      const length = Number(/Content-Length: (\d+)/.exec(request.toString('latin1'))?.[1]);
      if (request.length < request.indexOf('\r\n\r\n') + 4 + length) return;
      socket.write(ANSWER[0]);
      between.then(() => socket.end(ANSWER[1]));
    });
  });
  before(() => new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve)));
  after(() => server.close());
  const target = () => ({ port: (server.address() as AddressInfo).port, host: '127.0.0.1', sealed: false });

  it('sends a body whole, and no faster than the rate that it was given', async () => {
    const body = Buffer.from(Array.from({ length: 100_000 }, (_, i) => i & 0xff));
    const stream = await openStream(target(), {}, body, 1_000_000);
    const took = (await stream.sentAt) - stream.askedAt;
    await stream.finished;
    assert.deepEqual(request.subarray(-body.length), body);
    assert.ok(pieces > 1, `${pieces} pieces`);
    assert.ok(took > 90, `${took} ms`);
  });

  it('records when each event arrived, however the network splits the stream', async () => {
    const { promise, resolve } = Promise.withResolvers<void>();
    between = promise;
    const stream = await openStream(target(), {}, Buffer.from('{}'));
    await stream.reached(1);
    await delay(20);
    resolve();
    await stream.finished;
    assert.equal(stream.arrivals.length, 2);
    assert.ok(stream.arrivals[1]! - stream.arrivals[0]! > 10);
  });

  it('rejects a stream that ends too early', async () => {
    const stream = await openStream(target(), { events: 5 }, Buffer.from('{}'));
    await assert.rejects(stream.finished, /broke after 2 events/);
  });
});
