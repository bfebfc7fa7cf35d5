/** The program's life in its process: started, ready, told to stop by signals or by an error, and ended. */
import cluster from 'node:cluster';
import { constants } from 'node:os';
import { setTimeout as passed } from 'node:timers/promises';
import type { Config } from '../config/config.ts';
import { createLogger, type Logger, type LogOutput, statusLine } from '../observe/log.ts';
import { type RunningProxy, startProxy } from '../proxy.ts';
import { inheritedSocket, serviceManager } from '../server/systemd.ts';
import { VERSION } from '../version.ts';
import { runWorker } from '../workers/worker.ts';

/**
 * Runs the proxy until it must stop. Resolves with 0 after SIGTERM or SIGINT, --shutdown-delay and a drain, with 1 after a permanent
 * error and a drain: it was not ready anyway, so there is nothing to wait for.
 */
export async function run(
  config: Config,
  warnings: readonly string[],
  io: { readonly stderr: LogOutput },
): Promise<number> {
  const status = cluster.isWorker || config.logFormat === 'json' ? undefined : statusLine(io.stderr);
  const output = status ?? io.stderr;
  const log = createLogger({ format: config.logFormat, level: config.logLevel, output });
  if (cluster.isWorker) return runWorker(config, log, process.env);
  log.info({ version: `v${VERSION}`, protocol: config.protocolVersion }, 'Privatemode encryption proxy');
  for (const warning of warnings) log.warn(warning);

  const { promise: ended, resolve: end } = Promise.withResolvers<number>();
  let proxy: RunningProxy | undefined;
  let stopping = false;
  const portClosing = new AbortController();
  const stop = (signal: 'SIGTERM' | 'SIGINT'): void => {
    if (!stopping) end(0);
    else if (proxy === undefined || portClosing.signal.aborted) endNow(signal, log);
    else portClosing.abort();
    stopping = true;
  };
  // Before the start, which says that it listens: whoever waits for that may send a signal at once.
  const signals = { SIGTERM: stop, SIGINT: stop, SIGHUP: () => proxy?.reload() } as const;
  const heed = (how: 'on' | 'off'): void => {
    for (const [signal, handler] of Object.entries(signals)) process[how](signal, handler);
  };
  heed('on');
  try {
    proxy = await startProxy(config, {
      env: process.env,
      log,
      status,
      onPermanent({ code, message: reason, remedy }) {
        log.error({ code, reason, remedy }, 'The proxy cannot go on');
        end(1);
      },
    });
  } catch (thrown) {
    heed('off');
    throw thrown;
  }
  const manager = serviceManager(process.env, (reason) =>
    log.warn({ reason }, 'The service manager cannot be told'),
  );
  await manager.ready(`listening on ${proxy.url}`);
  const code = await ended;
  log.info('Shutting down server');
  proxy.announceStop();
  const managerTold = manager.stopping();
  const delay = code === 0 ? delayOf(config) : 0;
  if (delay > 0) {
    log.info(
      { delaySeconds: delay / 1000 },
      'The port closes after the delay; a second signal closes it now',
    );
    await passed(delay, undefined, { signal: portClosing.signal }).catch(() => {});
  }
  portClosing.abort();
  await Promise.all([managerTold, proxy.close()]);
  heed('off');
  return code;
}

/** ms between the announcement and the end of the port. A socket of systemd takes connections all the time, for the next process. */
const delayOf = ({ shutdownDelay }: Config): number =>
  inheritedSocket(process.env) === undefined ? shutdownDelay : 0;

/** On a second signal while responses end: no stream is finished, and the exit code is that of the signal. */
function endNow(signal: 'SIGTERM' | 'SIGINT', log: Logger): never {
  log.warn({ signal }, 'A second signal, ending at once');
  for (const worker of Object.values(cluster.workers ?? {})) worker?.process.kill('SIGKILL');
  process.exit(128 + constants.signals[signal]);
}
