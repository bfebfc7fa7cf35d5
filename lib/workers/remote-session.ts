import { PrivatemodeError } from '../errors.ts';
import { systemClock } from '../session/clock.ts';
import { isUsable } from '../session/refresh.ts';
import type { Epoch, Session } from '../session/session.ts';
import { epochFromWire, errorFromWire, type Standing, type ToPrimary, type ToWorker } from './messages.ts';

/** A session that lives in another process: epochs are handed over, questions are asked. */
export interface RemoteSession extends Session {
  /** Takes in what the primary says about the session. */
  receive(message: Extract<ToWorker, { type: 'standing' | 'answer' }>): void;
  configuredKey(): string | undefined;
}

/**
 * The worker's half of the session. An unexpired epoch is used without asking anybody; whatever needs the session itself
 * (no epoch yet, a client's key, a rejected secret) is asked of the primary over `send`, which answers in its own time.
 */
export function createRemoteSession(first: Standing, send: (message: ToPrimary) => void): RemoteSession {
  const questions = new Map<number, PromiseWithResolvers<Epoch>>();
  let nextId = 1;
  let standing = withoutEpoch(first);
  let epoch = first.epoch && epochFromWire(first.epoch);

  function current(): Epoch | undefined {
    return epoch !== undefined && isUsable(epoch, systemClock) ? epoch : undefined;
  }

  /** Asks, and waits as long as the primary takes: the time limit travels with the question. */
  function ask(question: (id: number) => ToPrimary, signal?: AbortSignal): Promise<Epoch> {
    const id = nextId++;
    const answer = Promise.withResolvers<Epoch>();
    const aborted = (): void => answer.reject(signal?.reason);
    signal?.addEventListener('abort', aborted, { once: true });
    questions.set(id, answer);
    send(question(id));
    return answer.promise.finally(() => {
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
    state() {
      if (current() !== undefined) return 'ready';
      // The primary had an epoch when it said so, and its expiry is no event.
      if (standing.state === 'ready') return standing.lastError === undefined ? 'starting' : 'failing';
      return standing.state;
    },
    lastError: () => standing.lastError && errorFromWire(standing.lastError),
    configuredKey: () => standing.configuredKey,
    receive(message) {
      if (message.type === 'standing') {
        const next = message.standing.epoch;
        standing = withoutEpoch(message.standing);
        if (next?.secretId === epoch?.secretId) next?.keyBytes.fill(0);
        else epoch = next && epochFromWire(next);
        return;
      }
      const question = questions.get(message.id);
      if ('error' in message) question?.reject(errorFromWire(message.error));
      else if (question === undefined)
        message.epoch.keyBytes.fill(0); // nobody waits for it any more
      else question.resolve(epochFromWire(message.epoch));
    },
    close() {
      const ended = new PrivatemodeError('shutting_down', 'the proxy is shutting down');
      for (const { reject } of questions.values()) reject(ended);
    },
  };
}

/** The part of a standing that is kept; key bytes are not. */
const withoutEpoch = ({ epoch: _, ...rest }: Standing): Omit<Standing, 'epoch'> => rest;
