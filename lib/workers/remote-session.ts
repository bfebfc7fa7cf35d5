/**
 * The session as a worker sees it: uses the epoch that the primary sent, and asks the primary for everything
 * else.
 */
import { type Clock, presentOf } from '../clock.ts';
import { isUsable } from '../session/lifetimes.ts';
import type { Epoch, Session } from '../session/session.ts';
import { standingOf } from '../session/standing.ts';
import {
  type Authenticated,
  epochFromWire,
  errorFromWire,
  type News,
  type Question,
  type SessionNews,
} from './messages.ts';
import { Questions } from './questions.ts';

/**
 * The worker's half of the session. It uses an unexpired epoch without asking anybody. For everything that
 * needs the session itself (no epoch yet, a client's key, a rejected secret) it asks the primary over `send`,
 * which answers in its own time. `receive` takes in the messages of the primary.
 */
export function createRemoteSession(
  first: News,
  send: (message: Question | Authenticated) => void,
  clock: Pick<Clock, 'now' | 'monotonic' | 'times'>,
) {
  const questions = new Questions<Epoch>();
  let news = first; // its key bytes are zeroed
  let epoch = first.epoch && epochFromWire(first.epoch);

  const current = () => (epoch !== undefined && isUsable(epoch, presentOf(clock)) ? epoch : undefined);

  const session: Session = {
    current,
    async acquire({ offeredKey, timeoutMs, signal }) {
      signal?.throwIfAborted();
      const ask = (id: number): void => send({ type: 'acquire', id, offeredKey, timeoutMs });
      const ready = current();
      if (ready === undefined) return questions.ask(ask, signal); // the time limit travels with the question
      // The primary has no key to renew with but those that requests bring. Nobody waits for this renewal.
      const isMissed = news.facts.key === 'awaited' && offeredKey !== undefined;
      if (isMissed && clock.now() >= ready.renewAt) questions.ask(ask).catch(() => {});
      return ready;
    },
    renewAfterRejection: (secretId) => questions.ask((id) => send({ type: 'renew', id, secretId })),
    authenticated: (secretId) => send({ type: 'authenticated', secretId }),
    standing: () =>
      standingOf({ ...news.facts, error: news.facts.error && errorFromWire(news.facts.error) }, clock),
    close: () => questions.close(),
  };
  return {
    ...session,
    configuredKey: () => news.configuredKey,
    keyOrigin: () => news.keyOrigin,
    receive(message: SessionNews): void {
      if (message.type === 'news') {
        news = message.news;
        const next = news.epoch;
        if (next?.secretId === epoch?.secretId) next?.keyBytes.fill(0);
        else epoch = next && epochFromWire(next);
        return;
      }
      const { id } = message;
      questions.receive(id, 'error' in message ? message : { answer: epochFromWire(message.epoch) });
    },
  };
}
