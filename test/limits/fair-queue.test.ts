/** Who is next where --max-in-flight requests run. */

import assert from 'node:assert/strict';
import { getEventListeners, setMaxListeners } from 'node:events';
import { after, describe, it, type TestContext } from 'node:test';
import { systemClock } from '../../lib/clock.ts';
import { PrivatemodeError } from '../../lib/errors.ts';
import { createFairQueue } from '../../lib/limits/fair-queue.ts';

/** Nobody leaves before the tests are over. */
const over = new AbortController();
const never = over.signal;
setMaxListeners(0, never);
after(() => over.abort());
const turn = (): Promise<void> => new Promise((done) => setImmediate(done));

function scene(limit: number) {
  const queue = createFairQueue(limit, systemClock);
  /** Who got a place, in that order; `name!code` where it got none. */
  const events: string[] = [];
  const places: { readonly name: string | undefined; readonly leave: () => void }[] = [];
  return {
    queue,
    events,
    places,
    ask(name: string | undefined, signal: AbortSignal = never, label: string = String(name)): void {
      const got = (leave: () => void): void => {
        events.push(label);
        places.push({ name, leave });
      };
      const refused = (thrown: unknown): void => {
        const said =
          thrown instanceof PrivatemodeError ? `${thrown.code} ${thrown.retryAfter}` : String(thrown);
        events.push(`${label}: ${said}`);
      };
      try {
        const place = queue.enter(name, signal);
        if (place instanceof Promise) place.then(got, refused);
        else got(place);
      } catch (thrown) {
        refused(thrown);
      }
    },
    /** The oldest that runs, or the oldest of that client, is over. */
    async end(name?: string): Promise<void> {
      const i = name === undefined ? 0 : places.findIndex((place) => place.name === name);
      places.splice(i, 1)[0]?.leave();
      await turn();
    },
  };
}

const REFUSED = 'max_in_flight_reached 2';

describe('the queue of --max-in-flight', { timeout: 600_000 }, () => {
  it('gives a place at once while fewer requests run than the flag allows, and the next place when one is over', async () => {
    const { ask, end, events, queue } = scene(2);
    for (const name of ['a', 'b', 'c', 'd']) ask(name);
    assert.deepEqual([events, queue.size().waiting], [['a', 'b'], 2]);
    await end();
    assert.deepEqual(events, ['a', 'b', 'c']);
    assert.deepEqual(queue.size(), { running: 2, waiting: 1 });
  });

  it('keeps the order of arrival among the requests of one client, and among all requests without --clients', async () => {
    for (const name of ['a', undefined]) {
      const { ask, end, events } = scene(1);
      for (const label of ['1', '2', '3', '4']) ask(name, never, label);
      for (let i = 0; i < 4; i++) await end();
      assert.deepEqual(events, ['1', '2', '3', '4']);
    }
  });

  it('gives the next place to the waiting client that has the fewest requests running', async () => {
    const { ask, end, events } = scene(4);
    for (const name of ['a', 'a', 'a', 'b', 'a', 'b', 'c']) ask(name);
    assert.deepEqual(events, ['a', 'a', 'a', 'b']);
    await end('a');
    assert.equal(events.at(-1), 'c', 'has none');
    await end('a');
    assert.equal(events.at(-1), 'a', 'one each, and a has waited longer');
    await end('c');
    assert.equal(events.at(-1), 'b', 'has one, and there are two of a');
  });

  it('gives places in turn to clients that have equally many requests running', async () => {
    const { ask, end, events } = scene(1);
    ask('x');
    for (const name of ['a', 'a', 'a', 'b', 'b', 'b', 'c']) ask(name);
    for (let i = 0; i < 7; i++) await end();
    assert.deepEqual(events, ['x', 'a', 'b', 'c', 'a', 'b', 'a', 'b']);
  });

  it('keeps a sixteenth of 8 or more places, rounded up, free for clients that have nothing running', () => {
    for (const [limit, kept] of [
      [1, 0],
      [7, 0],
      [8, 1],
      [16, 1],
      [17, 2],
      [100, 7],
    ] as const) {
      const { ask, events } = scene(limit);
      for (let i = 0; i < limit + 10; i++) ask('flooder');
      assert.equal(events.length, limit - kept, `of ${limit} places`);
      for (let i = 0; i < limit; i++) ask(`client-${i}`);
      assert.equal(events.length, limit, 'one each, until all places are taken');
    }
    const { ask, events } = scene(16);
    for (let i = 0; i < 20; i++) ask(undefined);
    assert.equal(events.length, 16, 'without --clients there are no others');
  });

  it('gives the next place to a client with nothing running even when the places kept free are taken', async () => {
    const { ask, end, events, queue } = scene(8);
    for (let i = 0; i < 200; i++) ask('flooder');
    for (const name of ['third', 'victim', 'victim']) ask(name);
    assert.deepEqual([events.slice(7), queue.size().running], [['third'], 8]);
    await end('flooder');
    assert.deepEqual(events.slice(7), ['third', 'victim']);
    await end('victim');
    assert.deepEqual(events.slice(7), ['third', 'victim', 'victim']);
    for (const name of ['third', 'victim', 'flooder', 'flooder']) await end(name);
    assert.equal(queue.size().running, 7, 'the flooder alone does not get the kept place back');
  });

  it('refuses a request that has waited for 10 s; one that came later goes on waiting and gets the next place', async (t: TestContext) => {
    t.mock.timers.enable({ apis: ['setTimeout'] });
    const { ask, end, events, queue } = scene(1);
    ask('a');
    ask('b');
    t.mock.timers.tick(5_000);
    ask('c');
    t.mock.timers.tick(4_999);
    await turn();
    assert.deepEqual(events, ['a']);
    t.mock.timers.tick(1);
    await turn();
    assert.deepEqual(events, ['a', `b: ${REFUSED}`]);
    assert.deepEqual(queue.size(), { running: 1, waiting: 1 });
    await end();
    assert.equal(events.at(-1), 'c');
    t.mock.timers.tick(20_000);
    await end();
    assert.deepEqual([events.length, queue.size()], [3, { running: 0, waiting: 0 }]);
  });

  it('drops a waiting request when its signal aborts, and keeps no listener on that signal', async () => {
    const { ask, end, events, queue } = scene(1);
    const control = new AbortController();
    ask('a');
    ask('b', control.signal);
    ask('c', control.signal);
    ask('c');
    control.abort('left');
    await turn();
    assert.deepEqual(events, ['a', 'b: left', 'c: left']);
    assert.deepEqual(queue.size(), { running: 1, waiting: 1 });
    assert.equal(getEventListeners(control.signal, 'abort').length, 0);
    await end();
    assert.equal(events.at(-1), 'c');
  });

  it('holds 256 waiting requests of one client and 1,024 of all, and refuses the next at once', async () => {
    const { ask, end, events, queue } = scene(1);
    ask('x');
    for (const name of ['a', 'b', 'c']) for (let i = 0; i < 256; i++) ask(name);
    ask('a');
    assert.deepEqual([events.splice(0), queue.size().waiting], [['x', `a: ${REFUSED}`], 768]);
    for (let i = 0; i < 256; i++) ask('d');
    ask('e');
    assert.deepEqual([events.splice(0), queue.size().waiting], [[`e: ${REFUSED}`], 1024]);
    await end();
    ask('e');
    assert.deepEqual([events, queue.size().waiting], [['a'], 1024]);
  });
});
