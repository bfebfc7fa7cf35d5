/** What systemd wants from a service (sd_notify(3), sd_watchdog_enabled(3)): readiness and keep-alives. */
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { type Clock, every } from '../clock.ts';

const run = promisify(execFile);

/**
 * Tells the service manager that NOTIFY_SOCKET names, by `systemd-notify`, because Node opens no datagram
 * socket in the file system; the unit needs NotifyAccess=all for it. If that fails, `onFailure` gets the
 * reason, once until a message has arrived again, and the service goes on.
 */
export function serviceManager(
  env: NodeJS.ProcessEnv,
  onFailure: (reason: string) => void,
  clock: Clock,
  send = (variables: readonly string[]): Promise<unknown> =>
    run('systemd-notify', variables, { timeout: clock.times.managerTimeout }),
) {
  let failed = false;
  let stop = (): void => {};
  const tell = async (...variables: string[]): Promise<void> => {
    if (!env['NOTIFY_SOCKET']) return;
    try {
      await send(variables);
      failed = false;
    } catch (thrown) {
      if (!failed) onFailure((thrown as Error).message);
      failed = true;
    }
  };
  return {
    /** Called when the port is open. `status` is what `systemctl status` shows. Starts the keep-alives. */
    async ready(status: string): Promise<void> {
      await tell('READY=1', `STATUS=${status}`);
      const { WATCHDOG_USEC: microseconds, WATCHDOG_PID: watched = process.pid } = env;
      if (!(Number(microseconds) > 0) || Number(watched) !== process.pid) return;
      // A timer that fires is the proof of life: it needs the event loop that everything else needs.
      const half = Math.max(Number(microseconds) / 2_000, 1);
      stop = every(clock, half, () => void tell('WATCHDOG=1'));
    },
    /**
     * Called when the proxy begins to stop, which may take `ms` and a margin: without asking for that time, a
     * proxy with a long --shutdown-grace would be killed after TimeoutStopSec. Ends the keep-alives.
     */
    async stopping(ms: number): Promise<void> {
      stop();
      await tell('STOPPING=1', `EXTEND_TIMEOUT_USEC=${(ms + clock.times.stopMargin) * 1000}`);
    },
  };
}
