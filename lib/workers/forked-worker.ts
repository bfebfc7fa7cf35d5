/** One worker process as the primary runs it: serves it from the session, and notices its end. */
import cluster, { type Worker } from 'node:cluster';
import { type Clock, deadline } from '../clock.ts';
import type { PrivatemodeError } from '../errors.ts';
import type { GatewayServerDeps } from '../gateway-server.ts';
import type { Conditions } from '../observe/conditions.ts';
import type { OwnKeyEvent } from '../observe/own-key.ts';
import type { Collected } from '../observe/watch-requests.ts';
import type { ReceiptLog } from '../receipts/receipt-log.ts';
import type { AttestedSession } from '../session/session.ts';
import { VERSION } from '../version.ts';
import type { News, Question, Start, ToPrimary, ToWorker } from './messages.ts';
import { epochToWire, errorFromWire, errorToWire } from './messages.ts';
import { Questions } from './questions.ts';
import { createGateKeeper } from './remote-gate.ts';

/** What workers are served from. */
export interface ForkedWorkerDeps
  extends Pick<GatewayServerDeps, 'key' | 'salt' | 'fd' | 'verification' | 'gate'>,
    Pick<Start, 'config' | 'authorities'> {
  readonly session: AttestedSession;
  readonly conditions: Pick<Conditions, 'set' | 'clear' | 'from'>;
  readonly observeOwnKey: (event: OwnKeyEvent) => void;
  readonly receipts?: Pick<ReceiptLog, 'instance' | 'add' | 'noteGap'> | undefined;
  readonly clock: Clock;
}

/** Called when something happens to a worker. At its end this is `exited` or `notForked`. */
interface WorkerEvents {
  /** It accepts connections now. */
  listening(where: { readonly url: string; readonly port: number }): void;
  /** It could not start, and ends. `version`: its own. */
  failed(error: PrivatemodeError, version: string): void;
  /** It reported something about a key of the operator. */
  ownKey(event: OwnKeyEvent): void;
  /** Prompts spoil the shared cache. */
  spoilsCache(): void;
  /** Its process has ended; its last messages may still come. */
  exited(code: number | null, signal: string | null): void;
  /** Node could not fork it: there is no process. */
  notForked(cause: Error): void;
}

export type ForkedWorker = ReturnType<typeof serveWorker>;

/** Sends a worker what it starts with, and serves it from then on. */
export function serveWorker(worker: Worker, deps: ForkedWorkerDeps, on: WorkerEvents) {
  const { session, receipts, gate, clock } = deps;
  const { workerCollect, workerLastMessages, workerPatience } = clock.times;
  const tell = (message: ToWorker): void => send(worker, message);
  const keeper = gate && createGateKeeper(gate, tell);
  const conditions = deps.conditions.from(`worker ${worker.id}`);
  const collections = new Questions<Collected | undefined>();
  /** Resolved at the end of the worker, also of one that Node could not fork. */
  const over = Promise.withResolvers<void>();
  /** Resolved once the last message of the worker has been read. */
  const read = Promise.withResolvers<void>();
  let listens = false;
  /** What `collect` got last. */
  let last: Collected | undefined;
  /** Whether the worker has sent everything it had to send. */
  let isDone = false;
  let isOver = false;
  let isForgotten = false;
  let cancelForget = (): void => {};

  async function answer(question: Question): Promise<void> {
    const { id } = question;
    try {
      const epoch = await (question.type === 'acquire'
        ? session.acquire(question)
        : session.renewAfterRejection(question.secretId));
      tell({ type: 'answer', id, epoch: epochToWire(epoch) });
    } catch (thrown) {
      tell({ type: 'answer', id, error: errorToWire(thrown) });
    }
  }

  async function sendVerification(id: number): Promise<void> {
    try {
      tell({ type: 'verification', id, answer: (await deps.verification?.()) ?? '' });
    } catch (thrown) {
      tell({ type: 'verification', id, error: errorToWire(thrown) });
    }
  }

  function receive(message: ToPrimary): void {
    switch (message.type) {
      case 'listening':
        listens = true;
        on.listening(message);
        break;
      case 'failed':
        on.failed(errorFromWire(message.error), message.version);
        break;
      case 'receipt':
        receipts?.add(message.receipt);
        break;
      case 'done':
        isDone = true;
        break;
      case 'spoils-cache':
        on.spoilsCache();
        break;
      case 'own-key':
        deps.observeOwnKey(message.event);
        on.ownKey(message.event);
        break;
      case 'condition':
        if (message.message === undefined) conditions.clear(message.id, message.options);
        else conditions.set(message.id, message.message, message.options);
        break;
      case 'collected':
        collections.receive(message.id, { answer: message.collected });
        break;
      case 'ask-verification':
        void sendVerification(message.id);
        break;
      case 'authenticated':
        session.authenticated(message.secretId);
        break;
      case 'acquire':
      case 'renew':
        void answer(message);
        break;
      case 'enter':
      case 'leave-queue':
      case 'release':
        keeper?.receive(message);
        break;
      default:
        message satisfies never;
    }
  }

  function forget(): void {
    if (isForgotten) return;
    isForgotten = true;
    cancelForget();
    keeper?.close();
    conditions.gone();
    // Nobody has the receipts that it did not send. Its exit code does not tell: a channel may fail.
    if (listens && !isDone) receipts?.noteGap();
    read.resolve();
  }

  function end(): void {
    isOver = true;
    // Node emits no 'disconnect' for a worker that dies while a connection is being handed to it.
    if (!isForgotten) cancelForget = clock.after(workerLastMessages, forget, 'waiting');
    over.resolve();
  }

  const kill = (): unknown => worker.process.kill('SIGKILL');

  tell({
    type: 'start',
    version: VERSION,
    config: deps.config,
    authorities: deps.authorities,
    sharedSalt: deps.salt.shared,
    fd: deps.fd,
    receiptInstance: receipts?.instance,
    gated: gate !== undefined,
    news: newsOf(deps),
  });
  worker.on('message', receive);
  // 'exit' alone is not enough: it may come before the last messages of the worker.
  worker.once('disconnect', forget);
  worker.once('exit', (code, signal) => {
    end();
    on.exited(code, signal);
  });
  worker.on('error', (error) => {
    if (worker.process.pid !== undefined || isOver) return; // 'exit' reports its end
    // There is no process, so Node emits no 'exit', and may keep the worker in its table.
    end();
    delete cluster.workers?.[worker.id];
    on.notForked(error);
  });

  return {
    id: worker.id,
    /** Whether the worker accepts connections, or did until its end; before that it starts. */
    listens: (): boolean => listens,
    last: (): Collected | undefined => last,
    read: read.promise,
    tell,
    sendNews: (): void => tell({ type: 'news', news: newsOf(deps) }),
    /** If the worker does not respond in time, `last` stays. */
    async collect(withMetrics: boolean): Promise<void> {
      const ask = (id: number): void => tell({ type: 'collect', id, withMetrics });
      const collected = await collections.ask(ask, deadline(clock, workerCollect)).catch(() => undefined);
      if (collected !== undefined) last = { ...last, ...collected };
    },
    kill,
    /** Lets the streams of the worker finish. Resolves when it has exited. */
    async drain(): Promise<void> {
      const spare = clock.after(deps.config.shutdownGrace + workerPatience, kill, 'waiting');
      tell({ type: 'drain' });
      await over.promise;
      spare();
    },
  };
}

function newsOf({ session, key }: Pick<ForkedWorkerDeps, 'session' | 'key'>): News {
  const epoch = session.current();
  const { error, ...facts } = session.facts();
  const [configuredKey, keyOrigin] = [key.value(), key.origin?.()];
  const told = { ...facts, error: error && errorToWire(error) };
  return { epoch: epoch && epochToWire(epoch), facts: told, configuredKey, keyOrigin };
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
