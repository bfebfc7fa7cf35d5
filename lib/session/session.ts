/**
 * Holds the current epoch, has it renewed in time, and lets requests wait for the next one. Carries out what
 * lib/session/decide.ts decides.
 */
import { asPrivatemodeError, PrivatemodeError } from '../errors.ts';
import type { Verdict } from '../verdict/verdict.ts';
import { createClientKeys } from './client-keys.ts';
import { Alarm, type Moment, momentOf, pause } from './clock.ts';
import { decide, type Happening } from './decide.ts';
import { createEpochMaker, type Epoch, type EpochDeps } from './epoch.ts';
import type { Observer } from './events.ts';
import { confirmAt, isOwnFault, isRejected } from './refusal.ts';
import {
  errorAfterDenial,
  hideVerdict,
  notReady,
  notReplaced,
  permanentAt,
  refusalOf,
} from './request-errors.ts';
import { type SessionFacts, type Standing, standingOf } from './standing.ts';
import { factsOf, forcedBy, isOvertaken, newSession, secretInForce, suspendedSecret } from './state.ts';

export type { Epoch } from './epoch.ts';

export interface Session {
  /** The epoch in force, which has not expired and is not suspended; undefined if there is none. */
  current(): Epoch | undefined;
  /**
   * Waits for an unexpired epoch. `offeredKey`: the bearer token of the request, used for attestation only
   * where no key is configured. Throws not_ready after `timeoutMs`, api_key_missing, api_key_rejected, the
   * last permanent cause, and the error for which the service is refused (lib/session/refusal.ts).
   */
  acquire(options: {
    offeredKey?: string | undefined;
    timeoutMs: number;
    signal?: AbortSignal;
  }): Promise<Epoch>;
  /**
   * For a request that got "no secret for ID": waits for the epoch that replaces the one with that secret id.
   * Bounded in time (`timeoutMs`, by default 30 s) and rate; all callers share one renewal. If the renewal
   * fails or takes longer, the secret is suspended: no epoch is in force until the next verdict that accepts
   * the service, or until a response authenticates under the secret. Throws secret_denied if the denied
   * secret was made a moment ago, api_key_rejected, not_ready, and the error for which the service is
   * refused.
   */
  renewAfterRejection(secretId: string, timeoutMs?: number): Promise<Epoch>;
  /**
   * Reports that a response has authenticated under this secret. Ends a suspension, unless the last verdict
   * rejected the service.
   */
  authenticated(secretId: string): void;
  /**
   * The state by name, at this moment. Its error: why the service is refused, else the last failure since the
   * last success.
   */
  standing(): Standing;
  /** Ends the renewals. Later requests fail with `reason`, by default an error of code shutting_down. */
  close(reason?: PrivatemodeError): void;
}

/** A session that attests by itself. A worker's session gets its epochs from the primary instead. */
export interface AttestedSession extends Session {
  /** Begins the first attestation, where a key is configured. To be called once. */
  start(): void;
  /** The facts of the session without the time, for a process that has a clock of its own. */
  facts(): SessionFacts;
  /** Every check of the last attestation and of its secret exchange, accepted or not. */
  lastVerdict(): Verdict | undefined;
  /**
   * The proxy was told to stop: clients should send no more requests here. Requests that come all the same
   * are sent as before, until `close`.
   */
  announceEnd(): void;
  /** Replaces the configured key, and forgets a permanent cause. A failing session tries again at once. */
  updateConfiguredKey(apiKey: string): void;
}

export interface SessionDeps extends EpochDeps {
  /** Undefined: clients bring their own (docs/protocol/inference.md 9). */
  readonly apiKey: string | undefined;
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
  /** Host of the service, for messages. */
  readonly host?: string | undefined;
}

/** ms that a request waits for the next secret after the service denied its secret, by default. */
const FORCED_TIMEOUT = 30_000;
/**
 * ms that a request waits for a renewal while the service is refused: the service may have been repaired.
 * With `onDemand` it waits for FORCED_TIMEOUT, because the renewal may end with it.
 */
const REFUSED_PATIENCE = 5_000;

/**
 * ms between two signs of life of a renewal, and ms without one after which it counts as lost. After a pause
 * of the process no renewal counts as lost, because the timer of its sign of life is due first.
 */
const SIGN_OF_LIFE = 1_000;
const LOST_AFTER = 3_000;

/** A renewal that runs. */
interface Renewal {
  readonly number: number;
  readonly abort: AbortController;
  /** How many signs of life it has given. */
  signs: number;
}

/**
 * Makes a session. It holds one epoch at a time and keeps it fresh: from `start` on with the configured key,
 * or as soon as a client brings a key.
 */
export function createSession(deps: SessionDeps): AttestedSession {
  const { clock, host = 'the remote', onDemand = false } = deps;
  let state = newSession(deps.manifests.kind);
  let heldKey = '';
  let newest: Epoch | undefined;
  let renewal: Renewal | undefined;
  let verdict: Verdict | undefined;
  /**
   * Wake the requests that wait for a change. Each waits for a promise of its own, because in workers of
   * Cloudflare a promise fails once the request that made it has ended.
   */
  let waiting = new Set<() => void>();
  const closing = new AbortController();
  const closed = closing.signal;
  /** Whether a request has come since the alarm last began a renewal. */
  let isUsed = false;
  const alarm = new Alarm(clock, () => {
    const rests = onDemand && !isUsed && waiting.size === 0;
    isUsed = false;
    dispatch({ type: rests ? 'rest' : 'due' });
  });

  const at = (): Moment => momentOf(clock);

  /** Lets `decide` take in what happened, and carries out the effects. */
  function dispatch(happening: Happening): void {
    const { due } = state;
    const { state: next, effects } = decide(state, happening, at());
    state = next;
    if (!hasKey()) heldKey = '';
    if (next.due === undefined) alarm.cancel();
    else if (next.due !== due) alarm.set(next.due);
    for (const effect of effects) {
      if (effect.type === 'attest') renewal = attest(effect.number);
      else if (effect.type === 'abandon') {
        renewal?.abort.abort(effect.reason);
        renewal = undefined;
      } else if (effect.type === 'permanent') deps.onPermanent?.(effect.error);
      else if (effect.type === 'tell') deps.observe(effect.event);
      else {
        const woken = waiting;
        waiting = new Set();
        for (const wake of woken) wake();
      }
    }
  }

  /** Whether nothing was judged, so that an earlier rejection stays, in the state as in the last verdict. */
  const isSilence = ({ outcome }: Verdict): boolean =>
    outcome === 'unavailable' && isRejected(state.verdicts);

  const observe: Observer = (event) => {
    const rejection = 'rejection' in event ? event.rejection : undefined;
    if (rejection && isOvertaken(state, rejection.began, at())) return deps.observe(event);
    if ('verdict' in event && !isSilence(event.verdict)) verdict = event.verdict;
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
      for (; ; begun.signs++) await pause(clock, SIGN_OF_LIFE, signal);
    };
    void Promise.allSettled([make(), live()]);
    return begun;
  }

  function use(epoch: Epoch, number: number | undefined): void {
    newest = epoch;
    if (number !== undefined) renewal = undefined;
    dispatch({ type: 'made', number, secret: withoutKey(epoch) });
  }

  const current = (): Epoch | undefined => (secretInForce(state, at()) ? newest : undefined);
  /** The usable epoch, unless it is time to renew it. */
  function fresh(): Epoch | undefined {
    const usable = current();
    return usable !== undefined && clock.now() < usable.renewAt ? usable : undefined;
  }

  const offer = createClientKeys({ attest: attestWith, clock });

  /**
   * Makes an epoch with the key of a client, takes it into use, and keeps the key unless the session has one.
   * If the key of another client made an epoch while this one waited for its turn, it returns that epoch
   * instead.
   */
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
    if (!hasKey()) heldKey = apiKey;
    use(made, undefined);
    return made;
  }

  const hasKey = (): boolean => state.key !== 'awaited';

  /** `changed` resolves at the next change. Whoever no longer waits for it calls `forget`. */
  function change(): { readonly changed: Promise<void>; readonly forget: () => void } {
    const { promise, resolve } = Promise.withResolvers<void>();
    waiting.add(resolve);
    return { changed: promise, forget: () => waiting.delete(resolve) };
  }

  /**
   * Has a renewal run, and resolves at the next change. A renewal can be lost: workers of Cloudflare end all
   * that a request began when that request ends. Then another renewal begins.
   */
  async function renewing(ended: AbortSignal): Promise<void> {
    let isOver = false;
    const { changed, forget } = change();
    const over = changed.then(() => {
      isOver = true;
    });
    try {
      for (;;) {
        dispatch({ type: 'awaited' });
        const watched = renewal;
        const signs = watched?.signs;
        await Promise.race([over, pause(clock, LOST_AFTER, ended)]);
        if (isOver) return;
        if (watched !== undefined && watched === renewal && watched.signs === signs) {
          deps.collateral.abandonFetches();
          dispatch({ type: 'lost', number: watched.number });
        }
      }
    } finally {
      forget();
    }
  }

  /**
   * Starts what may bring the next epoch, and resolves when it is worth looking again. Without `ended` nobody
   * waits, and it may resolve at once. Throws api_key_missing, and the error with which an attestation with
   * the offered key failed.
   */
  async function nextChance(offeredKey: string | undefined, ended?: AbortSignal): Promise<void> {
    if (hasKey()) return ended === undefined ? dispatch({ type: 'awaited' }) : renewing(ended);
    if (offeredKey === undefined) {
      throw new PrivatemodeError('api_key_missing', 'no API key is configured, and the request brings none');
    }
    const began = clock.monotonic();
    const { changed, forget } = change();
    try {
      await Promise.race([changed, offer(offeredKey)]);
    } catch (thrown) {
      const error = asPrivatemodeError(thrown);
      if (error.blame === 'client' || closed.aborted) throw error;
      const due = confirmAt(state.verdicts);
      if (due === undefined || began >= due) throw refusalOf(state) ?? hideVerdict(host, error);
      await Promise.race([changed, pause(clock, Math.max(0, due - clock.monotonic()), ended ?? closed)]);
    } finally {
      forget();
    }
  }

  async function nextEpoch(offeredKey: string | undefined, ended: AbortSignal): Promise<Epoch> {
    for (let waited = false; ; ) {
      const epoch = current();
      if (epoch !== undefined) return epoch;
      closed.throwIfAborted();
      const permanent = permanentAt(state, clock.now(), onDemand);
      if (permanent !== undefined) {
        // A failure of the service may be over, so this request lets a renewal begin. A fault of the manifest
        // stays.
        if (!isOwnFault(permanent.code, state.kind)) dispatch({ type: 'awaited' });
        throw permanent;
      }
      const refused = refusalOf(state);
      if (refused !== undefined && waited) throw refused;
      const chance = nextChance(offeredKey, ended);
      chance.catch(() => {}); // it also rejects once nobody waits for it
      if (refused === undefined) await chance;
      else {
        if (hasKey() && renewal === undefined) throw refused; // the last renewal was a moment ago
        waited = true;
        await Promise.race([chance, pause(clock, onDemand ? FORCED_TIMEOUT : REFUSED_PATIENCE, ended)]);
      }
      ended.throwIfAborted();
    }
  }

  /**
   * Resolves with what `work` resolves with. After `ms` it rejects with the error for which the service is
   * refused, or else with not_ready. If the request is aborted, it rejects with that reason. `work` gets a
   * signal that is aborted at the end.
   */
  async function within(
    ms: number,
    request: AbortSignal | undefined,
    work: (ended: AbortSignal) => Promise<Epoch>,
  ): Promise<Epoch> {
    const done = new AbortController();
    const ended = request === undefined ? done.signal : AbortSignal.any([done.signal, request]);
    const late = pause(clock, ms, ended, 'waiting').then(() => {
      throw refusalOf(state) ?? notReady(host, `was not verified within ${ms / 1000} s`, state.outage?.error);
    });
    try {
      return await Promise.race([work(ended), late]);
    } finally {
      done.abort();
    }
  }

  /**
   * The suspended epoch, unless the last verdict rejected the service. Its secret came from an accepted
   * verdict, and a failed renewal without a verdict does not undo that. A response that authenticates under
   * it ends the suspension.
   */
  const worthTrying = (): Epoch | undefined =>
    !isRejected(state.verdicts) && suspendedSecret(state, at()) ? newest : undefined;

  /**
   * Waits for the renewal after a denial. If the renewal fails, the secret is suspended. If the last verdict
   * rejected the service and there is a key, the next verdict then decides, as at a start. Otherwise this
   * throws.
   */
  async function renewedAfterDenial(ended: AbortSignal): Promise<Epoch> {
    if (renewal === undefined) throw new PrivatemodeError('not_ready', 'no API key to attest with');
    while (renewal !== undefined) await renewing(ended); // each change, until no renewal runs
    closed.throwIfAborted();
    ended.throwIfAborted();
    const { error } = state.outage ?? {};
    if (error === undefined) return newest as Epoch; // it was made
    if (isRejected(state.verdicts) && hasKey()) return nextEpoch(undefined, ended);
    throw error;
  }

  return {
    start() {
      if (deps.apiKey !== undefined) configure(deps.apiKey);
    },
    current,
    async acquire({ offeredKey, timeoutMs, signal }) {
      isUsed = true;
      const inForce = current();
      const ready = inForce ?? worthTrying();
      if (ready === undefined) return within(timeoutMs, signal, (ended) => nextEpoch(offeredKey, ended));
      // The renewal may be overdue: a timer may be late (the machine slept), and without a kept key there is
      // none. Nobody waits for this renewal, so after a failure it has the time that the state says.
      const isDue = clock.now() >= (state.due ?? ready.renewAt) || inForce === undefined;
      if (isDue && !closed.aborted) nextChance(offeredKey).catch(() => {});
      return ready;
    },
    async renewAfterRejection(secretId, timeoutMs = FORCED_TIMEOUT) {
      const epoch = current();
      if (epoch !== undefined && epoch.secretId !== secretId) return epoch;
      closed.throwIfAborted();
      const forced = forcedBy(state, at());
      dispatch({ type: 'denied', secretId });
      if (forced === 'failed') throw refusalOf(state) ?? notReplaced(host, state.outage?.error);
      if (forced === 'made')
        throw new PrivatemodeError('secret_denied', `${host} denies a secret that it was given a moment ago`);
      try {
        return await within(timeoutMs, undefined, renewedAfterDenial);
      } catch (thrown) {
        closed.throwIfAborted();
        dispatch({ type: 'overdue', secretId });
        throw errorAfterDenial(host, thrown);
      }
    },
    authenticated: (secretId) => dispatch({ type: 'authenticated', secretId }),
    facts: () => factsOf(state),
    standing: () => standingOf(factsOf(state), clock),
    announceEnd: () => dispatch({ type: 'ending' }),
    lastVerdict: () => verdict,
    updateConfiguredKey: configure,
    close(reason = new PrivatemodeError('shutting_down', 'the proxy is shutting down')) {
      closing.abort(reason);
      dispatch({ type: 'closed', reason });
    },
  };

  /** Replaces the key. Gives up a renewal that runs with the old key, and begins one at once if needed. */
  function configure(apiKey: string): void {
    heldKey = apiKey;
    dispatch({ type: 'configured' });
  }
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
  ...{ secretId, manifestSha256, attestedAt, renewAt, expiresAt, expiresMonotonic },
});
