import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { createTrafficLog } from '../../lib/observe/recent-traffic.ts';
import { finished as request } from '../support/doors/observed.ts';
import { createFakeClock } from '../support/remote/fake-clock.ts';

const finished = (id: string, gapMs: number | null = null, firstTokenMs: number | null = 7) =>
  request({ id, gapMs, firstTokenMs });

const UNKNOWN = { method: 'POST', path: '/openai/*', code: 'unknown_path' };

function scene(running = 3) {
  const clock = createFakeClock(1_000_000);
  let sent = 0;
  const traffic = createTrafficLog({ inFlight: () => running, events: () => sent }, clock);
  return {
    traffic,
    pass: clock.jump,
    send(count: number): void {
      sent += count;
    },
  };
}

describe('the traffic log', () => {
  it('counts requests and stream events for each second', () => {
    const { traffic, pass, send } = scene();
    traffic.observe(finished('a', 12));
    traffic.observe(finished('b', null, null));
    send(5);
    const first = traffic.snapshot();
    assert.deepEqual(first.seconds, [
      { at: 1_000_000, requests: 2, inFlight: 3, chunks: 5, firstTokenMs: [7], gapMs: [12] },
    ]);
    assert.equal(first.inFlight, 3);
    pass(2_500);
    send(4);
    assert.deepEqual(traffic.snapshot().seconds, [
      ...first.seconds,
      { at: 1_002_000, requests: 0, inFlight: 3, chunks: 4, firstTokenMs: [], gapMs: [] },
    ]);
    traffic.close();
  });

  it('forgets a second after two minutes, even without new traffic', () => {
    const { traffic, pass } = scene(0);
    traffic.observe(finished('a'));
    pass(119_999);
    assert.equal(traffic.snapshot().seconds.length, 1);
    pass(1);
    assert.equal(traffic.snapshot().seconds.length, 0);
    traffic.close();
  });

  it('keeps the last 50 requests, newest first, and 20 samples a second', () => {
    const { traffic } = scene();
    for (let i = 0; i < 60; i++) traffic.observe(finished(`r${i}`, i));
    const { finished: kept, seconds } = traffic.snapshot();
    assert.deepEqual(
      kept.map(({ id }) => id),
      Array.from({ length: 50 }, (_, i) => `r${59 - i}`),
    );
    assert.deepEqual([seconds[0]?.firstTokenMs.length, seconds[0]?.gapMs.length], [20, 20]);
    traffic.close();
  });

  it('counts refused requests by method, path and code, the last 20 such kinds alone and all others together', () => {
    const { traffic, pass } = scene();
    for (let i = 0; i < 3; i++) traffic.refuse(UNKNOWN);
    pass(1_000);
    traffic.refuse({ ...UNKNOWN, method: 'GET' });
    assert.deepEqual(traffic.snapshot().refused, [
      { ...UNKNOWN, method: 'GET', count: 1, at: 1_001_000 },
      { ...UNKNOWN, count: 3, at: 1_000_000 },
    ]);
    pass(1_000);
    for (let i = 0; i < 19; i++) traffic.refuse({ ...UNKNOWN, path: `/${i}` });
    const { refused } = traffic.snapshot();
    const others = { method: '*', path: '/*', code: 'others' };
    assert.deepEqual(refused.slice(19), [
      { ...UNKNOWN, method: 'GET', count: 1, at: 1_001_000 },
      { ...others, count: 3, at: 1_000_000 },
    ]);
    pass(1_000);
    for (let i = 0; i < 100; i++) traffic.refuse({ ...UNKNOWN, path: `/scan/${i}` });
    const scanned = traffic.snapshot().refused;
    assert.deepEqual([scanned.length, scanned.at(-1)], [21, { ...others, count: 103, at: 1_003_000 }]);
    traffic.close();
  });

  it('keeps the seconds in order when the clock is set back', () => {
    const { traffic, pass } = scene();
    traffic.observe(finished('a'));
    pass(-60_000);
    traffic.observe(finished('b'));
    const times = traffic.snapshot().seconds.map(({ at }) => at);
    assert.deepEqual(
      times,
      times.toSorted((a, b) => a - b),
    );
    traffic.close();
  });
});
