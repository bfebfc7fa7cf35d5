import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { createTrafficLog } from '../../lib/observe/recent-traffic.ts';
import { finished as request } from '../support/doors/observed.ts';
import { createFakeClock } from '../support/remote/fake-clock.ts';

const finished = (id: string, gapMs: number | null = null, firstTokenMs: number | null = 7) =>
  request({ id, gapMs, firstTokenMs });

function scene(running = 3) {
  const clock = createFakeClock(1_000_000);
  const sent = { events: 0 };
  const traffic = createTrafficLog({ inFlight: () => running, events: () => sent.events }, clock);
  return { traffic, pass: clock.jump, sent };
}

describe('the traffic log', () => {
  it('has for each second the events of streams, and the times of the last stream that ended in it', () => {
    const { traffic, pass, sent } = scene();
    traffic.observe(finished('a', 12));
    traffic.observe(finished('b', null, 9));
    traffic.observe(finished('c', null, null));
    sent.events += 5;
    const first = traffic.snapshot();
    const events = 3 * finished('a').events;
    assert.deepEqual(first.seconds, [
      { at: 1_000_000, inFlight: 3, chunks: events + 5, firstTokenMs: 9, gapMs: 12 },
    ]);
    assert.equal(first.inFlight, 3);
    pass(2_500);
    sent.events += 4;
    assert.deepEqual(traffic.snapshot().seconds, [
      ...first.seconds,
      { at: 1_002_000, inFlight: 3, chunks: 4, firstTokenMs: null, gapMs: null },
    ]);
    traffic.close();
  });

  it('forgets a second after two minutes, even without new traffic', () => {
    const { traffic, pass } = scene(0);
    traffic.observe({ ...finished('a'), events: 0 });
    pass(119_999);
    assert.equal(traffic.snapshot().seconds.length, 1);
    pass(1);
    assert.equal(traffic.snapshot().seconds.length, 0);
    traffic.close();
  });

  it('keeps the last 50 requests, newest first', () => {
    const { traffic } = scene();
    for (let i = 0; i < 60; i++) traffic.observe(finished(`r${i}`, i));
    const { finished: kept } = traffic.snapshot();
    assert.deepEqual(
      kept.map(({ id }) => id),
      Array.from({ length: 50 }, (_, i) => `r${59 - i}`),
    );
    traffic.close();
  });
});
