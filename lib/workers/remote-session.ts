import { PrivatemodeError } from '../errors.ts';
import { systemClock } from '../session/clock.ts';
import { isUsable } from '../session/lifetimes.ts';
import type { Epoch, Session } from '../session/session.ts';
import { epochFromWire, errorFromWire, type Question, type SessionNews, type Standing } from './messages.ts';

/**
 * The worker's half of the session. An unexpired epoch is used without asking anybody; whatever needs the session itself
 * (no epoch yet, a client's key, a rejected secret) is asked of the primary over `send`, which answers in its own time;
 * `receive` takes in what it says.
 */
export function createRemoteSession(first: Standing, send: (question: Question) => void) {
  const questions = new Map<number, PromiseWithResolvers<Epoch>>();
  let nextId = 1;
  let standing = first; // its key bytes are zeroed
  let epoch = first.epoch && epochFromWire(first.epoch);

  const current = () => (epoch !== undefined && isUsable(epoch, systemClock) ? epoch : undefined);

  /** Asks, and waits as long as the primary takes: the time limit travels with the question. */
  function ask(question: (id: number) => Question, signal?: AbortSignal): Promise<Epoch> {
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

  const session: Session = {
    current,
    async acquire({ offeredKey, timeoutMs, signal }) {
      signal?.throwIfAborted();
      return current() ?? ask((id) => ({ type: 'acquire', id, offeredKey, timeoutMs }), signal);
    },
    renewAfterRejection: (secretId) => ask((id) => ({ type: 'renew', id, secretId })),
    state() {
      if (current() !== undefined) return 'ready';
      // The primary had an epoch when it said so, and its expiry is no event.
      if (standing.state === 'ready') return standing.lastError === undefined ? 'starting' : 'failing';
      return standing.state;
    },
    lastError: () => standing.lastError && errorFromWire(standing.lastError),
    close() {
      const ended = new PrivatemodeError('shutting_down', 'the proxy is shutting down');
      for (const { reject } of questions.values()) reject(ended);
    },
  };
  return {
    ...session,
    configuredKey: () => standing.configuredKey,
    keyOrigin: () => standing.keyOrigin,
    receive(message: SessionNews): void {
      if (message.type === 'standing') {
        standing = message.standing;
        const next = standing.epoch;
        if (next?.secretId === epoch?.secretId) next?.keyBytes.fill(0);
        else epoch = next && epochFromWire(next);
        return;
      }
      const question = questions.get(message.id); // undefined: nobody waits for it any more
      if ('error' in message) question?.reject(errorFromWire(message.error));
      else {
        const told = epochFromWire(message.epoch);
        question?.resolve(told);
      }
    },
  };
}
