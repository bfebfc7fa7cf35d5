/**
 * Runs the proxy in this process: starts it, handles signals, and shuts it down after a signal or a permanent
 * error.
 */
import { constants } from 'node:os';
import { isatty } from 'node:tty';
import { type Clock, pause } from '../clock.ts';
import type { Config } from '../config/config.ts';
import { inheritedSocket } from '../config/inherited-socket.ts';
import type { PrivatemodeError } from '../errors.ts';
import { serviceManager } from '../listener/systemd.ts';
import { createLogger, type Logger, type LogOutput, statusLine } from '../observe/log.ts';
import { type RunningProxy, startProxy } from '../proxy.ts';
import { printable } from '../text.ts';
import { VERSION } from '../version.ts';

/**
 * Runs the proxy until it must stop. Resolves with 0 after SIGTERM or SIGINT, the --shutdown-delay and a
 * drain. Resolves with 1 after a permanent error and a drain; there is no delay then, because the proxy was
 * not ready anyway.
 */
export async function run(
  config: Config,
  warnings: readonly string[],
  io: { readonly stderr: LogOutput; readonly clock: Clock },
): Promise<number> {
  const { clock } = io;
  const status = config.logFormat === 'json' ? undefined : statusLine(io.stderr);
  const output = status ?? io.stderr;
  const log = createLogger({ format: config.logFormat, level: config.logLevel, output });
  log.info({ version: `v${VERSION}`, protocol: config.protocolVersion }, 'Privatemode encryption proxy');
  for (const warning of warnings) log.warn(warning);

  const { promise: ended, resolve: end } = Promise.withResolvers<number>();
  let proxy: RunningProxy | undefined;
  let stopping = false;
  let hurried = false;
  let fatal: PrivatemodeError | undefined;
  const portClosing = new AbortController();
  const stop = (signal: 'SIGTERM' | 'SIGINT'): void => {
    if (!stopping) end(0);
    else if (proxy === undefined || hurried) endNow(signal, log, 'Another signal, ending at once');
    else if (portClosing.signal.aborted) {
      hurried = true;
      log.warn({ signal }, 'A second signal, ending the responses');
      proxy.endGrace();
      clock.after(clock.times.lastWork, () => endNow(signal, log, 'The end takes too long, ending at once'));
    } else portClosing.abort();
    stopping = true;
  };
  // The system also sends SIGHUP when a terminal closes. Nobody would see the proxy after that.
  const STDERR = 2;
  const onTerminal = isatty(STDERR);
  const hangUp = (): void => {
    if (!onTerminal || isatty(STDERR)) proxy?.reload();
    else if (!stopping) stop('SIGTERM'); // shells repeat the signal, which must not end responses
  };
  // Handle signals before the start: as soon as the proxy reports that it listens, another program may send
  // one.
  const signals = { SIGTERM: stop, SIGINT: stop, SIGHUP: hangUp } as const;
  const heed = (how: 'on' | 'off'): void => {
    for (const [signal, handler] of Object.entries(signals)) process[how](signal, handler);
  };
  heed('on');
  try {
    proxy = await startProxy(config, {
      clock,
      env: process.env,
      log,
      status,
      onPermanent(error) {
        fatal = error;
        logFatal(log, error, 'The proxy cannot go on');
        end(1);
      },
    });
  } catch (thrown) {
    heed('off');
    throw thrown;
  }
  const notTold = (reason: string): void => log.warn({ reason }, 'The service manager cannot be told');
  const manager = serviceManager(process.env, notTold, clock);
  // With --reuse-port the port opens with the first secret, and stays closed if the proxy must stop earlier.
  if ((await Promise.race([proxy.opened, ended])) === undefined)
    await manager.ready(`listening on ${proxy.url}`);
  const code = await ended;
  log.info('Shutting down server');
  proxy.announceStop();
  // A socket of systemd stays open for the next process, so it needs no delay.
  const hasDelay = code === 0 && inheritedSocket(process.env) === undefined;
  const delay = hasDelay ? config.shutdownDelay : 0;
  const managerTold = manager.stopping(delay + config.shutdownGrace);
  if (delay > 0) {
    const what = config.reusePort
      ? 'Open connections end after the delay; a second signal ends them now'
      : 'The port closes after the delay; a second signal closes it now';
    log.info({ delaySeconds: delay / 1000 }, what);
    await pause(clock, delay, portClosing.signal, 'waiting').catch(() => {});
  }
  portClosing.abort();
  // A disk that does not answer would hold the process, also once everything is closed.
  const tooLate = 'The end takes too long, as when a disk does not answer; ending at once';
  clock.after(config.shutdownGrace + clock.times.stopMargin, () => endNow('SIGKILL', log, tooLate));
  await Promise.all([managerTold, proxy.close()]);
  heed('off');
  // Repeat the error as the last line, where people and log collectors look first.
  if (fatal !== undefined && config.logFormat === 'text')
    io.stderr.write(`${printable(`Error: ${fatal.message.replace(/\.$/, '')}. ${fatal.remedy}`, 2_000)}\n`);
  else if (fatal !== undefined) logFatal(log, fatal, 'The proxy has ended');
  return code;
}

const logFatal = (log: Logger, { code, message: reason, remedy }: PrivatemodeError, what: string): void =>
  log.error({ code, reason, remedy }, what);

/**
 * Ends the process at once, by the signal; no response is finished. process.exit() alone would wait for a
 * disk that does not answer (docs/hazards.md 42).
 */
function endNow(signal: 'SIGTERM' | 'SIGINT' | 'SIGKILL', log: Logger, why: string): never {
  log.warn({ signal }, why);
  process.removeAllListeners(signal);
  process.kill(process.pid, signal);
  process.exit(128 + constants.signals[signal]); // process 1 of a container survives its own signals
}
