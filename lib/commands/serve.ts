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
import { VERSION } from '../version.ts';

/**
 * Runs the proxy until it must stop. Resolves with 0 after SIGTERM or SIGINT, the --shutdown-delay and a
 * drain. After a permanent error the proxy drains without a delay, because it was not ready anyway. The
 * function then throws the error, which becomes the last line of the log, where people and log collectors
 * look first.
 */
export async function run(
  config: Config,
  warnings: readonly string[],
  { stderr, clock }: { readonly stderr: LogOutput; readonly clock: Clock },
): Promise<number> {
  const { logFormat: format, logLevel: level } = config;
  const status = format === 'json' ? undefined : statusLine(stderr);
  const log = createLogger({ format, level, output: status ?? stderr });
  log.info({ version: `v${VERSION}`, protocol: config.protocolVersion }, 'Privatemode encryption proxy');
  for (const warning of warnings) log.warn(warning);

  const { promise: ended, resolve: end } = Promise.withResolvers<void>();
  let proxy: RunningProxy | undefined;
  let stopping = false;
  let hurried = false;
  let fatal: PrivatemodeError | undefined;
  const portClosing = new AbortController();
  const stop = (signal: 'SIGTERM' | 'SIGINT'): void => {
    if (!stopping) end();
    else if (proxy === undefined || hurried) endNow(signal, log, 'Another signal, ending at once');
    else if (portClosing.signal.aborted) {
      hurried = true;
      log.warn({ signal }, 'A second signal, ending the responses');
      proxy.endGrace();
      clock.after(clock.times.lastWork, () => endNow(signal, log, 'The end takes too long, ending at once'));
    } else portClosing.abort();
    stopping = true;
  };
  // When a terminal closes, the system also sends SIGHUP. The proxy then stops: nobody could see it any more.
  const onTerminal = isatty(process.stderr.fd);
  const hangUp = (): void => {
    if (!onTerminal || isatty(process.stderr.fd)) proxy?.reload();
    else if (!stopping) stop('SIGTERM'); // shells repeat SIGHUP, which must not end responses
  };
  // Handle signals before the start: another program may send a signal as soon as the proxy reports that it
  // listens.
  const signals = { SIGTERM: stop, SIGINT: stop, SIGHUP: hangUp } as const;
  const heed = (how: 'on' | 'off'): void => {
    for (const [signal, handler] of Object.entries(signals)) process[how](signal, handler);
  };
  heed('on');
  proxy = await startProxy(config, {
    clock,
    env: process.env,
    log,
    status,
    onPermanent(error) {
      fatal = error;
      const { code, message: reason, remedy } = error;
      log.error({ code, reason, remedy }, 'The proxy cannot go on');
      end();
    },
  }).catch((thrown: unknown) => {
    heed('off');
    throw thrown;
  });
  const notTold = (reason: string): void => log.warn({ reason }, 'The service manager cannot be told');
  const manager = serviceManager(process.env, notTold, clock);
  // With --reuse-port the port opens with the first secret, and stays closed if the proxy must stop earlier.
  const isOpen = await Promise.race([proxy.opened.then(() => true), ended]);
  if (isOpen) await manager.ready(`listening on ${proxy.url}`);
  await ended;
  log.info('Shutting down server');
  proxy.announceStop();
  // A socket of systemd stays open for the next process, so the shutdown needs no delay.
  const hasDelay = fatal === undefined && inheritedSocket(process.env) === undefined;
  const delay = hasDelay ? config.shutdownDelay : 0;
  const managerTold = manager.stopping(delay + config.shutdownGrace);
  if (delay > 0) {
    log.info({ delaySeconds: delay / 1000 }, 'Closing after the delay; a second signal ends it');
    await pause(clock, delay, portClosing.signal, 'waiting').catch(() => {});
  }
  portClosing.abort();
  // A disk that does not answer would keep the process alive, even once everything is closed.
  const tooLate = 'The end takes too long, as when a disk does not answer; ending at once';
  clock.after(config.shutdownGrace + clock.times.stopMargin, () => endNow('SIGKILL', log, tooLate));
  await Promise.all([managerTold, proxy.close()]);
  heed('off');
  if (fatal !== undefined) throw fatal;
  return 0;
}

/**
 * Sends the process the signal, which ends it at once and cuts off running responses. process.exit() alone
 * would wait for a disk that does not answer (docs/architecture.md H42).
 */
function endNow(signal: 'SIGTERM' | 'SIGINT' | 'SIGKILL', log: Logger, why: string): never {
  log.warn({ signal }, why);
  process.removeAllListeners(signal);
  process.kill(process.pid, signal);
  process.exit(128 + constants.signals[signal]); // process 1 of a container survives its own signals
}
