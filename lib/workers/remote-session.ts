import { PrivatemodeError } from '../errors.ts';
import type { Epoch, Session } from '../session/session.ts';
import type { Standing, ToPrimary, ToWorker } from './messages.ts';
import { epochFromWire, errorFromWire } from './wire.ts';

/** A session that lives in another process: epochs are handed over, questions are asked. */
export interface RemoteSession extends Session {
  /** Takes in what the primary says about the session. */
  receive(message: Extract<ToWorker, { type: 'standing' | 'answer' }>): void;
  configuredKey(): string | undefined;
}

interface Question {
  readonly resolve: (epoch: Epoch) => void;
  readonly reject: (error: Error) => void;
}

/**
 * The worker's half of the session. An unexpired epoch is used without asking anybody; whatever needs the session itself
 * (no epoch yet, a client's key, a rejected secret) is asked of the primary over `send`, which answers in its own time.
 */
export function createRemoteSession(first: Standing, send: (message: ToPrimary) => void): RemoteSession {
  const questions = new Map<number, Question>();
  let nextId = 1;
  let standing = first;
  let epoch = first.epoch && epochFromWire(first.epoch);

  function current(): Epoch | undefined {
    return epoch !== undefined && Date.now() < epoch.expiresAt ? epoch : undefined;
  }

  /** Asks, and waits as long as the primary takes: the time limit travels with the question. */
  function ask(question: (id: number) => ToPrimary, signal?: AbortSignal): Promise<Epoch> {
    const id = nextId++;
    const { promise, resolve, reject } = Promise.withResolvers<Epoch>();
    const aborted = (): void => reject(signal?.reason);
    signal?.addEventListener('abort', aborted, { once: true });
    questions.set(id, { resolve, reject });
    send(question(id));
    return promise.finally(() => {
      questions.delete(id);
      signal?.removeEventListener('abort', aborted);
    });
  }

  return {
    current,
    async acquire({ offeredKey, timeoutMs, signal }) {
      signal?.throwIfAborted();
      const known = current();
      if (known !== undefined) return known;
      return ask((id) => ({ type: 'acquire', id, offeredKey, timeoutMs }), signal);
    },
    renewAfterRejection: (secretId) => ask((id) => ({ type: 'renew', id, secretId })),
    state: () => (current() === undefined ? standing.state : 'ready'),
    lastError: () => standing.lastError && errorFromWire(standing.lastError),
    configuredKey: () => standing.configuredKey,
    receive(message) {
      if (message.type === 'standing') {
        standing = message.standing;
        if (standing.epoch?.secretId !== epoch?.secretId) {
          epoch = standing.epoch && epochFromWire(standing.epoch);
        }
        return;
      }
      const question = questions.get(message.id);
      if (question === undefined) return;
      if ('epoch' in message) question.resolve(epochFromWire(message.epoch));
      else question.reject(errorFromWire(message.error));
    },
    close() {
      const ended = new PrivatemodeError('shutting_down', 'the proxy is shutting down');
      for (const { reject } of questions.values()) reject(ended);
    },
  };
}
