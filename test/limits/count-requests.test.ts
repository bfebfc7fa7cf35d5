/** The counts of clients at their edges, by clocks that the test turns. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import type { Limits } from '../../lib/access/clients-file.ts';
import { PrivatemodeError } from '../../lib/errors.ts';
import { createRequestCounts } from '../../lib/limits/count-requests.ts';
import type { ClientCounts } from '../../lib/limits/counts-file.ts';
import type { Permit } from '../../lib/limits/limits.ts';
import { clientOf } from '../support/doors/clients.ts';

const NOON = Date.UTC(2026, 10, 22, 12);

function scene({ at = NOON, before }: { at?: number; before?: readonly ClientCounts[] } = {}) {
  let wall = at;
  let elapsed = 5_000_000.25;
  let changes = 0;
  let stored = (_now: number): readonly ClientCounts[] => [];
  const counts = createRequestCounts({
    clock: { now: () => wall, monotonic: () => elapsed },
    before,
    changed(counts) {
      changes += 1;
      stored = counts;
    },
  });
  const admit = (limits: Partial<Limits>, name = 'ann'): Permit =>
    counts.admit(clientOf({ name, limits })) as Permit;
  return {
    /** What a restart now would find. */
    stored: () => stored(wall),
    changes: () => changes,
    admit,
    /** Admitted and over, or the code and the seconds of the refusal. */
    ask(limits: Partial<Limits>, { tokens = 0, name = 'ann' } = {}): string {
      try {
        admit(limits, name).release(tokens);
        return 'admitted';
      } catch (thrown) {
        assert.ok(thrown instanceof PrivatemodeError, `${thrown}`);
        return `${thrown.code} ${thrown.retryAfter}`;
      }
    },
    pass(ms: number): void {
      wall += ms;
      elapsed += ms;
    },
    /** Somebody sets the wall clock. */
    set(ms: number): void {
      wall += ms;
    },
  };
}

describe('the limit requestsPerMinute', () => {
  it('admits its number of requests within any 60 s, and one more exactly 60 s after the first', () => {
    const { ask, pass } = scene();
    const limits = { requestsPerMinute: 3 };
    assert.equal(ask(limits), 'admitted');
    pass(20_000);
    assert.deepEqual([ask(limits), ask(limits)], ['admitted', 'admitted']);
    assert.equal(ask(limits), 'requests_per_minute_reached 40');
    pass(39_500);
    assert.equal(ask(limits), 'requests_per_minute_reached 1');
    pass(499);
    assert.equal(ask(limits), 'requests_per_minute_reached 1');
    pass(1);
    assert.equal(ask(limits), 'admitted');
    assert.equal(ask(limits), 'requests_per_minute_reached 20');
  });

  it('can be changed at any time; Retry-After is then the time until the new value allows a request', () => {
    const { ask, pass } = scene();
    for (let i = 0; i < 4; i++) {
      assert.equal(ask({ requestsPerMinute: 4 }), 'admitted');
      pass(10_000);
    }
    assert.equal(ask({ requestsPerMinute: 2 }), 'requests_per_minute_reached 40');
    assert.equal(ask({ requestsPerMinute: 5 }), 'admitted');
    assert.equal(ask({ requestsPerMinute: 5 }), 'requests_per_minute_reached 20');
  });

  it('still counts 60 s if the wall clock is set back or forward', () => {
    for (const jump of [-86_400_000, -1, 3_600_000]) {
      const { ask, pass, set } = scene();
      ask({ requestsPerMinute: 1 });
      set(jump);
      assert.equal(ask({ requestsPerMinute: 1 }), 'requests_per_minute_reached 60');
      pass(60_000);
      assert.equal(ask({ requestsPerMinute: 1 }), 'admitted');
    }
  });

  it('admits a request exactly if fewer than its number were admitted in the last 60 s, whatever was refused', () => {
    const step = fc.record({ ms: fc.integer({ min: 0, max: 30_000 }), asks: fc.integer({ min: 0, max: 5 }) });
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 6 }), fc.array(step, { maxLength: 40 }), (limit, steps) => {
        const { ask, pass } = scene();
        const admitted: number[] = [];
        let now = 0;
        for (const { ms, asks } of steps) {
          now += ms;
          pass(ms);
          for (let i = 0; i < asks; i++) {
            const room = admitted.filter((at) => at > now - 60_000).length < limit;
            const answer = ask({ requestsPerMinute: limit });
            assert.equal(answer === 'admitted', room);
            if (room) admitted.push(now);
          }
        }
      }),
      { seed: 20261122, numRuns: 300 },
    );
  });
});

describe('the limit tokensPerDay', () => {
  const limits = { tokensPerDay: 100 };

  it('admits a request while fewer tokens are counted, even if that request then exceeds the limit', () => {
    const { ask } = scene();
    assert.equal(ask(limits, { tokens: 99 }), 'admitted');
    assert.equal(ask(limits, { tokens: 500 }), 'admitted');
    assert.equal(ask(limits), 'tokens_per_day_reached 43200');
  });

  it('counts from zero at midnight UTC, to the millisecond', () => {
    const { ask, pass } = scene();
    ask(limits, { tokens: 100 });
    pass(12 * 3_600_000 - 1);
    assert.equal(ask(limits), 'tokens_per_day_reached 1');
    pass(1);
    assert.equal(ask(limits, { tokens: 100 }), 'admitted');
    assert.equal(ask(limits), 'tokens_per_day_reached 86400');
  });

  it('counts the tokens of a request for the day on which it ends', () => {
    const { ask, admit, pass } = scene();
    const running = admit(limits);
    pass(12 * 3_600_000);
    running.release(100);
    assert.equal(ask(limits), 'tokens_per_day_reached 86400');
  });

  it('refuses until the end of the earlier day, and no longer, if the clock is set back by a day', () => {
    const { ask, pass, set } = scene();
    ask(limits, { tokens: 100 });
    set(-86_400_000);
    assert.equal(ask(limits), 'tokens_per_day_reached 43200');
    pass(12 * 3_600_000);
    assert.equal(ask(limits), 'admitted');
  });

  it('does not count a number of tokens that is negative or NaN', () => {
    const { ask, changes } = scene();
    ask(limits, { tokens: 99 });
    for (const tokens of [-1_000, Number.NaN, 0]) ask(limits, { tokens });
    assert.equal(changes(), 1, 'nothing else is to be stored');
    ask(limits, { tokens: 1 });
    assert.equal(ask(limits), 'tokens_per_day_reached 43200');
  });
});

describe('the limit maxConcurrent', () => {
  it('admits its number of requests at the same time, and the next when one of them is over', () => {
    const { ask, admit } = scene();
    const limits = { maxConcurrent: 2 };
    const permits = [admit(limits), admit(limits)];
    assert.equal(ask(limits), 'max_concurrent_reached 1');
    permits[0]?.release(0);
    assert.equal(ask(limits), 'admitted');
    permits.push(admit(limits));
    assert.equal(ask(limits), 'max_concurrent_reached 1');
  });
});

it('limits that are set later count what was used before', () => {
  const { ask, admit } = scene();
  admit({}).release(100);
  admit({});
  assert.equal(ask({ tokensPerDay: 100 }), 'tokens_per_day_reached 43200');
  assert.equal(ask({ maxConcurrent: 1 }), 'max_concurrent_reached 1');
});

it('a refusal by several limits names that which lasts longest: tokens, then requests, then concurrency', () => {
  const { ask, admit } = scene();
  const all = { requestsPerMinute: 1, tokensPerDay: 10, maxConcurrent: 1 };
  const first = admit({ requestsPerMinute: 10 });
  assert.equal(ask({ ...all, requestsPerMinute: 2 }), 'max_concurrent_reached 1');
  assert.equal(ask(all), 'requests_per_minute_reached 60');
  first.release(10);
  assert.equal(ask(all), 'tokens_per_day_reached 43200');
});

describe('the counts of limits in memory', () => {
  const limits = { requestsPerMinute: 2, tokensPerDay: 100 };

  it('are given with the requests of the last minute and the tokens of today, and hold after a restart', () => {
    const old = scene();
    old.ask(limits, { tokens: 60 });
    old.pass(30_000);
    old.ask(limits, { tokens: 39 });
    assert.equal(old.changes(), 4);
    old.pass(10_000);
    const before = old.stored();
    assert.deepEqual(before, [{ name: 'ann', tokens: 99, admissions: [NOON, NOON + 30_000] }]);
    const { ask, pass } = scene({ at: NOON + 40_000, before });
    assert.equal(ask(limits), 'requests_per_minute_reached 20');
    pass(19_999);
    assert.equal(ask(limits), 'requests_per_minute_reached 1');
    pass(1);
    assert.equal(ask(limits, { tokens: 1 }), 'admitted');
    assert.equal(ask(limits), 'tokens_per_day_reached 43140');
  });

  it('take times that lie ahead for now', () => {
    const before = [{ name: 'ann', tokens: 100, admissions: [NOON + 50_000, NOON + 59_000] }];
    const { ask, pass } = scene({ before });
    assert.equal(ask({ requestsPerMinute: 2 }), 'requests_per_minute_reached 60');
    assert.equal(ask(limits), 'tokens_per_day_reached 43200');
    pass(60_000);
    assert.equal(ask({ requestsPerMinute: 2 }), 'admitted');
  });

  it('keep only the last minute of a client, and nothing of idle clients', () => {
    const { ask, admit, pass, stored } = scene();
    ask({ requestsPerMinute: 5 }, { name: 'gone' });
    const running = admit({}, 'running');
    ask({}, { name: 'with-tokens', tokens: 1 });
    for (let i = 0; i < 1_000; i++) {
      pass(600);
      ask({ requestsPerMinute: 100 });
    }
    const names = (): string[] => stored().map(({ name }) => name);
    assert.deepEqual(names(), ['running', 'with-tokens', 'ann']);
    assert.equal(stored()[2]?.admissions.length, 100);
    running.release(0);
    pass(86_400_000);
    ask({}, { name: 'bob', tokens: 1 });
    assert.deepEqual(names(), ['bob']);
  });
});
