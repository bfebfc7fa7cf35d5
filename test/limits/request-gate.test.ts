/**
 * The limits of a client and the queue together: what a request gets, and what is given back whatever becomes
 * of it.
 */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { systemClock } from '../../lib/clock.ts';
import { createRequestCounts } from '../../lib/limits/count-requests.ts';
import { createFairQueue } from '../../lib/limits/fair-queue.ts';
import type { LimitedClient, Permit, RequestCounts } from '../../lib/limits/limits.ts';
import { createRequestGate } from '../../lib/limits/request-gate.ts';
import { type ClientMembers, clientOf } from '../support/doors/clients.ts';
import { clockOf } from '../support/remote/fake-clock.ts';

const never = new AbortController().signal;
const client = (limits: ClientMembers['limits'] = {}): LimitedClient => clientOf({ limits });

/** Counts that are asked over a network. `log` has what became of each permit. */
function slowCounts() {
  const log: string[] = [];
  let answer = (): void => {};
  const counts: RequestCounts = {
    async admit({ name }) {
      await new Promise<void>((resolve) => {
        answer = resolve;
      });
      log.push(`admitted ${name}`);
      return { release: (tokens) => void log.push(`released ${tokens}`) };
    },
    async close() {},
  };
  return { counts, log, answer: () => answer() };
}

describe('the gate of requests', { timeout: 600_000 }, () => {
  it('gives a permit synchronously if nothing has to be awaited', () => {
    const gates = [
      createRequestGate({ counts: undefined, queue: createFairQueue(1, systemClock) }),
      createRequestGate({ counts: createRequestCounts({ clock: systemClock }), queue: undefined }),
      createRequestGate({
        counts: createRequestCounts({ clock: systemClock }),
        queue: createFairQueue(1, systemClock),
      }),
    ];
    for (const gate of gates)
      assert.ok(!(gate.enter({ client: client(), signal: never }) instanceof Promise));
  });

  it('frees the places of maxConcurrent and --max-in-flight once, and counts the tokens once', async () => {
    const [counts, queue] = [createRequestCounts({ clock: systemClock }), createFairQueue(1, systemClock)];
    const gate = createRequestGate({ counts, queue });
    const limited = client({ maxConcurrent: 1, tokensPerDay: 8 });
    const permit = gate.enter({ client: limited, signal: never }) as Permit;
    assert.throws(() => gate.enter({ client: limited, signal: never }), { code: 'max_concurrent_reached' });
    assert.deepEqual(queue.size(), { running: 1, waiting: 0, clients: 1 });
    permit.release(7);
    permit.release(7);
    assert.deepEqual(queue.size(), { running: 0, waiting: 0, clients: 0 });
    (gate.enter({ client: limited, signal: never }) as Permit).release(1);
    assert.throws(() => gate.enter({ client: limited, signal: never }), { code: 'tokens_per_day_reached' });
  });

  it('takes no place in the queue for a request that exceeds a limit', () => {
    const queue = createFairQueue(1, systemClock);
    const gate = createRequestGate({ counts: createRequestCounts({ clock: systemClock }), queue });
    gate.enter({ client: client({ requestsPerMinute: 1 }), signal: never });
    assert.throws(() => gate.enter({ client: client({ requestsPerMinute: 1 }), signal: never }), {
      code: 'requests_per_minute_reached',
    });
    assert.deepEqual(queue.size(), { running: 1, waiting: 0, clients: 1 });
  });

  it('counts a request for requestsPerMinute and frees its place of maxConcurrent if the queue refuses it', async () => {
    const queue = createFairQueue(1, clockOf({ placeWait: 1 }));
    const gate = createRequestGate({ counts: createRequestCounts({ clock: systemClock }), queue });
    const limited = client({ requestsPerMinute: 3, maxConcurrent: 2 });
    const permit = gate.enter({ client: limited, signal: never }) as Permit;
    await assert.rejects(async () => gate.enter({ client: limited, signal: never }), {
      code: 'max_in_flight_reached',
    });
    permit.release(0);
    gate.enter({ client: limited, signal: never });
    assert.throws(() => gate.enter({ client: limited, signal: never }), {
      code: 'requests_per_minute_reached',
    });
  });

  it('frees the place of maxConcurrent if the queue is full', () => {
    const queue = createFairQueue(1, systemClock);
    const gate = createRequestGate({ counts: createRequestCounts({ clock: systemClock }), queue });
    const control = new AbortController();
    for (let i = 0; i < 257; i++) {
      const entered = gate.enter({ client: client(), signal: control.signal });
      if (entered instanceof Promise) entered.catch(() => {});
    }
    const limited = client({ maxConcurrent: 258 });
    for (let i = 0; i < 3; i++) {
      assert.throws(() => gate.enter({ client: limited, signal: never }), { code: 'max_in_flight_reached' });
    }
    control.abort();
  });

  it('frees the place of maxConcurrent if the request is aborted while it waits', async () => {
    const gate = createRequestGate({
      counts: createRequestCounts({ clock: systemClock }),
      queue: createFairQueue(1, systemClock),
    });
    const control = new AbortController();
    const limited = client({ maxConcurrent: 2 });
    gate.enter({ client: limited, signal: never });
    const waiting = gate.enter({ client: limited, signal: control.signal });
    control.abort(new Error('left'));
    await assert.rejects(async () => waiting, /left/);
    const later = new AbortController();
    const again = gate.enter({ client: limited, signal: later.signal });
    assert.ok(again instanceof Promise, 'it waits, and is not refused');
    later.abort(new Error('left'));
    await assert.rejects(again, /left/);
  });

  it('counts nothing of a request that is already aborted', () => {
    const counts = createRequestCounts({ clock: systemClock });
    const gate = createRequestGate({ counts, queue: undefined });
    assert.throws(
      () => gate.enter({ client: client(), signal: AbortSignal.abort(new Error('left')) }),
      /left/,
    );
    assert.deepEqual(counts.remembered().clients, []);
  });

  it('releases a permit that comes after the request was aborted', async () => {
    for (const queue of [undefined, createFairQueue(1, systemClock)]) {
      const { counts, log, answer } = slowCounts();
      const gate = createRequestGate({ counts, queue });
      const control = new AbortController();
      const entered = gate.enter({ client: client(), signal: control.signal });
      control.abort(new Error('left'));
      answer();
      await assert.rejects(async () => entered, /left/);
      assert.deepEqual(log, ['admitted ann', 'released 0']);
      assert.equal(queue?.size().running ?? 0, 0);
    }
  });

  it('lets requests without a client wait for a place', async () => {
    const gate = createRequestGate({ counts: undefined, queue: createFairQueue(1, systemClock) });
    const first = gate.enter({ client: undefined, signal: never }) as Permit;
    const second = gate.enter({ client: undefined, signal: never });
    assert.ok(second instanceof Promise);
    first.release(0);
    (await second).release(0);
  });
});
