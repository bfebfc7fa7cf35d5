/** A port that several instances share: when it is open, and what becomes of its connections. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect } from 'node:net';
import { describe, it, type TestContext } from 'node:test';
import { systemClock } from '../../lib/clock.ts';
import type { PrivatemodeError } from '../../lib/errors.ts';
import { listen } from '../../lib/listener/listen.ts';
import { sharePort } from '../../lib/listener/serving.ts';
import { get } from '../support/doors/gateway-fixture.ts';
import { recordingLogger } from '../support/doors/logger.ts';
import { rawClient } from '../support/doors/raw-client.ts';
import { freePort } from '../support/processes/foreign-programs.ts';
import { createFakeClock } from '../support/remote/fake-clock.ts';

describe('a listener whose port is shared', () => {
  async function sharing(t: TestContext, port: number, name: string) {
    const at = { host: '127.0.0.1', port, reusePort: true };
    const listener = await listen({ at, clock: systemClock }, (_req, res) => res.end(name));
    t.after(() => {
      listener.destroy();
      return listener.drain();
    });
    return listener;
  }

  it('begins closed, opens beside another one, and keeps its connections when it is shut', async (t) => {
    const port = Number(await freePort());
    const closed = (): Promise<void> =>
      assert.rejects(once(connect(port, '127.0.0.1'), 'connect'), { code: 'ECONNREFUSED' });
    const [one, other] = [await sharing(t, port, 'one'), await sharing(t, port, 'other')];
    await closed();
    await one.open();
    const asked = async (answer: RegExp) => {
      const client = rawClient(port);
      t.after(() => client.socket.destroy());
      client.send(get('/'));
      await client.until(answer);
      return client;
    };
    const kept = await asked(/one$/);
    await other.open();
    one.shut();
    assert.deepEqual([one.isOpen(), other.isOpen()], [false, true]);
    await asked(/other$/);
    kept.send(get('/'));
    await kept.until(/one[\s\S]*keep-alive[\s\S]*one$/i);
    other.shut();
    await closed();
    await one.open();
    assert.ok(one.isOpen());
  });
});

describe('a shared port', () => {
  /** A listener that opens one turn later, or never with `refused`; `ends`: when the secret expires. */
  function scene(refused?: Error) {
    const clock = createFakeClock();
    const state = { isOpen: false, ends: undefined as number | undefined };
    const failures: PrivatemodeError[] = [];
    const listener = {
      isOpen: () => state.isOpen,
      async open() {
        await new Promise(setImmediate);
        if (refused !== undefined) throw refused;
        state.isOpen = true;
      },
      shut: () => {
        state.isOpen = false;
      },
    };
    const port = sharePort(listener, {
      session: {
        held() {
          const { ends: expiresMonotonic = 0 } = state;
          return clock.monotonic() < expiresMonotonic ? { expiresMonotonic } : undefined;
        },
      },
      onPermanent: (error) => failures.push(error),
      log: recordingLogger().log,
      clock,
    });
    return { clock, state, port, failures };
  }

  it('is open while a secret is in force, and closes in the moment in which that ends', async () => {
    const { clock, state, port } = scene();
    let opened = false;
    void port.opened.then(() => {
      opened = true;
    });
    port.look();
    await clock.advance(60_000);
    assert.deepEqual([state.isOpen, opened], [false, false]);
    state.ends = 100_000;
    port.look();
    await clock.advance(39_999);
    assert.deepEqual([state.isOpen, opened], [true, true]);
    await clock.advance(1);
    assert.equal(state.isOpen, false);
    state.ends = 200_000;
    port.look();
    await clock.advance(0);
    assert.equal(state.isOpen, true);
    state.ends = undefined; // dropped or rejected
    port.look();
    assert.equal(state.isOpen, false);
  });

  it('does not stay open if the secret goes while it opens, and never opens after its end', async () => {
    const { clock, state, port } = scene();
    state.ends = 100_000;
    port.look();
    state.ends = undefined;
    await clock.advance(10);
    assert.equal(state.isOpen, false);
    state.ends = 100_000;
    port.look();
    port.end();
    await clock.advance(10);
    port.look();
    await clock.advance(10);
    assert.equal(state.isOpen, false);
    assert.equal(clock.timers().all, 0);
  });

  it('tells whoever runs the program if it cannot be opened', async () => {
    const { clock, state, port, failures } = scene(new Error('taken'));
    state.ends = 100_000;
    port.look();
    await clock.advance(10);
    assert.equal(failures.length, 1);
  });
});
