/** Receiving a body, by itself: its rate, who ends it, and what is left of it. */
import assert from 'node:assert/strict';
import { EventEmitter, once } from 'node:events';
import { Readable } from 'node:stream';
import { describe, it } from 'node:test';
import { type Clock, Deadline } from '../../lib/clock.ts';
import { PrivatemodeError } from '../../lib/errors.ts';
import { ClientGone, type Exchange } from '../../lib/gateway/exchange.ts';
import { Room } from '../../lib/gateway/memory.ts';
import { receive as receiveBody } from '../../lib/gateway/receive.ts';
import { RequestStats } from '../../lib/observe/counters.ts';
import type { BodyReader } from '../../lib/pipeline/request-body.ts';
import { createFakeClock } from '../support/remote/fake-clock.ts';

const asText: BodyReader<{ text: string }> = (bytes) => ({ text: bytes.toString() });

function receive(
  req: Readable,
  options: { read?: BodyReader<{ text: string }>; endedBy?: Error; clock?: Clock } = {},
) {
  const { read = asText, endedBy, clock = createFakeClock() } = options;
  const used = { bufferedBytes: 0 };
  const stats = new RequestStats();
  let stopNow: ((reason: Error) => void) | undefined;
  const exchange = {
    deps: { clock, settings: { maxBodyBytes: 1_000_000 } },
    req: Object.assign(req, { headers: {} }),
    res: new EventEmitter(),
    requestRoom: new Room({ of: 'uploads', limit: 1_000_000, used }),
    deadline: new Deadline(clock),
    stats,
    interruptBy(stop: typeof stopNow) {
      stopNow = stop;
      if (endedBy !== undefined) stop?.(endedBy);
    },
    interrupt: (reason: Error) => stopNow?.(reason),
  };
  return { body: receiveBody(exchange as unknown as Exchange, read), used, stop: () => stopNow };
}

/** The code of its refusal, if it is refused. */
const outcomeOf = (body: Promise<unknown>): Promise<string> =>
  body.then(
    () => 'received',
    (thrown: PrivatemodeError) => thrown.code,
  );

/** Receives a body of which so many bytes come in each second; resolves with the code of its refusal. */
async function uploaded(bytesInEachSecond: readonly number[]): Promise<string> {
  const clock = createFakeClock();
  const req = new Readable({ read() {} });
  const outcome = outcomeOf(receive(req, { clock }).body);
  for (const bytes of bytesInEachSecond) {
    if (bytes > 0) req.push(Buffer.alloc(bytes));
    await clock.advance(1_000);
  }
  req.push(null);
  return outcome;
}

it('the minimum upload rate is measured over each ten seconds, and refuses what falls below it', async () => {
  for (const [outcome, bytesInEachSecond] of [
    ['upload_too_slow', Array<number>(11).fill(900)],
    ['upload_too_slow', [50_000, ...Array<number>(20).fill(20)]], // although its average suffices
    ['received', Array<number>(60).fill(1_100)],
    ['received', Array<number>(9).fill(0)], // is not judged yet
  ] as const)
    assert.equal(await uploaded(bytesInEachSecond), outcome);
});

describe('a body that is received', () => {
  it('leaves no listeners on the request, and its memory is given back when it is released', async () => {
    const req = Readable.from([Buffer.from('a pro'), Buffer.from('mpt')], { objectMode: false });
    const { body, used } = receive(req);
    const { text, release } = await body;
    assert.deepEqual([text, used.bufferedBytes > 0], ['a prompt', true]);
    for (const event of ['data', 'end', 'close']) assert.equal(req.listenerCount(event), 0, event);
    release();
    assert.equal(used.bufferedBytes, 0);
  });

  it('is refused if it comes in crumbs, which hold up everybody', async () => {
    for (const [size, outcome] of [
      [63, 'upload_too_slow'],
      [64, 'received'],
    ] as const) {
      const req = new Readable({ read() {} });
      const received = outcomeOf(receive(req).body);
      for (let i = 0; i <= 10_000; i++) req.push(Buffer.alloc(size));
      req.push(null);
      assert.equal(await received, outcome);
    }
  });

  it('gives its memory back when it is refused', async () => {
    const refusal = new PrivatemodeError('invalid_json', 'no');
    const { body, used } = receive(Readable.from([Buffer.alloc(9)]), { read: () => Promise.reject(refusal) });
    await assert.rejects(body, refusal);
    assert.equal(used.bufferedBytes, 0);
  });

  it('is given up if the exchange ends before or during its arrival, and is not called any more then', async () => {
    const reason = new Error('shut down');
    const { body: late } = receive(new Readable({ read() {} }), { endedBy: reason });
    await assert.rejects(late, reason);
    const req = new Readable({ read() {} });
    const { body, stop } = receive(req);
    req.push('half a pro');
    stop()?.(reason);
    await assert.rejects(body, reason);
    assert.equal(stop(), undefined);
  });

  it('is given up if the client leaves before its end, or has left before its reading begins', async () => {
    const leaving = new Readable({ read() {} });
    const { body } = receive(leaving);
    leaving.push('half a pro');
    leaving.destroy();
    await assert.rejects(body, ClientGone);
    const gone = new Readable({ read() {} });
    const closed = once(gone, 'close');
    gone.destroy();
    await closed;
    await assert.rejects(receive(gone).body, ClientGone);
  });
});
