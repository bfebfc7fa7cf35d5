/**
 * Keeps one attested secret fresh, and gives it to requests. With a key of the operator it renews by itself;
 * without one, or `onDemand`, requests begin each attempt, with the key that they bring.
 */
import { Alarm, type Present, presentOf } from '../clock.ts';
import { PrivatemodeError } from '../errors.ts';
import type { Verdict } from '../verdict/verdict.ts';
import { type Attempt, createAttempts } from './attempts.ts';
import { createEpochMaker, type Epoch, type EpochDeps, type Made } from './epoch.ts';
import { failureMessage } from './events.ts';
import { type Standing, standingOf } from './standing.ts';
import {
  type Failure,
  type Happening,
  isHopeless,
  isInForce,
  isMarked,
  isOvertaken,
  isUsable,
  mayForce,
  newState,
  next,
  pauseAfter,
  problemOf,
  refusalOf,
  soonest,
} from './state.ts';

export type { Epoch } from './epoch.ts';

export interface AcquireOptions {
  /** The bearer token of the request, used for attestation only where no key is configured. */
  readonly offeredKey?: string | undefined;
  readonly timeoutMs: number;
  /**
   * While the service denies the secret: `early`: its epoch at once, without a turn to try it, since the
   * request asks again before it sends anything; `never`: no turn, since the request is not encrypted.
   */
  readonly trial?: 'early' | 'never' | undefined;
  /** Asked for its signal only if the request has to wait. */
  readonly waiter?: { readonly signal: AbortSignal } | undefined;
}

export interface Session {
  /** The epoch in force: it has its time, and the service has not denied its secret. */
  current(): Epoch | undefined;
  /**
   * The same, also if the service denies its secret: requests try it, so somebody must be there to bring
   * them.
   */
  held(): Epoch | undefined;
  /**
   * The epoch in force, or the next one. While the service denies the secret, one request at a time gets its
   * epoch, to try it. Never throws at once. Rejects with not_ready after `timeoutMs`, api_key_missing,
   * api_key_rejected, and the error for which the service is refused.
   */
  acquire(options: AcquireOptions): Epoch | Promise<Epoch>;
  /**
   * For a request that got "no secret for ID": marks the secret with that id, forces an attempt, at most one
   * in 10 s for all requests, and waits for the next epoch, by default 30 s. Rejects with secret_denied if
   * that secret was made a moment ago, or if the request has no good key to attest with; else as `acquire`.
   */
  renewAfterDenial(secretId: string, timeoutMs?: number, offeredKey?: string): Promise<Epoch>;
  /** A part of a response has authenticated under this secret, so the service knows it. */
  authenticated(secretId: string): void;
  standing(): Standing;
  /** Ends the attempts. Later requests fail with `reason`, by default an error of code shutting_down. */
  close(reason?: PrivatemodeError): void;
}

/** A session that attests. */
export interface AttestedSession extends Session {
  /** Begins the first attempt, where a key is configured. */
  start(): void;
  /** Every check of the last attestation and of its secret exchange, accepted or not. */
  lastVerdict(): Verdict | undefined;
  /** Clients should send no more requests here. Requests that come all the same are sent, until `close`. */
  announceEnd(): void;
  /** Replaces the configured key, and attests at once unless all is well. */
  updateConfiguredKey(apiKey: string): void;
}

export interface SessionDeps extends EpochDeps {
  /** Undefined: clients bring their own (docs/protocol/inference.md 9). */
  readonly apiKey: string | undefined;
  /** Host of the service, for messages. */
  readonly host?: string | undefined;
  /** Whether to renew only while requests come, as for a library that may be dropped without being closed. */
  readonly onDemand?: boolean | undefined;
  /** Whether requests share attempts: not in workers of Cloudflare, where each ends with its request. */
  readonly shares?: boolean | undefined;
  /** Called once, if nothing was accepted yet and waiting does not help (docs/states.md). */
  readonly onPermanent?: ((error: PrivatemodeError) => void) | undefined;
}

export function createSession(deps: SessionDeps): AttestedSession {
  const { clock, host = 'the remote', onDemand = false, shares = true, observe } = deps;
  const { times } = clock;
  const makeEpoch = createEpochMaker(deps);
  let state = newState(deps.manifests.kind === 'static');
  let configuredKey: string | undefined;
  let epoch: Epoch | undefined;
  let verdict: Verdict | undefined;
  let closed: PrivatemodeError | undefined;
  let hasReported = false;
  /** Wake the requests that wait: what they may get has changed. */
  const waiting = new Set<() => void>();
  /** When the next attempt is due: wall clock. */
  let due = Number.POSITIVE_INFINITY;
  /** When a request last got a denied secret to try: monotonic clock. */
  let triedAt = Number.NEGATIVE_INFINITY;
  const alarm = new Alarm(clock, () => {
    if (configuredKey !== undefined) attempts.begin(configuredKey);
  });
  const attempts = createAttempts(run, clock, shares);

  const present = (): Present => presentOf(clock);
  const current = (): Epoch | undefined => (isInForce(state, present()) ? epoch : undefined);

  function apply(happening: Happening): void {
    state = next(state, happening, present());
    wake();
  }

  function wake(): void {
    for (const each of waiting) each();
  }

  /** Without a key of the operator, or `onDemand`, there is no timer: requests find the session overdue. */
  function renewAt(time: number): void {
    due = time;
    if (configuredKey !== undefined && !onDemand) alarm.set(time);
  }

  async function run(attempt: Attempt): Promise<void> {
    alarm.cancel();
    const { signal } = attempt.abort;
    const accepted = (): void => {
      if (!signal.aborted) apply({ type: 'accepted' });
    };
    // While the key of a client waited for its turn, another one may have brought a secret.
    const isNeeded = configuredKey !== undefined || current() === undefined || clock.now() >= due;
    const made = isNeeded ? await makeEpoch({ apiKey: attempt.apiKey, signal, accepted }) : undefined;
    // An attempt that was given up has a successor, or the session has ended: it changes nothing any more.
    if (signal.aborted || closed !== undefined) return;
    if (made !== undefined) conclude(attempt, made);
    attempts.end(attempt);
    wake();
  }

  function conclude({ apiKey, began = 0 }: Attempt, made: Made): void {
    const isOld = isOvertaken(state, began, present());
    const isSilent = made.epoch === undefined && made.rejected === undefined;
    if (!isOld && !(isSilent && state.rejection)) verdict = made.verdict ?? verdict;
    if (made.epoch === undefined) fail(apiKey, began, made, isOld);
    if (made.epoch === undefined || isOld) return; // two keys attested at the same time
    epoch = made.epoch;
    attempts.praise(apiKey);
    const { key: _, ...term } = epoch;
    renewAt(term.renewAt);
    apply({ type: 'made', term });
    const { secretId, manifestSha256, expiresAt } = term;
    observe({ type: 'epoch', message: 'Secret updated successfully', secretId, manifestSha256, expiresAt });
  }

  function fail(apiKey: string, began: number, failure: Failure, isOld: boolean): void {
    const { error } = failure;
    const isTrusted = apiKey === configuredKey || attempts.hasAttested(apiKey);
    apply({ type: 'failed', failure, began, isTrusted });
    const isClients = error.blame === 'client' && configuredKey === undefined;
    if (isClients) attempts.refuse(apiKey, error);
    if (isClients || isOld) {
      observe({ type: 'offer-failed', message: 'The API key of a client did not attest', error });
      return;
    }
    const { pause, confirms } = pauseAfter(state, deps.random(), present());
    renewAt(clock.now() + pause);
    const permanent = epoch === undefined && !hasReported && isHopeless(state);
    hasReported ||= permanent;
    if (permanent) deps.onPermanent?.(refusalOf(state) ?? error);
    const retryIn = configuredKey === undefined || onDemand ? undefined : pause;
    observe({ type: 'update-failed', message: failureMessage(error, retryIn, confirms), error, permanent });
  }

  /** Why a request cannot attest with its key. */
  function refusalOfKey(apiKey: string | undefined): PrivatemodeError | undefined {
    if (apiKey === undefined)
      return new PrivatemodeError('api_key_missing', 'no API key is configured, and the request brings none');
    return configuredKey === undefined ? attempts.refusalOf(apiKey) : undefined;
  }

  /**
   * The renewal is overdue: a timer was late (the machine slept), or there is none. One runs at a time. In
   * the last fifth of the term, a key that has attested need not wait until strangers have tried theirs.
   */
  function renewOverdue({ attestedAt, expiresAt }: Epoch, apiKey: string | undefined): void {
    if (apiKey === undefined || closed !== undefined || refusalOfKey(apiKey) !== undefined) return;
    const isLate = clock.now() >= expiresAt - (expiresAt - attestedAt) / 5;
    const isFirst = isLate && attempts.hasRoom() && attempts.hasAttested(apiKey);
    if (attempts.count() > 0 && !isFirst) return;
    attempts.begin(apiKey);
    if (!shares) due = clock.now() + times.deniedPause; // nobody knows whether this attempt will end
  }

  /** Resolves at the next change, if `signal` is aborted, or after `ms`. */
  async function change(ms: number, signal: AbortSignal | undefined): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>();
    const wakeUp = (): void => resolve();
    waiting.add(wakeUp);
    signal?.addEventListener('abort', wakeUp);
    const cancel = clock.after(ms, wakeUp, 'waiting');
    await promise;
    cancel();
    signal?.removeEventListener('abort', wakeUp);
    waiting.delete(wakeUp);
  }

  /** The attempt that a request waits for, after the last one (`own`); undefined: none may begin yet. */
  function nextAttempt(apiKey: string, own: Attempt | undefined, isRefused: boolean): Attempt | undefined {
    const joined = own === undefined || own.isOver ? attempts.of(apiKey) : own;
    const now = clock.monotonic();
    if (joined !== undefined) {
      // While the service is refused, somebody on the way may hold an attempt back.
      if (!isRefused || now - (joined.began ?? now) < times.confirmAfter) return joined;
      attempts.pass(joined);
    } else if (clock.now() < due && now < soonest(state, present())) return undefined;
    return attempts.begin(apiKey);
  }

  /**
   * Waits for an epoch. `isDenied`: the request has tried the secret that the service denies. `begun`: the
   * attempt that its denial has forced.
   */
  async function nextEpoch(options: AcquireOptions, isDenied: boolean, begun?: Attempt): Promise<Epoch> {
    const { offeredKey, timeoutMs, waiter, trial } = options;
    const end = clock.monotonic() + timeoutMs;
    let own = begun;
    let patience: number | undefined;
    for (;;) {
      const usable = current();
      if (usable !== undefined) return usable;
      if (closed !== undefined) throw closed;
      if (waiter?.signal.aborted) {
        // A key whose client has left takes no turn of others.
        if (own !== undefined && own.began === undefined) attempts.giveUp('client', [own]);
        throw waiter.signal.reason;
      }
      const now = clock.monotonic();
      const isDeniedNow = isMarked(state, present());
      if (isDeniedNow && trial === 'early') return epoch as Epoch;
      const refusal = isDeniedNow ? undefined : refusalOf(state);
      if (now >= end) throw refusal ?? notReady(timeoutMs);
      const apiKey = configuredKey ?? offeredKey;
      const keyRefusal = refusalOfKey(apiKey);
      if (keyRefusal !== undefined && isDenied)
        throw secretDenied('and this request has no good key to attest with');
      if (keyRefusal !== undefined) throw keyRefusal;
      if (refusal === undefined) patience = undefined;
      if (apiKey !== undefined)
        own = nextAttempt(apiKey, own, refusal !== undefined && patience === undefined);
      const nextTry = isDeniedNow && !isDenied && trial !== 'never' ? triedAt + times.confirmAfter : end;
      if (now >= nextTry) {
        triedAt = now;
        return epoch as Epoch;
      }
      if (refusal !== undefined) {
        patience ??= now + (shares ? times.refusedWait : times.deniedWait);
        if (own === undefined || own.isOver || now >= patience) throw refusal;
      }
      const mustWait = apiKey !== undefined && (own === undefined || own.isOver);
      const begins = mustWait ? Math.min(soonest(state, present()), now + due - clock.now()) : end;
      await change(Math.min(end, patience ?? end, begins, nextTry) - now, waiter?.signal);
    }
  }

  const secretDenied = (why: string): PrivatemodeError =>
    new PrivatemodeError('secret_denied', `${host} denies a secret ${why}`);

  /** Clients get the code of a failed check only once the service is refused. */
  function notReady(waited: number): PrivatemodeError {
    const cause = problemOf(state);
    const why = cause === undefined ? '' : `: ${cause.message}`;
    const isRollout = cause?.code === 'manifest_mismatch' && !cause.detail?.newestMissing;
    const remedy = isRollout ? ROLLOUT_REMEDY : undefined;
    const message = `${host} was not verified within ${waited / 1000} s${why}`;
    return new PrivatemodeError('not_ready', message, { cause, remedy });
  }

  return {
    current,
    held: () => (state.term !== undefined && isUsable(state.term, present()) ? epoch : undefined),
    acquire(options) {
      const usable = current();
      if (usable === undefined) return nextEpoch(options, false);
      if (clock.now() >= due) renewOverdue(usable, configuredKey ?? options.offeredKey);
      return usable;
    },
    async renewAfterDenial(secretId, timeoutMs = times.deniedWait, offeredKey) {
      const usable = current();
      if (usable !== undefined && usable.secretId !== secretId) return usable;
      if (closed !== undefined) throw closed;
      const isForced = mayForce(state, present());
      let begun: Attempt | undefined;
      if (state.term?.secretId === secretId) {
        if (!isForced && state.isReplaced) throw secretDenied('that it was given a moment ago');
        const wasDenied = state.isDenied;
        apply({ type: 'denied', secretId });
        const apiKey = configuredKey ?? offeredKey;
        const message = 'The service does not know the secret any more';
        if (isForced || !wasDenied) observe({ type: 'secret-denied', message, secretId });
        if (isForced && apiKey !== undefined && refusalOfKey(apiKey) === undefined)
          begun = attempts.begin(apiKey);
      }
      return nextEpoch({ timeoutMs, offeredKey }, true, begun);
    },
    authenticated(secretId) {
      const wasDenied = state.isDenied;
      apply({ type: 'authenticated', secretId });
      const message = 'The service knows the secret after all';
      if (wasDenied && !state.isDenied) observe({ type: 'secret-known', message, secretId });
    },
    standing: () => standingOf(state, present()),
    lastVerdict: () => verdict,
    start() {
      if (deps.apiKey !== undefined) this.updateConfiguredKey(deps.apiKey);
    },
    announceEnd: () => apply({ type: 'ending' }),
    updateConfiguredKey(apiKey) {
      if (closed !== undefined) return;
      const isNeeded = attempts.count() > 0 || state.failures > 0 || current() === undefined;
      attempts.giveUp('API key');
      configuredKey = apiKey;
      apply({ type: 'key' });
      if (!isNeeded) renewAt(due);
      else if (shares) attempts.begin(apiKey); // else each request begins its own
    },
    close(reason = new PrivatemodeError('shutting_down', 'the proxy is shutting down')) {
      closed = reason;
      alarm.cancel();
      attempts.giveUp('session');
      apply({ type: 'ending' });
    },
  };
}

const ROLLOUT_REMEDY =
  'Try again in a moment; the service and the published manifest differ, as they do while a deployment is replaced.';
