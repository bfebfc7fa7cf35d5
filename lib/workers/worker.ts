/** Runs one worker process: it serves the applications, and leaves the session to the primary. */
import cluster from 'node:cluster';
import { on } from 'node:events';
import type { Clock } from '../clock.ts';
import { PrivatemodeError } from '../errors.ts';
import {
  bufferedBytesOf,
  type GatewayServer,
  type GatewayServerDeps,
  startGatewayServer,
} from '../gateway-server.ts';
import { createOutbound } from '../network/outbound.ts';
import type { Environment } from '../network/trust-store.ts';
import { createCounters } from '../observe/counters.ts';
import { createLogger, type LogOutput } from '../observe/log.ts';
import { watchRequests } from '../observe/watch-requests.ts';
import { VERSION } from '../version.ts';
import { errorToWire, type Start, type ToPrimary, type ToWorker } from './messages.ts';
import { Questions } from './questions.ts';
import { createRemoteGate } from './remote-gate.ts';
import { createOwnKeyReports } from './remote-own-key.ts';
import { createRemoteSession } from './remote-session.ts';

/** Sends to the primary. Calls `written` once the message is on its way, or lost: see 'disconnect'. */
function send(message: ToPrimary, written = (): void => {}): void {
  if (process.connected) process.send?.(message, undefined, {}, written);
  else written();
}

/**
 * Runs one of several processes behind one port: the whole application side, and nothing of the session. Its
 * settings come from the primary, because the files that they name may have changed since the proxy started.
 * Runs until the primary sends `drain` or is gone. Resolves with the exit code.
 */
export async function runWorker(stderr: LogOutput, env: Environment, clock: Clock): Promise<number> {
  // Signals go to the whole group; the primary decides what they mean.
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.on(signal, () => {});

  const { promise: ended, resolve: end } = Promise.withResolvers<number>();
  // Keeps the messages that come while nobody reads them. The first one is `start`.
  const inbox = on(process, 'message') as AsyncIterableIterator<[ToWorker]>;
  const start = (await inbox.next()).value[0] as Start;
  process.once('disconnect', () => end(1));
  const opened = new AsyncDisposableStack();
  try {
    if (start.version !== VERSION) throw otherVersion(start.version);
    await serve(start, { opened, inbox, end, stderr, env, clock });
  } catch (thrown) {
    send({ type: 'failed', version: VERSION, error: errorToWire(thrown) });
    end(1);
  }
  const code = await ended;
  await opened.disposeAsync();
  // Messages that still wait for room in the channel would be lost when it closes: receipts, token counts.
  await new Promise<void>((written) => send({ type: 'done' }, written));
  // node:cluster ends the process with 0 when the channel closes, and the channel alone keeps it alive.
  process.once('exit', () => {
    process.exitCode = code;
  });
  if (process.connected) process.disconnect?.();
  return code;
}

/**
 * The error for a primary of another version: the program was replaced on disk while it ran. Nothing but
 * `version` of its messages can be relied on.
 */
function otherVersion(version: string): PrivatemodeError {
  const message = `listening in a new worker: the program on disk is v${VERSION}, and the running one v${version}`;
  const remedy = 'Restart the proxy; workers of the running version cannot be started any more.';
  return new PrivatemodeError('listen_failed', message, { remedy });
}

interface WorkerParts {
  /** The parts to close at the end, in the reverse order. */
  readonly opened: AsyncDisposableStack;
  readonly inbox: AsyncIterableIterator<[ToWorker]>;
  /** Called with the exit code when the primary drains this worker. */
  readonly end: (code: number) => void;
  readonly stderr: LogOutput;
  readonly env: Environment;
  readonly clock: Clock;
}

/** Serves the applications as `start` says, and reads further messages. Resolves once it listens. */
async function serve(start: Start, { opened, inbox, end, stderr, env, clock }: WorkerParts): Promise<void> {
  const { config } = start;
  const log = createLogger({ format: config.logFormat, level: config.logLevel, output: stderr });
  const outbound = createOutbound(env, {
    connectTimeout: config.connectTimeout,
    clock,
    authorities: start.authorities,
  });
  opened.defer(() => outbound.close());
  const gate = start.gated ? createRemoteGate(send) : undefined;
  opened.defer(() => gate?.close());
  const session = createRemoteSession(start.news, send, clock);
  opened.defer(() => session.close());
  const ownKeys = createOwnKeyReports((event) => send({ type: 'own-key', event }));
  const counters = createCounters();
  let service: GatewayServer | undefined;
  opened.defer(() => service?.close());
  let announced = false;
  const watch =
    (config.adminAddress ?? config.metricsAddress) &&
    (await watchRequests({
      clock,
      counters,
      events: () => service?.events() ?? 0,
      protection: () => undefined, // the primary shows it
      certificateEnds: () => service?.certificateEnds(),
      serverAddress: config.apiEndpoint.host,
      maxBufferedBytes: bufferedBytesOf(config),
      clients: config.clients !== undefined,
    }));
  const collect = async (id: number, withMetrics: boolean): Promise<void> => {
    const report = await watch?.collect(withMetrics);
    const collected = report && { ...report, clientsFile: service?.clientsFile() };
    send({ type: 'collected', id, collected });
  };
  const documents = new Questions<string>();
  const receive = async (): Promise<void> => {
    for await (const [message] of inbox) {
      switch (message.type) {
        case 'news':
        case 'answer':
          session.receive(message);
          ownKeys.forget(); // the news may bring another key
          service?.sessionChanged();
          break;
        case 'verification':
          documents.receive(message.id, message);
          break;
        case 'entered':
          gate?.receive(message);
          break;
        case 'collect':
          void collect(message.id, message.withMetrics);
          break;
        case 'own-key':
          ownKeys.reported(message.event);
          break;
        case 'reload':
          service?.reload();
          break;
        case 'announce-stop':
          announced = true;
          service?.announceStop();
          break;
        case 'drain':
          end(0);
          break;
        case 'end-grace':
          service?.endGrace();
          break;
        case 'start': // it comes once, and has been read
          break;
        default:
          message satisfies never;
      }
    }
  };
  void receive();

  const instance = start.receiptInstance;
  const receipts: GatewayServerDeps['receipts'] =
    instance === undefined ? undefined : { instance, add: (receipt) => send({ type: 'receipt', receipt }) };
  service = await startGatewayServer(config, {
    clock,
    session,
    outbound,
    conditions: {
      set: (id, message, options) => send({ type: 'condition', id, message, options }),
      clear: (id, options) => send({ type: 'condition', id, options }),
    },
    observeOwnKey: ownKeys.observe,
    metrics: { counters, observe: watch?.observe ?? (() => {}) },
    receipts,
    log: log.child({ worker: cluster.worker?.id }),
    // The worker asks the primary each time, because the primary knows the verdict and what is in force at
    // that moment.
    verification: config.exposeVerification
      ? () => documents.ask((id) => send({ type: 'ask-verification', id }))
      : undefined,
    key: { value: session.configuredKey, origin: session.keyOrigin },
    salt: { shared: start.sharedSalt, onSpoilt: () => send({ type: 'spoils-cache' }) },
    fd: start.fd,
    gate,
  });
  if (announced) service.announceStop(); // the primary said so while this worker was starting
  send({ type: 'listening', url: service.url, port: service.port });
}
