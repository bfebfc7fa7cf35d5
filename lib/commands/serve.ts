/** The program's life in its process: started, ready, told to stop by signals or by an error, and ended. */
import cluster from 'node:cluster';
import { constants } from 'node:os';
import type { Config } from '../config/config.ts';
import { PROTOCOL_VERSION } from '../envelope/protection.ts';
import { createLogger, type Logger, type LogOutput, statusLine } from '../observe/log.ts';
import { startProxy } from '../proxy.ts';
import { serviceManager } from '../server/systemd.ts';
import { VERSION } from '../version.ts';
import { runWorker } from '../workers/worker.ts';

/** Runs the proxy until it must stop. Resolves with 0 after SIGTERM or SIGINT and a drain, with 1 after a permanent error. */
export async function run(
  config: Config,
  warnings: readonly string[],
  io: { readonly stderr: LogOutput },
): Promise<number> {
  const status = cluster.isWorker || config.logFormat === 'json' ? undefined : statusLine(io.stderr);
  const output = status ?? io.stderr;
  const log = createLogger({ format: config.logFormat, level: config.logLevel, output });
  if (cluster.isWorker) return runWorker(config, log, process.env);
  log.info({ version: `v${VERSION}`, protocol: PROTOCOL_VERSION }, 'Privatemode encryption proxy');
  for (const warning of warnings) log.warn(warning);

  const { promise: ended, resolve: end } = Promise.withResolvers<number>();
  const proxy = await startProxy(config, {
    env: process.env,
    log,
    status,
    onPermanent({ code, message: reason, remedy }) {
      log.error({ code, reason, remedy }, 'The proxy cannot go on');
      end(1);
    },
  });
  let stopping = false;
  const stop = (signal: 'SIGTERM' | 'SIGINT'): void => {
    if (stopping) endNow(signal, log);
    stopping = true;
    end(0);
  };
  const signals = { SIGTERM: stop, SIGINT: stop, SIGHUP: () => proxy.reload() } as const;
  for (const [signal, handler] of Object.entries(signals)) process.on(signal, handler);
  const manager = serviceManager(process.env, (reason) =>
    log.warn({ reason }, 'The service manager cannot be told'),
  );
  await manager.ready(`listening on ${proxy.url}`);
  const code = await ended;
  log.info('Shutting down server');
  await Promise.all([manager.stopping(), proxy.close()]);
  for (const [signal, handler] of Object.entries(signals)) process.off(signal, handler);
  return code;
}

/** On a second signal: no stream is finished, and the exit code is that of the signal. */
function endNow(signal: 'SIGTERM' | 'SIGINT', log: Logger): never {
  log.warn({ signal }, 'A second signal, ending at once');
  for (const worker of Object.values(cluster.workers ?? {})) worker?.process.kill('SIGKILL');
  process.exit(128 + constants.signals[signal]);
}
