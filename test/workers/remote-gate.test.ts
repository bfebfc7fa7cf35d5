/**
 * The gate of the primary as workers see it: both halves, joined by messages that survive a structured clone.
 */
import assert from 'node:assert/strict';
import { getEventListeners } from 'node:events';
import { describe, it } from 'node:test';
import { systemClock } from '../../lib/clock.ts';
import { createRequestCounts } from '../../lib/limits/count-requests.ts';
import { createFairQueue } from '../../lib/limits/fair-queue.ts';
import type { LimitedClient, Permit } from '../../lib/limits/limits.ts';
import { createRequestGate, type RequestGate } from '../../lib/limits/request-gate.ts';
import { createGateKeeper, createRemoteGate } from '../../lib/workers/remote-gate.ts';
import { type ClientMembers, clientOf } from '../support/doors/clients.ts';

const never = new AbortController().signal;
const turn = (): Promise<void> => new Promise((done) => setImmediate(done));
const client = (limits: ClientMembers['limits'] = {}): LimitedClient => clientOf({ limits });

/** A worker of `gate`; `sent` has what it said. Messages arrive in a later turn, in their order. */
function workerOf(gate: RequestGate) {
  const sent: string[] = [];
  const keeper = createGateKeeper(gate, (message) =>
    setImmediate(() => remote.receive(structuredClone(message))),
  );
  const remote = createRemoteGate((message) => {
    sent.push(message.type);
    const copy = structuredClone(message);
    setImmediate(() => keeper.receive(copy));
  });
  return { remote, keeper, sent };
}

describe('the gate of the primary, asked by workers', { timeout: 600_000 }, () => {
  it('counts the requests of all workers together', async () => {
    const gate = createRequestGate({ counts: createRequestCounts({ clock: systemClock }), queue: undefined });
    const [one, two] = [workerOf(gate), workerOf(gate)];
    const limited = client({ maxConcurrent: 2, tokensPerDay: 10 });
    const first = await one.remote.enter({ client: limited, signal: never });
    const second = await two.remote.enter({ client: limited, signal: never });
    const third = one.remote.enter({ client: limited, signal: never });
    await assert.rejects(third, { code: 'max_concurrent_reached', retryAfter: 1 });
    second.release(4);
    second.release(4);
    (await two.remote.enter({ client: limited, signal: never })).release(5);
    first.release(1);
    await turn();
    const beyond = two.remote.enter({ client: limited, signal: never });
    await assert.rejects(beyond, { code: 'tokens_per_day_reached' });
    assert.deepEqual(two.sent, ['enter', 'release', 'enter', 'release', 'enter']);
  });

  it('is sent only the name and the limits of a client, no tokens and no API key', async () => {
    const asked: unknown[] = [];
    const gate = createRemoteGate((message) => asked.push(message));
    const full = clientOf({ tokens: ['00'.repeat(32)], apiKey: 'k', mixSalt: () => '' });
    void gate.enter({ client: full, signal: never });
    assert.deepEqual(asked, [{ type: 'enter', id: 1, client: { name: full.name, limits: full.limits } }]);
  });

  it('rejects a request with the error code and the seconds for Retry-After', async () => {
    const gate = createRequestGate({ counts: createRequestCounts({ clock: systemClock }), queue: undefined });
    const { remote } = workerOf(gate);
    const limited = client({ requestsPerMinute: 1 });
    await remote.enter({ client: limited, signal: never });
    await assert.rejects(remote.enter({ client: limited, signal: never }), {
      code: 'requests_per_minute_reached',
      retryAfter: 60,
    });
  });

  it('takes a waiting request out of its queue when the request is over', async () => {
    const queue = createFairQueue(1, systemClock);
    const { remote } = workerOf(createRequestGate({ counts: undefined, queue }));
    await remote.enter({ client: undefined, signal: never });
    const control = new AbortController();
    const waiting = remote.enter({ client: undefined, signal: control.signal });
    await turn();
    assert.equal(queue.size().waiting, 1);
    control.abort(new Error('left'));
    await assert.rejects(waiting, /left/);
    await turn();
    assert.deepEqual(queue.size(), { running: 1, waiting: 0, clients: 1 });
    assert.equal(getEventListeners(control.signal, 'abort').length, 0);
  });

  it('frees a permit that it gave before it learned that the request is over', async () => {
    const queue = createFairQueue(1, systemClock);
    const counts = createRequestCounts({ clock: systemClock });
    const { remote, sent } = workerOf(createRequestGate({ counts, queue }));
    const control = new AbortController();
    const entering = remote.enter({ client: client({ maxConcurrent: 1 }), signal: control.signal });
    control.abort(new Error('left'));
    await assert.rejects(entering, /left/);
    for (let i = 0; i < 3; i++) await turn();
    assert.deepEqual(sent, ['enter', 'leave-queue']);
    assert.equal(queue.size().running, 0);
    await remote.enter({ client: client({ maxConcurrent: 1 }), signal: never });
  });

  it('frees the places that a worker held and waited for when the worker is gone, and ignores its late messages', async () => {
    const queue = createFairQueue(2, systemClock);
    const gate = createRequestGate({ counts: createRequestCounts({ clock: systemClock }), queue });
    const { remote, keeper } = workerOf(gate);
    const limited = client({ maxConcurrent: 5 });
    for (let i = 0; i < 5; i++) remote.enter({ client: limited, signal: never }).catch(() => {});
    await turn();
    assert.deepEqual(queue.size(), { running: 2, waiting: 3, clients: 1 });
    keeper.close();
    await turn();
    assert.deepEqual(queue.size(), { running: 0, waiting: 0, clients: 0 });
    keeper.receive({ type: 'enter', id: 99, client: limited });
    assert.equal(queue.size().running, 0, 'a last word that came late');
    const permits = [gate.enter({ client: limited, signal: never }) as Permit];
    permits.push(gate.enter({ client: limited, signal: never }) as Permit);
    for (const permit of permits) permit.release(0);
  });

  it('rejects waiting requests with shutting_down when it is closed', async () => {
    const gate = createRemoteGate(() => {});
    const entering = gate.enter({ client: undefined, signal: never });
    gate.close();
    await assert.rejects(entering, { code: 'shutting_down' });
  });
});
