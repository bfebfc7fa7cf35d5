/**
 * The worker processes as the primary runs them: forks them, serves them from its session, and replaces those
 * that die.
 */
import cluster, { type Worker } from 'node:cluster';
import { isSea } from 'node:sea';
import { PrivatemodeError } from '../errors.ts';
import { type GatewayServer, type GatewayServerDeps, spoilWarning } from '../gateway-server.ts';
import type { Conditions } from '../observe/conditions.ts';
import type { OwnKeyEvent } from '../observe/own-key.ts';
import type { Collected } from '../observe/watch-requests.ts';
import type { ReceiptLog } from '../receipts/receipt-log.ts';
import type { AttestedSession } from '../session/session.ts';
import { VERSION } from '../version.ts';
import type { News, Question, Start, ToPrimary, ToWorker } from './messages.ts';
import { epochToWire, errorFromWire, errorToWire } from './messages.ts';
import { watchMissingWorkers } from './missing-workers.ts';
import { Questions } from './questions.ts';
import { createGateKeeper } from './remote-gate.ts';

export interface WorkerPoolDeps
  extends Pick<GatewayServerDeps, 'key' | 'salt' | 'fd' | 'log' | 'verification' | 'gate'>,
    Pick<Start, 'config' | 'authorities'> {
  readonly session: AttestedSession;
  readonly conditions: Pick<Conditions, 'set' | 'clear' | 'from'>;
  readonly observeOwnKey: (event: OwnKeyEvent) => void;
  /** Called at the end of a worker with what it sent last. `collect` returns that no more. */
  readonly workerEnded?: ((last: Collected) => void) | undefined;
  /**
   * The umask of this process while a worker starts, because this process may create a socket file for that
   * worker. Undefined: its own umask.
   */
  readonly startingUmask?: number | undefined;
  readonly receipts?: Pick<ReceiptLog, 'instance' | 'add' | 'noteGap'> | undefined;
  /** Called when no worker can ever listen again; the process is expected to end. */
  readonly onPermanent?: ((error: PrivatemodeError) => void) | undefined;
  /** ms that a worker gets beyond its own grace before it is killed. */
  readonly patience: number;
}

interface Place {
  /** Whether the worker accepts connections; before that it starts. */
  listens: boolean;
  /** What `collect` got from the worker last. */
  last: Collected | undefined;
  /** Whether the worker has sent everything it had to send. */
  isDone: boolean;
  /** Resolved at the end of the worker, also of one that Node could not fork. */
  readonly over: PromiseWithResolvers<void>;
}

const RESTART_DELAY = { first: 100, longest: 10_000 };
/** ms. A worker that lived this long was not broken from its start, so the next one begins without delay. */
const HEALTHY_AFTER = 10_000;
const COLLECT_TIMEOUT = 1_000;
/** ms after the end of a worker within which its last messages are read. */
const LAST_MESSAGES = 1_000;

/**
 * Forks the workers, hands them epochs, answers their questions, and replaces those that die. A crash costs
 * the streams of one worker and nothing else. Resolves when the first worker listens. Throws the error
 * that kept the first worker from starting.
 */
export async function startWorkers(deps: WorkerPoolDeps): Promise<GatewayServer> {
  const { config, authorities, session, key, salt, fd, log, receipts, gate } = deps;
  const count = config.workers;
  const workers = new Map<Worker, Place>();
  const collections = new Questions<Collected | undefined>();
  const first = Promise.withResolvers<{ url: string; port: number }>();
  const warnOfSpoiltCache = spoilWarning();
  const missing = watchMissingWorkers(deps.conditions, count);
  const ownUmask = process.umask(0o077); // Node deprecates reading it without setting it
  /** For each worker whose last message has not been read: resolved once it has. */
  const unread = new Set<Promise<void>>();
  /** Timers of the next forks. */
  const waiting = new Set<NodeJS.Timeout>();
  let hasStarted = false;
  let closing = false;
  let delay = 0;

  const listening = (): number => [...workers.values()].filter(({ listens }) => listens).length;
  const setUmask = (): unknown =>
    process.umask(workers.size > listening() ? (deps.startingUmask ?? ownUmask) : ownUmask);
  setUmask();

  function news(): News {
    const epoch = session.current();
    const { error, ...facts } = session.facts();
    const [configuredKey, keyOrigin] = [key.value(), key.origin?.()];
    const told = { ...facts, error: error && errorToWire(error) };
    return { epoch: epoch && epochToWire(epoch), facts: told, configuredKey, keyOrigin };
  }

  async function answer(worker: Worker, question: Question): Promise<void> {
    const { id } = question;
    try {
      const epoch = await (question.type === 'acquire'
        ? session.acquire(question)
        : session.renewAfterRejection(question.secretId));
      send(worker, { type: 'answer', id, epoch: epochToWire(epoch) });
    } catch (thrown) {
      send(worker, { type: 'answer', id, error: errorToWire(thrown) });
    }
  }

  async function sendVerification(worker: Worker, id: number): Promise<void> {
    try {
      send(worker, { type: 'verification', id, answer: (await deps.verification?.()) ?? '' });
    } catch (thrown) {
      send(worker, { type: 'verification', id, error: errorToWire(thrown) });
    }
  }

  function noteListening(): void {
    if (hasStarted && !closing) missing.note(listening());
  }

  /** Reports why a worker did not start. If none has listened yet, the start of the proxy fails with that. */
  function notStarted(error: PrivatemodeError, worker?: Worker): void {
    first.reject(error);
    if (!hasStarted || closing) return;
    const { code, message: reason, remedy } = error;
    log.error({ worker: worker?.id, code, reason, remedy }, 'A worker could not start');
    missing.failed(error);
  }

  /** Forks another worker in place of one that was born at `bornAt`. Returns the ms until then. */
  function replace(bornAt: number): number {
    const longer = Math.min(Math.max(2 * delay, RESTART_DELAY.first), RESTART_DELAY.longest);
    delay = performance.now() - bornAt > HEALTHY_AFTER ? 0 : longer;
    const timer = setTimeout(() => {
      waiting.delete(timer);
      fork();
    }, delay);
    waiting.add(timer);
    return delay;
  }

  /** From now on no worker is replaced. */
  function stopForking(): void {
    closing = true;
    for (const timer of waiting) clearTimeout(timer);
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
    const bornAt = performance.now();
    process.umask(ownUmask); // the worker inherits it
    let worker: Worker;
    try {
      worker = cluster.fork();
    } catch (thrown) {
      setUmask();
      notStarted(notForked(thrown));
      replace(bornAt);
      return;
    }
    const place: Place = {
      ...{ listens: false, last: undefined, isDone: false },
      over: Promise.withResolvers(),
    };
    const read = Promise.withResolvers<void>();
    unread.add(read.promise);
    workers.set(worker, place);
    setUmask();
    const keeper = gate && createGateKeeper(gate, (message) => send(worker, message));
    const conditions = deps.conditions.from(`worker ${worker.id}`);
    send(worker, {
      type: 'start',
      version: VERSION,
      config,
      authorities,
      sharedSalt: salt.shared,
      fd,
      receiptInstance: receipts?.instance,
      gated: gate !== undefined,
      news: news(),
    });
    worker.on('message', (message: ToPrimary) => {
      if (message.type === 'listening') {
        place.listens = true;
        hasStarted = true;
        setUmask();
        noteListening();
        first.resolve(message);
      } else if (message.type === 'failed') {
        const error = errorFromWire(message.error);
        notStarted(error, worker);
        if (message.version !== VERSION && hasStarted && listening() === 0) giveUp(error);
      } else if (message.type === 'receipt') receipts?.add(message.receipt);
      else if (message.type === 'done') place.isDone = true;
      else if (message.type === 'spoils-cache') warnOfSpoiltCache(log);
      else if (message.type === 'own-key') deps.observeOwnKey(message.event);
      else if (message.type === 'condition') {
        if (message.message === undefined) conditions.clear(message.id, message.options);
        else conditions.set(message.id, message.message, message.options);
      } else if (message.type === 'collected') collections.receive(message.id, { answer: message.collected });
      else if (message.type === 'ask-verification') void sendVerification(worker, message.id);
      else if (message.type === 'authenticated') session.authenticated(message.secretId);
      else if (message.type === 'acquire' || message.type === 'renew') void answer(worker, message);
      else keeper?.receive(message);
    });
    let isForgotten = false;
    let lastMessages: NodeJS.Timeout | undefined;
    function forget(): void {
      if (isForgotten) return;
      isForgotten = true;
      clearTimeout(lastMessages);
      keeper?.close();
      conditions.gone();
      // Nobody has the receipts that it did not send. Its exit code does not tell: a channel may fail.
      if (place.listens && !place.isDone) receipts?.noteGap();
      unread.delete(read.promise);
      read.resolve();
    }
    // 'exit' alone is not enough: it may come before the last messages of the worker.
    worker.once('disconnect', forget);
    function over(): void {
      workers.delete(worker);
      setUmask();
      noteListening();
      if (place.last !== undefined) deps.workerEnded?.(place.last);
      // Node emits no 'disconnect' for a worker that dies while a connection is being handed to it.
      if (!isForgotten) lastMessages = setTimeout(forget, LAST_MESSAGES);
      place.over.resolve();
    }
    worker.once('exit', (code, signal) => {
      over();
      if (closing) return;
      first.reject(new PrivatemodeError('internal', 'the first worker ended before it listened'));
      const isLast = fd !== undefined && place.listens && listening() === 0;
      const restartInMs = isLast ? undefined : replace(bornAt);
      const fields = { worker: worker.id, code, signal, restartInMs };
      const what = place.listens
        ? 'A worker ended, its streams are lost'
        : 'A worker ended before it listened';
      log.error(fields, what);
      if (isLast) giveUp(socketClosed());
    });
    worker.on('error', (error) => {
      if (worker.process.pid !== undefined || !workers.has(worker)) return; // 'exit' reports its end
      // There is no process, so Node emits no 'exit', and may keep the worker in its table.
      over();
      delete cluster.workers?.[worker.id];
      notStarted(notForked(error), worker);
      if (!closing) replace(bornAt);
    });
  }

  /** If a worker does not respond in time, what it sent last stays. */
  async function collectFrom(worker: Worker, place: Place, withMetrics: boolean): Promise<void> {
    const ask = (id: number): void => send(worker, { type: 'collect', id, withMetrics });
    const collected = await collections.ask(ask, AbortSignal.timeout(COLLECT_TIMEOUT)).catch(() => undefined);
    if (collected !== undefined) place.last = { ...place.last, ...collected };
  }

  async function drain([worker, { over }]: readonly [Worker, Place]): Promise<void> {
    const timer = setTimeout(() => worker.process.kill('SIGKILL'), deps.patience);
    send(worker, { type: 'drain' });
    await over.promise;
    clearTimeout(timer);
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
    for (const worker of workers.keys()) worker.process.kill('SIGKILL');
    throw error;
  });

  return {
    ...{ url, port },
    sessionChanged(): void {
      for (const worker of workers.keys()) send(worker, { type: 'news', news: news() });
    },
    async collect(withMetrics) {
      await Promise.all([...workers].map(([worker, place]) => collectFrom(worker, place, withMetrics)));
      // Not of a worker that ended meanwhile: `workerEnded` got what it sent last.
      return [...workers.values()].flatMap(({ last }) => last ?? []);
    },
    listening,
    // Each worker reports its own.
    events: () => 0,
    certificateEnds: () => undefined,
    clientsFile: () => undefined,
    reload(): void {
      for (const worker of workers.keys()) send(worker, { type: 'reload' });
    },
    /** Has all workers announce that they stop. A worker that ends from now on is not replaced. */
    announceStop(): void {
      stopForking();
      for (const worker of workers.keys()) send(worker, { type: 'announce-stop' });
    },
    endGrace(): void {
      for (const worker of workers.keys()) send(worker, { type: 'end-grace' });
    },
    /** Drains all workers; resolves when all have exited and their last messages have been read. */
    async close(): Promise<void> {
      stopForking();
      await Promise.all([...workers].map(drain));
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
function notForked(thrown: unknown): PrivatemodeError {
  const { code = 'unknown' } = thrown as NodeJS.ErrnoException;
  const message = `a worker process cannot be started: ${code}`;
  if (!NO_ROOM.includes(code)) return new PrivatemodeError('internal', message, { cause: thrown });
  const remedy =
    'Raise the limit of processes (of a container: pids), of memory or of open files, or set a smaller --workers.';
  return new PrivatemodeError('resources_exhausted', message, { cause: thrown, remedy });
}

/**
 * Sends a message to a worker. If the worker has died meanwhile, its 'exit' reports that. Cluster may
 * serialise the message later, and needs the key bytes until then. They are zeroed afterwards, so every
 * message needs key bytes of its own.
 */
function send(worker: Worker, message: ToWorker): void {
  const epoch = 'news' in message ? message.news.epoch : 'epoch' in message && message.epoch;
  const sent = (): void => {
    if (epoch) epoch.keyBytes.fill(0);
  };
  if (worker.isConnected()) worker.send(message, sent);
  else sent();
}
