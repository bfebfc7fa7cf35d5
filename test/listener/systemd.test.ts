/** What systemd is told of the service, and when. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { serviceManager } from '../../lib/listener/systemd.ts';
import { createFakeClock } from '../support/remote/fake-clock.ts';

const SOCKET = { NOTIFY_SOCKET: '/run/systemd/notify' };
const WATCHED = { ...SOCKET, WATCHDOG_USEC: '30000000', WATCHDOG_PID: String(process.pid) };

/** A service manager; `state.isGone`: it cannot be reached. */
function scene(env: Record<string, string>) {
  const clock = createFakeClock();
  const messages: string[] = [];
  const failures: string[] = [];
  const state = { isGone: false };
  const send = async (variables: readonly string[]): Promise<void> => {
    if (state.isGone) throw new Error('spawn systemd-notify ENOENT');
    messages.push(variables.join(' '));
  };
  const manager = serviceManager(env, (reason) => failures.push(reason), clock, send);
  return { clock, manager, messages, failures, state };
}

describe('the service manager', () => {
  it('is told when the port is open, gets two keep-alives per watchdog interval, and is told how long the stop may take', async () => {
    const { clock, manager, messages } = scene(WATCHED);
    await clock.advance(60_000);
    assert.deepEqual(messages, []);
    await manager.ready('listening on http://127.0.0.1:8080');
    await clock.advance(30_000);
    await manager.stopping(600_000);
    await clock.advance(60_000);
    assert.deepEqual(messages, [
      'READY=1 STATUS=listening on http://127.0.0.1:8080',
      'WATCHDOG=1',
      'WATCHDOG=1',
      'STOPPING=1 EXTEND_TIMEOUT_USEC=615000000',
    ]);
  });

  it('is told nothing if NOTIFY_SOCKET is not set, and gets keep-alives only if it asked this process for them', async () => {
    for (const [env, count] of [
      [{ WATCHDOG_USEC: '1000' }, 0],
      [SOCKET, 1],
      [{ ...SOCKET, WATCHDOG_USEC: '0' }, 1],
      [{ ...SOCKET, WATCHDOG_USEC: 'x' }, 1],
      [{ ...WATCHED, WATCHDOG_PID: '1' }, 1],
      [{ ...SOCKET, WATCHDOG_USEC: '30000000' }, 5],
    ] as const) {
      const { clock, manager, messages } = scene(env);
      await manager.ready('x');
      await clock.advance(60_000);
      assert.equal(messages.length, count, JSON.stringify(env));
    }
  });

  it('does not end the proxy if it cannot be reached, which is reported once each time', async () => {
    const { manager, failures, state } = scene(SOCKET);
    for (const isGone of [true, true, false, true]) {
      state.isGone = isGone;
      await manager.stopping(0);
    }
    assert.deepEqual(failures, ['spawn systemd-notify ENOENT', 'spawn systemd-notify ENOENT']);
  });
});
