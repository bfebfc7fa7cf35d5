import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { serviceManager } from '../../lib/listener/systemd.ts';
import { createFakeClock } from '../support/remote/fake-clock.ts';

const PID = 42;

function recorded(env: Record<string, string>, notify?: () => Promise<void>) {
  const clock = createFakeClock();
  const messages: string[] = [];
  const failures: string[] = [];
  const manager = serviceManager(
    env,
    (reason) => failures.push(reason),
    clock,
    async (variables) => {
      messages.push(variables.join(' '));
      await notify?.();
    },
    PID,
  );
  return { clock, manager, messages, failures };
}

const SOCKET = { NOTIFY_SOCKET: '/run/systemd/notify' };

describe('the service manager', () => {
  it('is told when the port is open, and at the stop how long that may take', async () => {
    const { manager, messages } = recorded(SOCKET);
    await manager.ready('listening on http://127.0.0.1:8080');
    await manager.stopping(600_000);
    assert.deepEqual(messages, [
      'READY=1 STATUS=listening on http://127.0.0.1:8080',
      'STOPPING=1 EXTEND_TIMEOUT_USEC=615000000',
    ]);
  });

  it('is told nothing if NOTIFY_SOCKET is not set', async () => {
    const { manager, messages } = recorded({ WATCHDOG_USEC: '1000' });
    await manager.ready('x');
    await manager.stopping(0);
    assert.deepEqual(messages, []);
  });

  it('gets two keep-alives per watchdog interval until the proxy stops', async () => {
    const { clock, manager, messages } = recorded({
      ...SOCKET,
      WATCHDOG_USEC: '30000000',
      WATCHDOG_PID: String(PID),
    });
    await clock.advance(60_000);
    assert.deepEqual(messages, []);
    await manager.ready('x');
    await clock.advance(30_000);
    assert.deepEqual(messages.slice(1), ['WATCHDOG=1', 'WATCHDOG=1']);
    await manager.stopping(0);
    await clock.advance(60_000);
    assert.equal(messages.length, 4);
    assert.match(messages[3] ?? '', /^STOPPING=1 /);
  });

  it('gets no keep-alives if it did not ask this process for them', async () => {
    for (const env of [
      {},
      { WATCHDOG_USEC: '0' },
      { WATCHDOG_USEC: 'x' },
      { WATCHDOG_USEC: '1000000', WATCHDOG_PID: '1' },
    ]) {
      const { clock, manager, messages } = recorded({ ...SOCKET, ...env });
      await manager.ready('x');
      await clock.advance(60_000);
      assert.equal(messages.length, 1);
      await manager.stopping(0);
    }
  });

  it('does not end the proxy if it cannot be reached, which is reported once each time', async () => {
    let reached = false;
    const { manager, failures } = recorded(SOCKET, async () => {
      if (!reached) throw new Error('spawn systemd-notify ENOENT');
    });
    await manager.ready('x');
    await manager.stopping(0);
    assert.deepEqual(failures, ['spawn systemd-notify ENOENT']);
    reached = true;
    await manager.stopping(0);
    reached = false;
    await manager.stopping(0);
    assert.equal(failures.length, 2);
  });
});
