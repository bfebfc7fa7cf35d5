/** The worker processes as the primary runs them: forks them, and replaces those that die. */
import cluster, { type Worker } from 'node:cluster';
import { isSea } from 'node:sea';
import { PrivatemodeError } from '../errors.ts';
import { type GatewayServer, type GatewayServerDeps, spoilWarning } from '../gateway-server.ts';
import type { Collected } from '../observe/watch-requests.ts';
import { VERSION } from '../version.ts';
import { type ForkedWorker, type ForkedWorkerDeps, serveWorker } from './forked-worker.ts';
import { watchMissingWorkers } from './missing-workers.ts';

export interface WorkerPoolDeps extends ForkedWorkerDeps, Pick<GatewayServerDeps, 'log'> {
  /** Called at the end of a worker with what it sent last. `collect` returns that no more. */
  readonly workerEnded?: ((last: Collected) => void) | undefined;
  /**
   * The umask of this process while a worker starts, because this process may create a socket file for that
   * worker. Undefined: its own umask.
   */
  readonly startingUmask?: number | undefined;
  /** Called when no worker can ever listen again; the process is expected to end. */
  readonly onPermanent?: ((error: PrivatemodeError) => void) | undefined;
}

/**
 * Forks the workers, hands them epochs, answers their questions, and replaces those that die. A crash costs
 * the streams of one worker and nothing else. Resolves when the first worker listens. Throws the error
 * that kept the first worker from starting.
 */
export async function startWorkers(deps: WorkerPoolDeps): Promise<GatewayServer> {
  const { fd, log, clock } = deps;
  const { workerFirstRestart, workerLongestRestart, workerHealthy } = clock.times;
  const count = deps.config.workers;
  const workers = new Set<ForkedWorker>();
  const first = Promise.withResolvers<{ url: string; port: number }>();
  const warnOfSpoiltCache = spoilWarning();
  const missing = watchMissingWorkers(deps.conditions, count, clock);
  const ownUmask = process.umask(0o077); // Node deprecates reading it without setting it
  /** For each worker whose last message has not been read: resolved once it has. */
  const unread = new Set<Promise<void>>();
  /** Cancel the next forks. */
  const waiting = new Set<() => void>();
  let hasStarted = false;
  let closing = false;
  let delay = 0;

  const listening = (): number => [...workers].filter(({ listens }) => listens()).length;
  const setUmask = (): unknown =>
    process.umask(workers.size > listening() ? (deps.startingUmask ?? ownUmask) : ownUmask);
  setUmask();

  function noteListening(): void {
    if (hasStarted && !closing) missing.note(listening());
  }

  /** Reports why a worker did not start. If none has listened yet, the start of the proxy fails with that. */
  function notStarted(error: PrivatemodeError, worker?: number): void {
    first.reject(error);
    if (!hasStarted || closing) return;
    const { code, message: reason, remedy } = error;
    log.error({ worker, code, reason, remedy }, 'A worker could not start');
    missing.failed(error);
  }

  /** Forks another worker in place of one that was born at `bornAt`. Returns the ms until then. */
  function replace(bornAt: number): number {
    const longer = Math.min(Math.max(2 * delay, workerFirstRestart), workerLongestRestart);
    // A worker that lived long was not broken from its start.
    delay = clock.monotonic() - bornAt > workerHealthy ? 0 : longer;
    const again = (): void => {
      waiting.delete(cancel);
      fork();
    };
    const cancel = clock.after(delay, again, 'waiting');
    waiting.add(cancel);
    return delay;
  }

  /** From now on no worker is replaced. */
  function stopForking(): void {
    closing = true;
    for (const cancel of waiting) cancel();
    missing.close();
  }

  /** No worker listens, and none can ever listen again. */
  function giveUp(error: PrivatemodeError): void {
    if (closing) return;
    stopForking();
    deps.onPermanent?.(error);
  }

  function fork(): void {
    if (closing) return;
    const bornAt = clock.monotonic();
    process.umask(ownUmask); // the worker inherits it
    let forked: Worker;
    try {
      forked = cluster.fork();
    } catch (thrown) {
      setUmask();
      notStarted(forkFailed(thrown));
      replace(bornAt);
      return;
    }
    const worker = serveWorker(forked, deps, {
      listening(where) {
        hasStarted = true;
        setUmask();
        noteListening();
        first.resolve(where);
      },
      failed(error, version) {
        notStarted(error, worker.id);
        if (version !== VERSION && hasStarted && listening() === 0) giveUp(error);
      },
      ownKey(event) {
        for (const each of workers) each.tell({ type: 'own-key', event });
      },
      spoilsCache: () => warnOfSpoiltCache(log),
      exited(code, signal) {
        remove(worker);
        if (closing) return;
        first.reject(new PrivatemodeError('internal', 'the first worker ended before it listened'));
        const isLast = fd !== undefined && worker.listens() && listening() === 0;
        const restartInMs = isLast ? undefined : replace(bornAt);
        const fields = { worker: worker.id, code, signal, restartInMs };
        const what = worker.listens()
          ? 'A worker ended, its streams are lost'
          : 'A worker ended before it listened';
        log.error(fields, what);
        if (isLast) giveUp(socketClosed());
      },
      notForked(cause) {
        remove(worker);
        notStarted(forkFailed(cause), worker.id);
        if (!closing) replace(bornAt);
      },
    });
    workers.add(worker);
    setUmask();
    unread.add(worker.read);
    void worker.read.then(() => unread.delete(worker.read));
  }

  /** Takes a worker that has ended out of the table. */
  function remove(worker: ForkedWorker): void {
    workers.delete(worker);
    setUmask();
    noteListening();
    const last = worker.last();
    if (last !== undefined) deps.workerEnded?.(last);
  }

  cluster.setupPrimary({ serialization: 'advanced' });
  if (isSea()) {
    // A single executable is its own script, and Node names it once more in front of a worker's flags. So the
    // first of the program's flags takes the place of the script. If there is none, because the environment
    // sets everything, `--workers` takes it.
    const [exec = `--workers=${count}`, ...args] = process.argv.slice(2);
    cluster.setupPrimary({ exec, args });
  }
  for (let i = 0; i < count; i++) fork();
  const { url, port } = await first.promise.catch((error: unknown) => {
    stopForking();
    for (const worker of workers) worker.kill();
    throw error;
  });

  return {
    url,
    port,
    sessionChanged(): void {
      for (const worker of workers) worker.sendNews();
    },
    async collect(withMetrics) {
      await Promise.all([...workers].map((worker) => worker.collect(withMetrics)));
      // Not of a worker that ended meanwhile: `workerEnded` got what it sent last.
      return [...workers].flatMap(({ last }) => last() ?? []);
    },
    listening,
    // Each worker reports its own.
    events: () => 0,
    certificateEnds: () => undefined,
    clientsFile: () => undefined,
    reload(): void {
      for (const worker of workers) worker.tell({ type: 'reload' });
    },
    /** Has all workers announce that they stop. A worker that ends from now on is not replaced. */
    announceStop(): void {
      stopForking();
      for (const worker of workers) worker.tell({ type: 'announce-stop' });
    },
    endGrace(): void {
      for (const worker of workers) worker.tell({ type: 'end-grace' });
    },
    /** Drains all workers; resolves when all have exited and their last messages have been read. */
    async close(): Promise<void> {
      stopForking();
      await Promise.all([...workers].map((worker) => worker.drain()));
      await Promise.all(unread); // before the file of the receipts is closed
    },
  };
}

/**
 * The error for an inherited socket whose last worker has ended. node:cluster has closed its descriptor then,
 * and the next channel to a worker may get the number. The socket itself stays open in the service manager.
 */
function socketClosed(): PrivatemodeError {
  const message =
    'listening on the socket of the service manager: node:cluster closed it with the last worker';
  const remedy =
    'The service manager starts the proxy again on the same socket; the log says before this why the workers ended.';
  return new PrivatemodeError('listen_failed', message, { remedy });
}

/** Errors of the operating system that say that it has no room for another process. */
const NO_ROOM: readonly unknown[] = ['EAGAIN', 'ENOMEM', 'EMFILE', 'ENFILE'];

/** The error for a worker that Node could not fork. */
function forkFailed(thrown: unknown): PrivatemodeError {
  const { code = 'unknown' } = thrown as NodeJS.ErrnoException;
  const message = `a worker process cannot be started: ${code}`;
  if (!NO_ROOM.includes(code)) return new PrivatemodeError('internal', message, { cause: thrown });
  const remedy =
    'Raise the limit of processes (of a container: pids), of memory or of open files, or set a smaller --workers.';
  return new PrivatemodeError('resources_exhausted', message, { cause: thrown, remedy });
}
