/** What systemd wants from a service: readiness and keep-alives. */
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { type Clock, every } from '../clock.ts';

/**
 * Sends one message (`READY=1`, …). The unit needs NotifyAccess=all, because a child process sends the
 * message.
 */
const systemdNotify = (variables: readonly string[], { managerTimeout }: Clock['times']): Promise<unknown> =>
  promisify(execFile)('systemd-notify', variables, { timeout: managerTimeout });

/**
 * Tells the service manager what it wants to know of a running service (sd_notify(3)), if NOTIFY_SOCKET names
 * one. Node cannot open a datagram socket in the file system, so systemd's own `systemd-notify` sends the
 * messages. If that fails, `onFailure` gets the reason, once until a message has arrived again. The functions
 * never reject: a service that runs need not end because its manager cannot be reached.
 */
export function serviceManager(
  env: NodeJS.ProcessEnv,
  onFailure: (reason: string) => void,
  clock: Clock,
  notify = systemdNotify,
  pid = process.pid,
) {
  let failed = false;
  const tell = async (...variables: string[]): Promise<void> => {
    if (!env['NOTIFY_SOCKET']) return;
    try {
      await notify(variables, clock.times);
      failed = false;
    } catch (thrown) {
      if (!failed) onFailure((thrown as Error).message);
      failed = true;
    }
  };
  const interval = watchdogInterval(env, pid);
  let stop = (): void => {};
  return {
    /**
     * Called when the port is open. `status` is what `systemctl status` shows. Starts the keep-alives, if the
     * manager wants any.
     */
    async ready(status: string): Promise<void> {
      await tell('READY=1', `STATUS=${status}`);
      if (interval === undefined) return;
      // A timer that fires is the proof of life: it needs the event loop that everything else needs.
      stop = every(clock, interval, () => void tell('WATCHDOG=1'));
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

/**
 * ms between keep-alives, half of what the watchdog allows (sd_watchdog_enabled(3)); undefined: it does not
 * watch this process.
 */
function watchdogInterval(env: NodeJS.ProcessEnv, pid: number): number | undefined {
  const microseconds = Number(env['NOTIFY_SOCKET'] && env['WATCHDOG_USEC']);
  if (!Number.isInteger(microseconds) || microseconds <= 0) return undefined;
  if (env['WATCHDOG_PID'] !== undefined && env['WATCHDOG_PID'] !== String(pid)) return undefined;
  return Math.max(microseconds / 2_000, 1);
}
