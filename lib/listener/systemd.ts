/** What systemd expects of a service (sd_notify(3), sd_watchdog_enabled(3)): readiness and keep-alives. */
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { type Clock, every } from '../clock.ts';

/**
 * Tells the service manager at NOTIFY_SOCKET by `systemd-notify`, because Node opens no Unix datagram socket.
 * So the unit needs NotifyAccess=all. `onFailure` is called once until a message arrives again.
 */
export function serviceManager(
  env: NodeJS.ProcessEnv,
  onFailure: (reason: string) => void,
  clock: Clock,
  send = (variables: readonly string[]): Promise<unknown> =>
    promisify(execFile)('systemd-notify', variables, { timeout: clock.times.managerTimeout }),
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
    /** Reports that the port is open, and starts the keep-alives. `status`: what `systemctl status` shows. */
    async ready(status: string): Promise<void> {
      await tell('READY=1', `STATUS=${status}`);
      const { WATCHDOG_USEC: microseconds, WATCHDOG_PID: watched = process.pid } = env;
      if (!(Number(microseconds) > 0) || Number(watched) !== process.pid) return;
      // A timer sends the keep-alives: it fires only while the event loop runs, on which all of the proxy
      // depends.
      stop = every(clock, Math.max(Number(microseconds) / 2_000, 1), () => void tell('WATCHDOG=1'));
    },
    /** Ends the keep-alives, and asks for `ms` plus a margin to stop: TimeoutStopSec might be too short. */
    async stopping(ms: number): Promise<void> {
      stop();
      await tell('STOPPING=1', `EXTEND_TIMEOUT_USEC=${(ms + clock.times.stopMargin) * 1000}`);
    },
  };
}
