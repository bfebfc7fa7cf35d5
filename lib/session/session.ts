import type { Verdict } from '../attestation/verify.ts';
import { asPrivatemodeError, PrivatemodeError } from '../errors.ts';
import { createClientKeys } from './client-keys.ts';
import { pause } from './clock.ts';
import { type Epoch, type Lifetimes, lifetimesOf } from './epoch.ts';
import type { Observer } from './events.ts';
import { createEpochRefresh } from './refresh.ts';
import { createRenewal, type RenewalDeps } from './renewal.ts';

export type { Epoch } from './epoch.ts';

export interface Session {
  /** The unexpired epoch, or undefined. */
  current(): Epoch | undefined;
  /**
   * Waits for an unexpired epoch. `offeredKey` is the bearer token of the request, used for attestation only
   * where no key is configured. Throws not_ready after `timeoutMs`, api_key_missing, api_key_rejected, or the
   * last permanent cause.
   */
  acquire(options: {
    offeredKey?: string | undefined;
    timeoutMs: number;
    signal?: AbortSignal;
  }): Promise<Epoch>;
  /** After "no secret for ID": replaces the epoch with that secret id. Bounded in time and rate; all callers share one renewal. */
  renewAfterRejection(secretId: string): Promise<Epoch>;
  state(): 'ready' | 'awaiting-key' | 'starting' | 'failing';
  lastError(): Error | undefined;
  close(): void;
}

/** A session that attests by itself, as opposed to one that is handed its epochs. */
export interface AttestedSession extends Session {
  /** Every check of the last attestation, accepted or not. */
  lastVerdict(): Verdict | undefined;
  /** The configured key was replaced; a permanent cause is forgotten, and a failing session tries at once. */
  updateConfiguredKey(apiKey: string): void;
}

export interface SessionDeps extends Omit<RenewalDeps, 'lifetimes' | 'random' | 'observe'> {
  /** Undefined: clients bring their own (docs/protocol/inference.md 9). */
  readonly apiKey: string | undefined;
  /**
   * Called when nothing works any more and waiting does not help: 401 on the configured key, a mismatch with a static
   * manifest, a manifest this version does not understand. Once with a key that is held, each time with one that a client
   * offers, and never while an epoch is unexpired. The session goes on trying, slowly.
   */
  readonly onPermanent?: ((error: PrivatemodeError) => void) | undefined;
  /** Default: nobody watches. */
  readonly observe?: Observer;
  /** Default: those that fit the real service. */
  readonly lifetimes?: Lifetimes | undefined;
  /** Default: Math.random. */
  readonly random?: () => number;
}

/** ms between two renewals that a rejection may force: anybody on the way can write its text, which is not authenticated. */
const FORCED_INTERVAL = 10_000;
/** ms that a request which saw its secret rejected waits for the next one. */
const FORCED_TIMEOUT = 30_000;

/** One epoch at a time, kept fresh. With a key configured the first attestation begins at once. */
export function createSession(deps: SessionDeps): AttestedSession {
  const { clock, random = Math.random, lifetimes = lifetimesOf() } = deps;
  const closing = new AbortController();
  const closed = closing.signal;
  let verdict: Verdict | undefined;
  let lastForced = Number.NEGATIVE_INFINITY;
  const observe: Observer = (event) => {
    if ('verdict' in event) verdict = event.verdict;
    deps.observe?.(event);
  };
  const onPermanent = (error: PrivatemodeError): void => deps.onPermanent?.(error);
  const renewal = createRenewal({ ...deps, random, lifetimes, observe });
  const refresh = createEpochRefresh({ renewal, clock, random, observe, onPermanent, closed });
  const clientKeys = createClientKeys({ attest: attestWith, clock });

  /** The epoch, unless it is time to renew it. */
  function fresh(): Epoch | undefined {
    const epoch = refresh.current();
    return epoch !== undefined && clock.now() < epoch.renewAt ? epoch : undefined;
  }

  /** Makes an epoch with the key of a client, unless that of another client did while this one waited for its turn. */
  async function attestWith(clientKey: string): Promise<Epoch> {
    const known = fresh();
    if (known !== undefined) return known;
    let made: Epoch;
    try {
      made = await renewal.renew(clientKey, closed);
      closed.throwIfAborted();
    } catch (thrown) {
      const error = asPrivatemodeError(thrown);
      observe({ type: 'offer-failed', message: 'The API key of a client did not attest', error });
      if (refresh.current() === undefined && renewal.isPermanent(error, false)) onPermanent(error);
      throw error;
    }
    const first = fresh();
    if (first !== undefined) return first;
    refresh.adopt(made, clientKey);
    return made;
  }

  /** Sets off what may bring the next epoch; resolves when it is worth looking again. */
  function nextChance(offeredKey: string | undefined): Promise<unknown> {
    const changed = refresh.changed();
    if (refresh.hasKey()) {
      refresh.hurry();
      return changed;
    }
    if (offeredKey === undefined) {
      throw new PrivatemodeError('api_key_missing', 'no API key is configured, and the request brings none');
    }
    return Promise.race([changed, clientKeys.offer(offeredKey)]);
  }

  /** Renews an epoch that is still good: nobody waits for it. */
  function prepareNext(offeredKey: string | undefined): void {
    if (!refresh.hasKey() && offeredKey === undefined) return;
    if (!closed.aborted) nextChance(offeredKey).catch(() => {});
  }

  /** Gives `work` a promise that rejects with not_ready after `ms`, or with the reason of a request that is aborted. */
  async function within<T>(
    ms: number,
    request: AbortSignal | undefined,
    work: (late: Promise<never>) => Promise<T>,
  ): Promise<T> {
    const done = new AbortController();
    const ended = request === undefined ? done.signal : AbortSignal.any([done.signal, request]);
    const late = pause(clock, ms, ended, 'waiting').then(() => {
      throw notReady(ms);
    });
    late.catch(() => {});
    try {
      return await work(late);
    } finally {
      done.abort();
    }
  }

  async function nextEpoch(offeredKey: string | undefined, late: Promise<never>): Promise<Epoch> {
    for (;;) {
      const epoch = refresh.current();
      if (epoch !== undefined) return epoch;
      closed.throwIfAborted();
      const permanent = refresh.permanent();
      if (permanent !== undefined) throw permanent;
      await Promise.race([late, nextChance(offeredKey)]);
    }
  }

  function notReady(ms: number): PrivatemodeError {
    const cause = refresh.lastError();
    const why = cause === undefined ? '' : `: ${cause.message}`;
    return new PrivatemodeError('not_ready', `the remote was not verified within ${ms / 1000} s${why}`, {
      cause,
    });
  }

  /** Admits the renewal that a rejection forces. Throws not_ready where the last one was a moment ago. */
  function admitForced(secretId: string): void {
    const now = clock.monotonic();
    if (now - lastForced < FORCED_INTERVAL) {
      throw new PrivatemodeError(
        'not_ready',
        'the secret is rejected again, a moment after its last renewal',
      );
    }
    lastForced = now;
    observe({ type: 'forced-renewal', message: 'The service does not know the secret any more', secretId });
  }

  if (deps.apiKey !== undefined) refresh.configure(deps.apiKey);

  return {
    current: refresh.current,
    async acquire({ offeredKey, timeoutMs, signal }) {
      const ready = refresh.current();
      if (ready !== undefined) {
        // A timer may be late (the machine slept), and without a kept key there is none.
        if (fresh() === undefined) prepareNext(offeredKey);
        return ready;
      }
      return within(timeoutMs, signal, (late) => nextEpoch(offeredKey, late));
    },
    async renewAfterRejection(secretId) {
      const epoch = refresh.current();
      if (epoch !== undefined && epoch.secretId !== secretId) return epoch;
      closed.throwIfAborted();
      if (!refresh.renewing()) admitForced(secretId);
      return within(FORCED_TIMEOUT, undefined, (late) => Promise.race([refresh.renew(), late]));
    },
    state() {
      if (refresh.current() !== undefined) return 'ready';
      if (!refresh.hasKey()) return 'awaiting-key';
      return refresh.lastError() === undefined ? 'starting' : 'failing';
    },
    lastError: refresh.lastError,
    lastVerdict: () => verdict,
    updateConfiguredKey: refresh.configure,
    close() {
      closing.abort(new PrivatemodeError('shutting_down', 'the proxy is shutting down'));
    },
  };
}
