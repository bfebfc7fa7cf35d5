import type { Verdict } from '../attestation/verify.ts';
import { asPrivatemodeError, PrivatemodeError } from '../errors.ts';
import { createKeyOffers } from './client-keys.ts';
import { type Clock, systemClock } from './clock.ts';
import type { Epoch } from './epoch.ts';
import { type Lifetimes, lifetimesOf } from './epoch.ts';
import type { Observer } from './events.ts';
import { createEpochKeeper } from './refresh.ts';
import { createUpdate, type UpdateDeps } from './renewal.ts';

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
  /** After "no secret for ID": replaces the epoch with that secret id; bounded and single-flight (design decision 14). */
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

/** What the session is made of. All that has a default is for tests and simulators. */
export interface SessionOptions extends Omit<UpdateDeps, 'clock' | 'lifetimes' | 'random' | 'observe'> {
  /** Undefined: clients bring their own (inference.md 9). */
  readonly apiKey: string | undefined;
  /**
   * Told when nothing works any more and waiting will not help: 401 on the configured key, a mismatch with a static
   * manifest, a manifest this version does not understand (design decision 13). Once with a key that is held, each time
   * with one that a client offers, and never while an epoch is unexpired. The session goes on trying, slowly.
   */
  readonly onPermanent?: ((error: PrivatemodeError) => void) | undefined;
  /** Default: nobody watches. */
  readonly observe?: Observer;
  readonly clock?: Clock;
  readonly lifetimes?: Lifetimes | undefined;
  readonly random?: () => number;
}

/** ms between two renewals that a rejection may force: its text is not authenticated (design decision 14). */
const FORCED_INTERVAL = 10_000;
/** ms that a request which saw its secret rejected waits for the next one. */
const FORCED_TIMEOUT = 30_000;

/** One epoch at a time, kept fresh. With a key configured the first attestation begins at once. */
export function createSession(options: SessionOptions): AttestedSession {
  const { clock = systemClock, random = Math.random, lifetimes = lifetimesOf(), manifests } = options;
  let verdict: Verdict | undefined;
  let lastForced = Number.NEGATIVE_INFINITY;
  const observe: Observer = (event) => {
    if ('verdict' in event) verdict = event.verdict;
    options.observe?.(event);
  };
  const closing = new AbortController();
  const update = createUpdate({ ...options, clock, random, lifetimes, observe });
  const onPermanent = (error: PrivatemodeError): void => options.onPermanent?.(error);
  const isPermanent = ({ code }: PrivatemodeError, configured: boolean): boolean =>
    (code === 'api_key_rejected' && configured) ||
    code === 'manifest_unsupported' ||
    (manifests.kind === 'static' && (code === 'manifest_mismatch' || code === 'manifest_invalid'));
  const keeper = createEpochKeeper({
    update,
    clock,
    random,
    observe,
    isPermanent: (error, { configured }) => isPermanent(error, configured),
    onPermanent,
    closing: closing.signal,
  });
  const offers = createKeyOffers({ attest: attestOffered, clock });

  /** The epoch, unless it is time to renew it. */
  function fresh(): Epoch | undefined {
    const epoch = keeper.current();
    return epoch !== undefined && clock.now() < epoch.renewAt ? epoch : undefined;
  }

  async function attestOffered(apiKey: string): Promise<Epoch> {
    const known = fresh(); // another client's key did it while this one waited for its turn
    if (known !== undefined) return known;
    let made: Epoch;
    try {
      made = await update(apiKey, closing.signal);
      closing.signal.throwIfAborted();
    } catch (thrown) {
      const error = asPrivatemodeError(thrown);
      observe({ type: 'offer-failed', message: 'The API key of a client did not attest', error });
      if (keeper.current() === undefined && isPermanent(error, false)) onPermanent(error);
      throw error;
    }
    const first = fresh();
    if (first !== undefined) return first;
    keeper.keep(apiKey);
    keeper.install(made);
    return made;
  }

  /** What an epoch could come from next; resolves when it is worth looking again. */
  function nextChance(offeredKey: string | undefined): Promise<unknown> {
    const changed = keeper.changed();
    if (keeper.held() !== undefined) {
      keeper.nudge();
      return changed;
    }
    if (offeredKey === undefined) {
      throw new PrivatemodeError('api_key_missing', 'no API key is configured, and the request brings none');
    }
    return Promise.race([changed, offers.offer(offeredKey)]);
  }

  /** Nobody waits for this one: the epoch at hand is still good. */
  function prepareNext(offeredKey: string | undefined): void {
    if (keeper.held() === undefined && offeredKey === undefined) return;
    if (!closing.signal.aborted) nextChance(offeredKey).catch(() => {});
  }

  function deadline(ms: number, signal: AbortSignal | undefined) {
    const { promise, reject } = Promise.withResolvers<never>();
    promise.catch(() => {});
    const aborted = (): void => reject(signal?.reason);
    const cancel = clock.after(ms, () => reject(notReady(ms)), 'waiting');
    signal?.addEventListener('abort', aborted, { once: true });
    if (signal?.aborted === true) aborted();
    return {
      passed: promise,
      clear(): void {
        cancel();
        signal?.removeEventListener('abort', aborted);
      },
    };
  }

  function notReady(ms: number): PrivatemodeError {
    const cause = keeper.lastError();
    const why = cause === undefined ? '' : `: ${cause.message}`;
    return new PrivatemodeError('not_ready', `the remote was not verified within ${ms / 1000} s${why}`, {
      cause,
    });
  }

  if (options.apiKey !== undefined) keeper.configure(options.apiKey);

  return {
    current: keeper.current,
    async acquire({ offeredKey, timeoutMs, signal }) {
      const ready = keeper.current();
      if (ready !== undefined) {
        // A timer may be late (the machine slept), and without a kept key there is none.
        if (fresh() === undefined) prepareNext(offeredKey);
        return ready;
      }
      const limit = deadline(timeoutMs, signal);
      try {
        for (;;) {
          const epoch = keeper.current();
          if (epoch !== undefined) return epoch;
          closing.signal.throwIfAborted();
          const permanent = keeper.permanent();
          if (permanent !== undefined) throw permanent;
          await Promise.race([limit.passed, nextChance(offeredKey)]);
        }
      } finally {
        limit.clear();
      }
    },
    async renewAfterRejection(secretId) {
      const epoch = keeper.current();
      if (epoch !== undefined && epoch.secretId !== secretId) return epoch;
      closing.signal.throwIfAborted();
      if (!keeper.renewing()) {
        const now = clock.monotonic();
        if (now - lastForced < FORCED_INTERVAL) {
          throw new PrivatemodeError(
            'not_ready',
            'the secret is rejected again, a moment after its last renewal',
          );
        }
        lastForced = now;
        observe({
          type: 'forced-renewal',
          message: 'The service does not know the secret any more',
          secretId,
        });
      }
      const limit = deadline(FORCED_TIMEOUT, undefined);
      try {
        return await Promise.race([keeper.renew(), limit.passed]);
      } finally {
        limit.clear();
      }
    },
    state() {
      if (keeper.current() !== undefined) return 'ready';
      if (keeper.held() === undefined) return 'awaiting-key';
      return keeper.lastError() === undefined ? 'starting' : 'failing';
    },
    lastError: keeper.lastError,
    lastVerdict: () => verdict,
    updateConfiguredKey: keeper.configure,
    close() {
      closing.abort(new PrivatemodeError('shutting_down', 'the proxy is shutting down'));
    },
  };
}
