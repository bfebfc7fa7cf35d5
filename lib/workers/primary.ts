import cluster, { type Worker } from 'node:cluster';
import { isSea } from 'node:sea';
import { PrivatemodeError } from '../errors.ts';
import type { Logger } from '../observe/log.ts';
import type { AttestedSession } from '../session/session.ts';
import type { Standing, ToPrimary, ToWorker } from './messages.ts';
import { epochToWire, errorFromWire, errorToWire } from './wire.ts';

export interface WorkerPool {
  readonly url: string;
  readonly port: number;
  /** Tells all workers what the session stands at; to be called whenever that may have changed. */
  announce(): void;
  /** The metrics of every worker that answers within a second. */
  collect(): Promise<readonly (readonly object[])[]>;
  reload(): void;
  /** Drains all workers; resolves when the last has exited. */
  close(): Promise<void>;
}

export interface WorkerPoolOptions {
  readonly count: number;
  readonly session: AttestedSession;
  readonly configuredKey: () => string | undefined;
  readonly sharedSalt: string | undefined;
  readonly fd: number | undefined;
  readonly log: Logger;
  /** ms that a worker gets beyond its own grace before it is killed. */
  readonly patience: number;
}

const RESTART_DELAY = { first: 100, longest: 10_000 };
/** A worker that lived this long was not broken from its start: the next one begins without delay. */
const HEALTHY_AFTER = 10_000;
const COLLECT_TIMEOUT = 1_000;

/**
 * Forks the workers, hands them epochs, answers their questions, and replaces those that die: a crash costs the streams
 * of one worker and nothing else. Resolves when the first worker listens. Throws what the first worker could not start with.
 */
export async function startWorkers(options: WorkerPoolOptions): Promise<WorkerPool> {
  const { count, session, log } = options;
  cluster.setupPrimary({ serialization: 'advanced' });
  const workers = new Set<Worker>();
  const collections = new Map<number, (metrics: readonly object[]) => void>();
  const {
    promise: listening,
    resolve: listens,
    reject: failed,
  } = Promise.withResolvers<{ url: string; port: number }>();
  let nextCollection = 1;
  let closing = false;
  let delay = 0;

  // A worker may die between the question and the sending; its 'exit' tells. Key bytes are needed until the message has
  // been serialised, which cluster may put off: they are zeroed when it has, so every message has bytes of its own.
  const tell = (worker: Worker, message: ToWorker): void => {
    const sent = (): void => {
      keyBytesOf(message)?.fill(0);
    };
    if (worker.isConnected()) worker.send(message, sent);
    else sent();
  };
  const standing = (): Standing => {
    const epoch = session.current();
    const error = session.lastError();
    return {
      epoch: epoch && epochToWire(epoch),
      state: session.state(),
      lastError: error && errorToWire(error),
      configuredKey: options.configuredKey(),
    };
  };

  async function answer(
    worker: Worker,
    message: Extract<ToPrimary, { type: 'acquire' | 'renew' }>,
  ): Promise<void> {
    const { id } = message;
    try {
      const epoch =
        message.type === 'acquire'
          ? await session.acquire({ offeredKey: message.offeredKey, timeoutMs: message.timeoutMs })
          : await session.renewAfterRejection(message.secretId);
      tell(worker, { type: 'answer', id, epoch: epochToWire(epoch) });
    } catch (thrown) {
      tell(worker, { type: 'answer', id, error: errorToWire(thrown) });
    }
  }

  function fork(): void {
    const bornAt = performance.now();
    const worker = cluster.fork();
    workers.add(worker);
    worker.on('error', () => {}); // its end is told by 'exit'
    tell(worker, { type: 'start', sharedSalt: options.sharedSalt, fd: options.fd, standing: standing() });
    worker.on('message', (message: ToPrimary) => {
      switch (message.type) {
        case 'listening':
          return listens(message);
        case 'failed':
          return failed(errorFromWire(message.error));
        case 'acquire':
        case 'renew':
          return void answer(worker, message);
        case 'collected':
          return collections.get(message.id)?.(message.metrics);
      }
    });
    worker.once('exit', (code, signal) => {
      workers.delete(worker);
      if (closing) return;
      failed(new PrivatemodeError('internal', 'the first worker ended before it listened'));
      const lived = performance.now() - bornAt;
      delay =
        lived > HEALTHY_AFTER ? 0 : Math.min(Math.max(2 * delay, RESTART_DELAY.first), RESTART_DELAY.longest);
      log.error(
        { worker: worker.id, code, signal, restartInMs: delay },
        'A worker ended, its streams are lost',
      );
      setTimeout(() => {
        if (!closing) fork();
      }, delay);
    });
  }

  if (isSea()) cluster.setupPrimary(workerCommand(process.argv.slice(2), count));
  for (let i = 0; i < count; i++) fork();
  const { url, port } = await listening.catch((error: unknown) => {
    closing = true; // nobody is left to replace what could not start
    for (const worker of workers) worker.process.kill('SIGKILL');
    throw error;
  });

  return {
    url,
    port,
    announce() {
      for (const worker of workers) tell(worker, { type: 'standing', standing: standing() });
    },
    collect: () =>
      Promise.all(
        [...workers].map((worker) => {
          const id = nextCollection++;
          const { promise, resolve } = Promise.withResolvers<readonly object[]>();
          const timer = setTimeout(() => resolve([]), COLLECT_TIMEOUT);
          collections.set(id, resolve);
          tell(worker, { type: 'collect', id });
          return promise.finally(() => {
            clearTimeout(timer);
            collections.delete(id);
          });
        }),
      ),
    reload() {
      for (const worker of workers) tell(worker, { type: 'reload' });
    },
    async close() {
      closing = true;
      await Promise.all([...workers].map((worker) => ended(worker, tell, options.patience)));
    },
  };
}

function ended(
  worker: Worker,
  tell: (worker: Worker, message: ToWorker) => void,
  patience: number,
): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(() => worker.process.kill('SIGKILL'), patience);
    worker.once('exit', () => {
      clearTimeout(timer);
      resolve();
    });
    tell(worker, { type: 'drain' });
  });
}

/**
 * A single executable is its own script, and Node names it once more in front of a worker's flags. In the place of the
 * script goes the first of the program's flags instead or, where all is set by the environment, the one that this stands for.
 */
export function workerCommand(flags: readonly string[], count: number): { exec: string; args: string[] } {
  const [exec = `--workers=${count}`, ...args] = flags;
  return { exec, args };
}

function keyBytesOf(message: ToWorker): Uint8Array | undefined {
  if (message.type === 'answer') return 'epoch' in message ? message.epoch.keyBytes : undefined;
  return 'standing' in message ? message.standing.epoch?.keyBytes : undefined;
}
