import cluster, { type Worker } from 'node:cluster';
import { isSea } from 'node:sea';
import { PrivatemodeError } from '../errors.ts';
import { type GatewayServerDeps, spoilWarning } from '../gateway-server.ts';
import type { Conditions } from '../observe/conditions.ts';
import type { OwnKeyEvent } from '../observe/own-key.ts';
import type { Collected } from '../observe/watch-requests.ts';
import type { AttestedSession } from '../session/session.ts';
import type { ReceiptLog } from '../transparency/receipt-log.ts';
import type { News, Question, ToPrimary, ToWorker } from './messages.ts';
import { epochToWire, errorFromWire, errorToWire } from './messages.ts';
import { Questions } from './questions.ts';
import { createGateKeeper } from './remote-gate.ts';

export type WorkerPool = Awaited<ReturnType<typeof startWorkers>>;

export interface WorkerPoolDeps
  extends Pick<GatewayServerDeps, 'key' | 'salt' | 'fd' | 'log' | 'verification' | 'gate'> {
  readonly count: number;
  readonly session: AttestedSession;
  readonly conditions: Pick<Conditions, 'from'>;
  readonly observeOwnKey: (event: OwnKeyEvent) => void;
  /** The umask of this process while a worker starts, which may be the one for which it creates a socket file. Undefined: its own. */
  readonly startingUmask?: number | undefined;
  readonly receipts?: Pick<ReceiptLog, 'instance' | 'add' | 'noteGap'> | undefined;
  /** ms that a worker gets beyond its own grace before it is killed. */
  readonly patience: number;
}

const RESTART_DELAY = { first: 100, longest: 10_000 };
/** A worker that lived this long was not broken from its start: the next one begins without delay. */
const HEALTHY_AFTER = 10_000;
const COLLECT_TIMEOUT = 1_000;
/** ms after the end of a worker within which its last messages are read. */
const LAST_MESSAGES = 1_000;

/**
 * Forks the workers, hands them epochs, answers their questions, and replaces those that die: a crash costs the streams
 * of one worker and nothing else. Resolves when the first worker listens. Throws the error that the first worker could not
 * start with.
 */
export async function startWorkers(deps: WorkerPoolDeps) {
  const { count, session, key, salt, fd, log, receipts, gate } = deps;
  const workers = new Set<Worker>();
  const collections = new Questions<Collected | undefined>();
  const latest = new WeakMap<Worker, Collected>();
  const first = Promise.withResolvers<{ url: string; port: number }>();
  const warnOfSpoiltCache = spoilWarning();
  const starting = new Set<Worker>();
  const ownUmask = process.umask(0o077); // to read it without setting it is deprecated
  let closing = false;
  let delay = 0;

  const setUmask = (): unknown =>
    process.umask(starting.size > 0 ? (deps.startingUmask ?? ownUmask) : ownUmask);
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

  function fork(): void {
    if (closing) return;
    const bornAt = performance.now();
    process.umask(ownUmask); // which the worker inherits
    const worker = cluster.fork();
    starting.add(worker);
    setUmask();
    const keeper = gate && createGateKeeper(gate, (message) => send(worker, message));
    const conditions = deps.conditions.from(`worker ${worker.id}`);
    workers.add(worker);
    worker.on('error', () => {}); // 'exit' reports its end
    send(worker, {
      type: 'start',
      sharedSalt: salt.shared,
      fd,
      receiptInstance: receipts?.instance,
      gated: gate !== undefined,
      news: news(),
    });
    worker.on('message', (message: ToPrimary) => {
      if (message.type === 'listening') {
        starting.delete(worker);
        setUmask();
        first.resolve(message);
      } else if (message.type === 'failed') first.reject(errorFromWire(message.error));
      else if (message.type === 'receipt') receipts?.add(message.receipt);
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
    // Not on 'exit' alone, which may come before the last of its messages.
    worker.once('disconnect', () => {
      keeper?.close();
      conditions.gone();
    });
    worker.once('exit', (code, signal) => {
      workers.delete(worker);
      starting.delete(worker);
      setUmask();
      // Node emits no 'disconnect' for a worker that dies while a connection is being handed to it.
      if (keeper !== undefined) setTimeout(keeper.close, LAST_MESSAGES).unref();
      if (code !== 0) receipts?.noteGap(); // of its running requests nobody has a receipt
      if (closing) return;
      first.reject(new PrivatemodeError('internal', 'the first worker ended before it listened'));
      const longer = Math.min(Math.max(2 * delay, RESTART_DELAY.first), RESTART_DELAY.longest);
      delay = performance.now() - bornAt > HEALTHY_AFTER ? 0 : longer;
      const fields = { worker: worker.id, code, signal, restartInMs: delay };
      log.error(fields, 'A worker ended, its streams are lost');
      setTimeout(fork, delay);
    });
  }

  /** What a worker that does not answer in time said last stands in: counters that are missing once look like a restart. */
  async function collectFrom(worker: Worker): Promise<Collected | undefined> {
    const ask = (id: number): void => send(worker, { type: 'collect', id });
    const collected = await collections.ask(ask, AbortSignal.timeout(COLLECT_TIMEOUT)).catch(() => undefined);
    if (collected !== undefined) latest.set(worker, collected);
    return latest.get(worker);
  }

  async function drain(worker: Worker): Promise<void> {
    const timer = setTimeout(() => worker.process.kill('SIGKILL'), deps.patience);
    send(worker, { type: 'drain' });
    await new Promise((resolve) => worker.once('exit', resolve));
    clearTimeout(timer);
  }

  cluster.setupPrimary({ serialization: 'advanced' });
  if (isSea()) {
    // A single executable is its own script, and Node names it once more in front of a worker's flags. In the place of the
    // script goes the first of the program's flags or, where all is set by the environment, the one that this stands for.
    const [exec = `--workers=${count}`, ...args] = process.argv.slice(2);
    cluster.setupPrimary({ exec, args });
  }
  for (let i = 0; i < count; i++) fork();
  const { url, port } = await first.promise.catch((error: unknown) => {
    closing = true; // nobody is left to replace what could not start
    for (const worker of workers) worker.process.kill('SIGKILL');
    throw error;
  });

  return {
    ...{ url, port },
    /** Sends the state of the session to all workers; to be called whenever that may have changed. */
    sessionChanged(): void {
      for (const worker of workers) send(worker, { type: 'news', news: news() });
    },
    /** The metrics and the traffic of every worker, at most a second later. */
    async collect(): Promise<readonly Collected[]> {
      const collected = await Promise.all([...workers].map(collectFrom));
      return collected.filter((each) => each !== undefined);
    },
    /** This process sends no streams. */
    chunks: () => 0,
    /** Each worker shows it. */
    certificateEnds: () => undefined,
    reload(): void {
      for (const worker of workers) send(worker, { type: 'reload' });
    },
    /** Has all workers tell that they stop. None that ends from now on is replaced. */
    announceStop(): void {
      closing = true;
      for (const worker of workers) send(worker, { type: 'announce-stop' });
    },
    /** Drains all workers; resolves when the last has exited. */
    async close(): Promise<void> {
      closing = true;
      await Promise.all([...workers].map(drain));
    },
  };
}

/**
 * Sends to a worker that may have died meanwhile; its 'exit' reports that. Cluster may put off the serialisation, and needs
 * the key bytes until then: they are zeroed afterwards, so every message has bytes of its own.
 */
function send(worker: Worker, message: ToWorker): void {
  const epoch = 'news' in message ? message.news.epoch : 'epoch' in message && message.epoch;
  const sent = (): void => {
    if (epoch) epoch.keyBytes.fill(0);
  };
  if (worker.isConnected()) worker.send(message, sent);
  else sent();
}
