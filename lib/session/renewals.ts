/**
 * Keeps the secret of a session fresh: has it renewed in time, and holds the newest epoch. Carries out what
 * lib/session/decide.ts decides.
 */

import { Alarm, pause, presentOf } from '../clock.ts';
import { asPrivatemodeError, type PrivatemodeError } from '../errors.ts';
import type { Verdict } from '../verdict/verdict.ts';
import { createClientKeys } from './client-keys.ts';
import { decide, type Happening } from './decide.ts';
import { createEpochMaker, type Epoch, type EpochDeps } from './epoch.ts';
import type { Observer } from './events.ts';
import { isRejected } from './refusal.ts';
import type { Requests } from './requests.ts';
import { hasKey, isOvertaken, newSession, type SessionState, secretInForce } from './state.ts';

export interface RenewalsDeps extends EpochDeps {
  /**
   * Called when nothing works any more and waiting does not help (docs/states.md). With a key that the
   * session holds, it is called once until a renewal succeeds or the key is replaced. With a key that a
   * client offers, it is called each time. The session goes on trying, slowly.
   */
  readonly onPermanent?: ((error: PrivatemodeError) => void) | undefined;
  /**
   * Whether to renew only while requests come. A session that nobody uses any more stops renewing, and its
   * next request begins a renewal. Default: the session always renews.
   */
  readonly onDemand?: boolean | undefined;
}

/** A renewal that runs. */
interface Renewal {
  readonly number: number;
  readonly abort: AbortController;
  /** How many signs of life it has given. */
  signs: number;
}

export interface Renewals {
  /** What the session knows now. */
  state(): SessionState;
  /** The epoch in force, which has not expired and is not suspended; undefined if there is none. */
  current(): Epoch | undefined;
  /** The epoch that was made last, even if it is not in force. */
  newest(): Epoch | undefined;
  /** Every check of the last attestation and of its secret exchange, accepted or not. */
  lastVerdict(): Verdict | undefined;
  /** Takes in what happened, and does what follows from it. */
  dispatch(happening: Happening): void;
  /** Replaces the key. Gives up a renewal that runs with the old key, and begins one at once if needed. */
  configure(apiKey: string): void;
  /**
   * Has a renewal run, and resolves at the next change. A renewal can be lost: workers of Cloudflare end all
   * that a request began when that request ends. Then another renewal begins. Rejects once `ended` is
   * aborted.
   */
  renewing(ended: AbortSignal): Promise<void>;
  /**
   * Makes an epoch with the key of a client, takes it into use, and keeps the key unless the session has one.
   * If the key of another client made an epoch while this one waited for its turn, it returns that epoch
   * instead. Throws what lib/session/client-keys.ts says.
   */
  offer(apiKey: string): Promise<Epoch>;
}

/** `closed`: aborted when the session ends. */
export function createRenewals(deps: RenewalsDeps, requests: Requests, closed: AbortSignal): Renewals {
  const { clock } = deps;
  let state = newSession(deps.manifests.kind);
  let heldKey = '';
  let newest: Epoch | undefined;
  let renewal: Renewal | undefined;
  let verdict: Verdict | undefined;
  const alarm = new Alarm(clock, () => {
    const rests = deps.onDemand && !requests.haveCome && !requests.areWaiting;
    requests.haveCome = false;
    dispatch({ type: rests ? 'rest' : 'due' });
  });

  /** Lets `decide` take in what happened, and carries out the effects. */
  function dispatch(happening: Happening): void {
    const { due } = state;
    const { state: next, effects } = decide(state, happening, presentOf(clock));
    state = next;
    if (!hasKey(state)) heldKey = '';
    if (next.due === undefined) alarm.cancel();
    else if (next.due !== due) alarm.set(next.due);
    for (const effect of effects) {
      if (effect.type === 'attest') renewal = attest(effect.number);
      else if (effect.type === 'abandon') {
        renewal?.abort.abort(effect.reason);
        renewal = undefined;
      } else if (effect.type === 'permanent') deps.onPermanent?.(effect.error);
      else if (effect.type === 'tell') deps.observe(effect.event);
      else requests.wake();
    }
  }

  /** Whether nothing was judged, so that an earlier rejection stays, in the state as in the last verdict. */
  const isSilence = ({ outcome }: Verdict): boolean =>
    outcome === 'unavailable' && isRejected(state.verdicts);

  const observe: Observer = (event) => {
    const refused =
      'rejection' in event ? event.rejection : event.type === 'secret-missing' ? event : undefined;
    if (refused && isOvertaken(state, refused.began, presentOf(clock))) return deps.observe(event);
    // What `attested` brings is accepted, but not whole: the checks of the secret follow.
    if ('verdict' in event && event.type !== 'attested' && !isSilence(event.verdict)) verdict = event.verdict;
    if (event.type === 'attested') dispatch({ type: 'judged', what: 'evidence', rejection: undefined });
    if (event.type === 'rejected') dispatch({ type: 'judged', what: 'evidence', rejection: event.rejection });
    if (event.type === 'secret-judged')
      dispatch({ type: 'judged', what: 'secret', rejection: event.rejection });
    deps.observe(event);
  };
  const makeEpoch = createEpochMaker({ ...deps, observe });

  function attest(number: number): Renewal {
    const abort = new AbortController();
    const { signal } = abort;
    const begun: Renewal = { number, abort, signs: 0 };
    const began = clock.monotonic();
    const make = async (): Promise<void> => {
      try {
        const epoch = await makeEpoch(heldKey, signal);
        // A renewal that was given up has a successor, or the session has ended. Its result changes nothing.
        if (!signal.aborted) use(epoch, number);
      } catch (thrown) {
        if (signal.aborted) return;
        renewal = undefined;
        const error = asPrivatemodeError(thrown);
        dispatch({ type: 'failed', number, began, error, random: deps.random() });
      } finally {
        abort.abort();
      }
    };
    const live = async (): Promise<void> => {
      for (; ; begun.signs++) await pause(clock, clock.times.signOfLife, signal);
    };
    void Promise.allSettled([make(), live()]);
    return begun;
  }

  function use(epoch: Epoch, number: number | undefined): void {
    newest = epoch;
    if (number !== undefined) renewal = undefined;
    dispatch({ type: 'made', number, secret: withoutKey(epoch) });
  }

  const current = (): Epoch | undefined => (secretInForce(state, presentOf(clock)) ? newest : undefined);

  /** The usable epoch, unless it is time to renew it. */
  function fresh(): Epoch | undefined {
    const usable = current();
    return usable !== undefined && clock.now() < usable.renewAt ? usable : undefined;
  }

  async function attestWith(apiKey: string): Promise<Epoch> {
    const known = fresh();
    if (known !== undefined) return known;
    let made: Epoch;
    try {
      made = await makeEpoch(apiKey, closed);
      closed.throwIfAborted();
    } catch (thrown) {
      const error = asPrivatemodeError(thrown);
      dispatch({ type: 'offer-failed', error });
      throw error;
    }
    const first = fresh();
    if (first !== undefined) return first;
    if (!hasKey(state)) heldKey = apiKey;
    use(made, undefined);
    return made;
  }

  async function renewing(ended: AbortSignal): Promise<void> {
    let isOver = false;
    const { changed, forget } = requests.change();
    const over = changed.then(() => {
      isOver = true;
    });
    try {
      for (;;) {
        dispatch({ type: 'awaited' });
        const watched = renewal;
        const signs = watched?.signs;
        await Promise.race([over, pause(clock, clock.times.lostAfter, ended)]);
        if (isOver) return;
        if (watched !== undefined && watched === renewal && watched.signs === signs) {
          dispatch({ type: 'lost', number: watched.number });
        }
      }
    } finally {
      forget();
    }
  }

  return {
    state: () => state,
    current,
    newest: () => newest,
    lastVerdict: () => verdict,
    dispatch,
    configure(apiKey) {
      heldKey = apiKey;
      dispatch({ type: 'configured' });
    },
    renewing,
    offer: createClientKeys({ attest: attestWith, clock }),
  };
}

/** The members of an epoch that the state of the session holds. The key is not among them. */
const withoutKey = ({
  secretId,
  manifestSha256,
  attestedAt,
  renewAt,
  expiresAt,
  expiresMonotonic,
}: Epoch) => ({
  secretId,
  manifestSha256,
  attestedAt,
  renewAt,
  expiresAt,
  expiresMonotonic,
});
