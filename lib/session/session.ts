/**
 * Keeps one attested secret fresh, and gives the secret to requests. With an API key of the operator, the
 * session renews the secret on its own. Otherwise, or with `onDemand`, only a request makes it do so.
 */
import { Alarm, type Present, presentOf } from '../clock.ts';
import { PrivatemodeError } from '../errors.ts';
import type { Verdict } from '../verdict/verdict.ts';
import { type Attempt, createAttempts } from './attempts.ts';
import { createEpochMaker, type Epoch, type EpochDeps, type Made } from './epoch.ts';
import { failureMessage, standingOf } from './standing.ts';
import * as states from './state.ts';

export type { Epoch } from './epoch.ts';

export interface AcquireOptions {
  /** The bearer token of the request, which is used for attestation only if no API key is configured. */
  readonly offeredKey?: string | undefined;
  readonly timeoutMs: number;
  /**
   * While the service denies the secret, a request waits until it may try the secret. `early`: the request
   * gets the epoch at once, because it asks again before sending anything. `never`: the request may not try
   * the secret, because the request is not encrypted.
   */
  readonly trial?: 'early' | 'never' | undefined;
  /** The signal that ends the wait. Only a waiting request reads it: reading may create the signal. */
  readonly waiter?: { readonly signal: AbortSignal } | undefined;
}

export interface SessionDeps extends EpochDeps {
  readonly host?: string | undefined; // the host name of the service, for messages
  /** Whether to renew only while requests come. A library may be dropped without being closed. */
  readonly onDemand?: boolean | undefined;
  /** Whether requests share attempts. In Cloudflare's workers, an attempt ends with its request. */
  readonly shares?: boolean | undefined;
  /** Called once if waiting does not help and there has been no secret yet (docs/operating.md). */
  readonly onPermanent?: ((error: PrivatemodeError) => void) | undefined;
}

export type AttestedSession = ReturnType<typeof createSession>;

/** The part of a session that requests use. */
export type Session = Omit<AttestedSession, 'lastVerdict' | 'announceEnd' | 'updateConfiguredKey'>;

export function createSession(deps: SessionDeps) {
  const { clock, host = 'the remote', onDemand = false, shares = true, observe } = deps;
  const { times } = clock;
  const makeEpoch = createEpochMaker(deps, () => apply({ type: 'accepted' }));
  let state = states.newState(deps.manifests.kind === 'static');
  let epoch: Epoch | undefined;
  let verdict: Verdict | undefined;
  let closed: PrivatemodeError | undefined;
  let hasReported = false;
  /** Functions that wake the waiting requests after each change of the session. */
  const waiting = new Set<() => void>();
  let due = Number.POSITIVE_INFINITY; // when the next attempt is due (wall clock)
  let triedAt = Number.NEGATIVE_INFINITY; // when a request last got a denied secret to try (monotonic clock)
  const attempts = createAttempts(run, clock, shares);
  /** Begins an attempt when one is due. The alarm is set only if an API key is configured. */
  const alarm = new Alarm(clock, () => attempts.begin(attempts.keyOf(undefined) as string));

  const present = (): Present => presentOf(clock);
  const current = (): Epoch | undefined => (states.isInForce(state, present()) ? epoch : undefined);
  const held = (): Epoch | undefined => (states.isHeld(state, present()) ? epoch : undefined);

  function apply(happening: states.Happening): void {
    state = states.next(state, happening, present());
    wake();
  }

  function wake(): void {
    for (const each of waiting) each();
  }

  /** Sets when to renew. Without the operator's key or with `onDemand`, requests check `due`, not a timer. */
  function renewAt(time: number): void {
    due = time;
    if (state.hasKey && !onDemand) alarm.set(time);
  }

  async function run(attempt: Attempt): Promise<void> {
    alarm.cancel();
    const { signal } = attempt.abort;
    // While the key of this client waited, an attempt with the key of another client may have made a secret.
    const isNeeded = state.hasKey || current() === undefined || clock.now() >= due;
    const made = isNeeded ? await makeEpoch(attempt.apiKey, signal) : undefined;
    // The result is dropped if the session has ended or a later attempt has replaced this attempt.
    if (signal.aborted || closed !== undefined) return;
    if (made !== undefined) conclude(attempt, made);
    attempts.end(attempt);
    wake();
  }

  function conclude({ apiKey, began = 0 }: Attempt, made: Made) {
    const isOld = states.isOvertaken(state, began, present());
    const isSilent = made.epoch === undefined && made.rejected === undefined;
    if (!isOld && !(isSilent && state.rejection)) verdict = made.verdict ?? verdict;
    if (made.epoch === undefined) return fail(apiKey, began, made, isOld);
    if (isOld) return; // an attempt with another key has meanwhile made a secret
    epoch = made.epoch;
    attempts.praise(apiKey);
    const { key: _, exchange: __, ...term } = epoch;
    renewAt(term.renewAt);
    apply({ type: 'made', term });
    const { secretId, expiresAt } = term;
    const message = 'Secret updated successfully';
    observe({ type: 'epoch', message, secretId, expiresAt });
  }

  function fail(apiKey: string, began: number, failure: states.Failure, isOld: boolean) {
    const { error } = failure;
    apply({ type: 'failed', ...failure, began, isTrusted: attempts.isTrusted(apiKey) });
    const isClients = error.blame === 'client' && !state.hasKey;
    if (isClients) attempts.refuse(apiKey, error);
    if (isClients || isOld)
      return observe({ type: 'offer-failed', message: 'The API key of a client did not attest', error });
    const pause = states.pauseAfter(state, deps.random(), present());
    renewAt(clock.now() + pause);
    const permanent = epoch === undefined && !hasReported && states.isHopeless(state);
    hasReported ||= permanent;
    if (permanent) deps.onPermanent?.(states.refusalOf(state) ?? error);
    const retryIn = !state.hasKey || onDemand ? undefined : pause;
    observe({ type: 'update-failed', message: failureMessage(error, retryIn), error, permanent });
  }

  /** Begins an overdue renewal: the timer was late because the machine slept, or there is no timer. */
  function renewOverdue({ attestedAt, expiresAt }: Epoch, offeredKey: string | undefined): void {
    const apiKey = attempts.keyOf(offeredKey);
    if (typeof apiKey !== 'string' || closed !== undefined) return;
    const isLate = clock.now() >= expiresAt - (expiresAt - attestedAt) / 5; // the last fifth of the term
    if (!attempts.mayRenew(apiKey, isLate)) return;
    attempts.begin(apiKey);
    if (!shares) due = clock.now() + times.deniedPause; // the attempt may end without a report
  }

  /** Resolves at the next change of the session, when `signal` is aborted, or after `ms`. */
  async function change(ms: number, signal: AbortSignal | undefined): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>();
    const wakeUp = (): void => resolve();
    waiting.add(wakeUp);
    signal?.addEventListener('abort', wakeUp);
    const cancel = clock.after(Math.max(0, ms), wakeUp, 'waiting'); // negative if the time has passed
    await promise;
    cancel();
    signal?.removeEventListener('abort', wakeUp);
    waiting.delete(wakeUp);
  }

  /** The attempt to wait for, or undefined if none may begin. `own`: the last attempt of the request. */
  function nextAttempt(apiKey: string, own: Attempt | undefined, isRefused: boolean): Attempt | undefined {
    const joined = own === undefined || own.isOver ? attempts.of(apiKey) : own;
    const now = clock.monotonic();
    if (joined !== undefined) {
      // While the service is refused, somebody on the network may delay an attempt, so a new one begins.
      if (!isRefused || now - (joined.began ?? now) < times.confirmAfter) return joined;
      attempts.pass(joined);
    } else if (clock.now() < due && now < states.soonest(state, present())) return undefined;
    return attempts.begin(apiKey);
  }

  /**
   * Waits for an epoch. `isDenied`: this request tried the secret, and the service denied the secret.
   * `begun`: the attempt that the denial forced.
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
        // The client has disconnected, so its attempt must not take the turn of another key's attempt.
        if (own !== undefined && own.began === undefined) attempts.giveUp([own]);
        throw waiter.signal.reason;
      }
      const now = clock.monotonic();
      const denied = state.isDenied ? held() : undefined;
      if (denied !== undefined && trial === 'early') return denied;
      const refusal = denied === undefined ? states.refusalOf(state) : undefined;
      if (now >= end) throw refusal ?? notReady(timeoutMs);
      const apiKey = attempts.keyOf(offeredKey);
      if (typeof apiKey !== 'string')
        throw isDenied ? secretDenied('and this request has no good key to attest with') : (apiKey ?? NO_KEY);
      if (refusal === undefined) patience = undefined;
      own = nextAttempt(apiKey, own, refusal !== undefined && patience === undefined);
      const mayTry = denied !== undefined && !isDenied && trial !== 'never';
      const nextTry = mayTry ? triedAt + times.confirmAfter : end;
      if (denied !== undefined && now >= nextTry) {
        triedAt = now;
        return denied;
      }
      const isOver = own === undefined || own.isOver;
      if (refusal !== undefined) {
        patience ??= now + (shares ? times.refusedWait : times.deniedWait);
        if (isOver || now >= patience) throw refusal;
      }
      const begins = isOver ? Math.min(states.soonest(state, present()), now + due - clock.now()) : end;
      await change(Math.min(end, patience ?? end, begins, nextTry) - now, waiter?.signal);
    }
  }

  const secretDenied = (why: string): PrivatemodeError =>
    new PrivatemodeError('secret_denied', `${host} denies a secret ${why}`);

  /** The code is not_ready: clients get the code of a failed check only once the service is refused. */
  function notReady(waited: number): PrivatemodeError {
    const cause = states.problemOf(state);
    const why = cause === undefined ? '' : `: ${cause.message}`;
    return new PrivatemodeError('not_ready', `${host} was not verified within ${waited / 1000} s${why}`, {
      cause,
    });
  }

  return {
    /** The epoch in force, whose secret has not expired and is not denied by the service. */
    current,
    /** The unexpired epoch, even if its secret is denied, because some request has to try the secret. */
    held,
    /**
     * Returns the epoch in force, or waits for the next one. While the service denies the secret, one request
     * at a time gets the epoch, to try the secret. Never throws synchronously. Rejects with not_ready after
     * `timeoutMs`. Also rejects with api_key_missing, with api_key_rejected, or with the error for which the
     * service is refused.
     */
    acquire(options: AcquireOptions): Epoch | Promise<Epoch> {
      const usable = current();
      if (usable === undefined) return nextEpoch(options, false);
      if (clock.now() >= due) renewOverdue(usable, options.offeredKey);
      return usable;
    },
    /**
     * Called for a request to which the service answered "no secret for ID". Marks the secret with this id as
     * denied, and waits for the next epoch, by default 30 s. Forces an attempt. All requests together force
     * at most one attempt in 10 s. Rejects with secret_denied if the secret has just replaced a denied secret
     * or the request has no good key to attest with. For all other reasons, rejects as `acquire` does.
     */
    async renewAfterDenial(secretId: string, timeoutMs = times.deniedWait, offeredKey?: string) {
      const usable = current();
      if (usable !== undefined && usable.secretId !== secretId) return usable;
      if (closed !== undefined) throw closed;
      let begun: Attempt | undefined;
      if (state.term?.secretId === secretId) {
        if (states.isFresh(state, secretId, present())) throw secretDenied('that it was given a moment ago');
        const isForced = states.mayForce(state, present());
        const wasDenied = state.isDenied;
        apply({ type: 'denied', secretId });
        const message = 'The service does not know the secret any more';
        if (isForced || !wasDenied) observe({ type: 'secret-denied', message, secretId });
        const apiKey = attempts.keyOf(offeredKey);
        if (isForced && typeof apiKey === 'string') begun = attempts.begin(apiKey);
      }
      return nextEpoch({ timeoutMs, offeredKey }, true, begun);
    },
    /** Notes that a response authenticated under the secret, so the service knows the secret. */
    authenticated(secretId: string): void {
      const wasDenied = state.isDenied;
      apply({ type: 'authenticated', secretId });
      const message = 'The service knows the secret after all';
      if (wasDenied && !state.isDenied) observe({ type: 'secret-known', message, secretId });
    },
    standing: () => standingOf(state, present()),
    /** The verdict of the last attestation and its secret exchange: every check, passed or failed. */
    lastVerdict: () => verdict,
    /** Tells clients to send no more requests to this proxy. Until `close`, requests are still accepted. */
    announceEnd: () => apply({ type: 'ending' }),
    /**
     * Sets the operator's API key. Attests at once, unless a secret is in force and no attempt is open or has
     * failed. Without the operator's key, clients bring their own keys (docs/protocol/inference.md 9).
     */
    updateConfiguredKey(apiKey: string | undefined): void {
      if (closed !== undefined || apiKey === undefined) return;
      const isNeeded = attempts.configure(apiKey) || state.failures > 0 || current() === undefined;
      apply({ type: 'key' });
      if (!isNeeded) renewAt(due);
      else if (shares) attempts.begin(apiKey); // otherwise each request begins its own attempt
    },
    /** Ends all attempts. Later requests fail with `reason`, by default with the code shutting_down. */
    close(reason = new PrivatemodeError('shutting_down', 'the proxy is shutting down')): void {
      closed = reason;
      alarm.cancel();
      attempts.giveUp();
      apply({ type: 'ending' });
    },
  };
}

const NO_KEY = new PrivatemodeError(
  'api_key_missing',
  'no API key is configured, and the request brings none',
);
