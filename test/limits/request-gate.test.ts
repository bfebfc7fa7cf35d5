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
  };
  return { counts, log, answer: () => answer() };
}

/** A gate with one place; `enter` is its own. */
function scene(clock = systemClock) {
  const queue = createFairQueue(1, clock);
  const gate = createRequestGate({ counts: createRequestCounts({ clock: systemClock }), queue });
  return { queue, enter: (of: LimitedClient, signal = never) => gate.enter({ client: of, signal }) };
}

describe('the gate of requests', { timeout: 600_000 }, () => {
  it('gives a permit synchronously if nothing has to be awaited', () => {
    for (const counts of [undefined, createRequestCounts({ clock: systemClock })])
      for (const queue of [undefined, createFairQueue(1, systemClock)]) {
        const entered = createRequestGate({ counts, queue }).enter({ client: client(), signal: never });
        assert.ok(!(entered instanceof Promise));
      }
  });

  it('frees the places of maxConcurrent and --max-in-flight, and counts the tokens', () => {
    const { queue, enter } = scene();
    const limited = client({ maxConcurrent: 1, tokensPerDay: 8 });
    const permit = enter(limited) as Permit;
    assert.throws(() => enter(limited), { code: 'max_concurrent_reached' });
    assert.deepEqual(queue.size(), { running: 1, waiting: 0 });
    permit.release(7);
    assert.deepEqual(queue.size(), { running: 0, waiting: 0 });
    (enter(limited) as Permit).release(1);
    assert.throws(() => enter(limited), { code: 'tokens_per_day_reached' });
  });

  it('asks for a place in the name of the client, so that one who floods leaves some to others', async () => {
    const gate = createRequestGate({ queue: createFairQueue(8, systemClock) });
    const enter = (name: string) => gate.enter({ client: clientOf({ name }), signal: never }) as Permit;
    const permits = Array.from({ length: 7 }, () => enter('ann'));
    const waiting = gate.enter({ client: clientOf(), signal: never });
    assert.ok(waiting instanceof Promise);
    enter('bob').release(0);
    permits[0]?.release(0);
    await waiting;
  });

  it('counts a request for requestsPerMinute and frees its place of maxConcurrent if the queue refuses it', async () => {
    const { enter } = scene(clockOf({ placeWait: 1 }));
    const limited = client({ requestsPerMinute: 3, maxConcurrent: 2 });
    const permit = enter(limited) as Permit;
    await assert.rejects(async () => enter(limited), { code: 'max_in_flight_reached' });
    permit.release(0);
    enter(limited);
    assert.throws(() => enter(limited), { code: 'requests_per_minute_reached' });
  });

  it('frees the place of maxConcurrent if the request is aborted while it waits', async () => {
    const { enter } = scene();
    const limited = client({ maxConcurrent: 2 });
    enter(limited);
    for (let i = 0; i < 2; i++) {
      const control = new AbortController();
      const waiting = enter(limited, control.signal);
      assert.ok(waiting instanceof Promise, 'it waits, and is not refused');
      control.abort(new Error('left'));
      await assert.rejects(waiting, /left/);
    }
  });

  it('neither counts a request that is already aborted, nor lets it wait', () => {
    const { queue, enter } = scene();
    const aborted = AbortSignal.abort(new Error('left'));
    const limited = client({ requestsPerMinute: 1 });
    for (let i = 0; i < 2; i++) assert.throws(() => enter(limited, aborted), /left/);
    enter(limited);
    assert.throws(() => enter(client(), aborted), /left/);
    assert.deepEqual(queue.size(), { running: 1, waiting: 0 });
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
});
