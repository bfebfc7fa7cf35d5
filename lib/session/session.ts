import type { Verdict } from '../attestation/verify.ts';
import { asPrivatemodeError, PrivatemodeError } from '../errors.ts';
import { createClientKeys } from './client-keys.ts';
import { pause } from './clock.ts';
import { createEpochMaker, type Epoch, type EpochDeps } from './epoch.ts';
import type { Observer } from './events.ts';
import { EpochRefresh, type RefreshDeps } from './refresh.ts';
import { createRefusals } from './refusal.ts';

export type { Epoch } from './epoch.ts';

export interface Session {
  /** The unexpired epoch, or undefined. */
  current(): Epoch | undefined;
  /**
   * Waits for an unexpired epoch. `offeredKey` is the bearer token of the request, used for attestation only
   * where no key is configured. Throws not_ready after `timeoutMs`, api_key_missing, api_key_rejected, the last permanent
   * cause, and what the service is refused for (lib/session/refusal.ts).
   */
  acquire(options: {
    offeredKey?: string | undefined;
    timeoutMs: number;
    signal?: AbortSignal;
  }): Promise<Epoch>;
  /**
   * After "no secret for ID": waits for the epoch that replaces the one with that secret id. Bounded in time and rate; all callers share
   * one renewal. Where it fails, the secret is suspended: no epoch is in force until the next verdict that is accepted, or until a
   * response authenticates under it. Throws secret_denied where the denied secret was made a moment ago, api_key_rejected,
   * not_ready, and what the service is refused for.
   */
  renewAfterRejection(secretId: string): Promise<Epoch>;
  /** A response has authenticated under this secret. It ends a suspension, unless the last verdict rejected the service. */
  authenticated(secretId: string): void;
  state(): 'ready' | 'awaiting-key' | 'starting' | 'failing';
  /** What the service is refused for, else the last failure since the last success. */
  lastError(): Error | undefined;
  /** Ends the renewals; later requests fail with the reason, of code shutting_down. */
  close(reason?: PrivatemodeError): void;
}

/** A session that attests by itself, as opposed to one that is handed its epochs. */
export interface AttestedSession extends Session {
  /** Begins the first attestation, where a key is configured. To be called once. */
  start(): void;
  /** Every check of the last attestation and of its secret exchange, accepted or not. */
  lastVerdict(): Verdict | undefined;
  /** The configured key was replaced; a permanent cause is forgotten, and a failing session tries at once. */
  updateConfiguredKey(apiKey: string): void;
}

export interface SessionDeps extends EpochDeps, Pick<RefreshDeps, 'onPermanent'> {
  /** Undefined: clients bring their own (docs/protocol/inference.md 9). */
  readonly apiKey: string | undefined;
  /** Host of the service, for messages. */
  readonly host?: string | undefined;
}

/** ms between two renewals that a rejection may force: anybody on the way can write its text, which is not authenticated. */
const FORCED_INTERVAL = 10_000;
/** ms that a request which saw its secret rejected waits for the next one. */
const FORCED_TIMEOUT = 30_000;
/** ms that a request waits for a renewal while the service is refused: it may have been repaired. */
const REFUSED_PATIENCE = 5_000;
const ROLLOUT_REMEDY =
  'Try again in a moment; the service and the published manifest differ, as they do while a deployment is replaced.';

/** One epoch at a time, kept fresh once it is started; with the key of a client, once that comes. */
export function createSession(deps: SessionDeps): AttestedSession {
  const { clock, host = 'the remote' } = deps;
  const refusals = createRefusals(clock, deps.manifests.kind);
  let verdict: Verdict | undefined;
  let lastForced = Number.NEGATIVE_INFINITY;
  /** Whether an epoch has begun since then. */
  let madeSince = false;
  const observe: Observer = (event) => {
    if ('verdict' in event) verdict = event.verdict;
    if (event.type === 'epoch') madeSince = true;
    refusals.observe(event);
    deps.observe(event);
  };
  const watched = { ...deps, observe, refusals };
  const refresh = new EpochRefresh({ ...watched, makeEpoch: createEpochMaker(watched) });
  const offer = createClientKeys({ attest: (apiKey) => refresh.renewWith(apiKey), clock });

  /**
   * Sets off what may bring the next epoch; resolves when it is worth looking again. Throws api_key_missing, and what an attestation with
   * the offered key failed with.
   */
  async function nextChance(offeredKey: string | undefined, ended?: AbortSignal): Promise<void> {
    const changed = refresh.changed();
    if (refresh.hasKey()) {
      refresh.hurry();
      return changed;
    }
    if (offeredKey === undefined) {
      throw new PrivatemodeError('api_key_missing', 'no API key is configured, and the request brings none');
    }
    const began = clock.monotonic();
    await Promise.race([changed, offer(offeredKey)]).catch(async (thrown: unknown) => {
      const error = asPrivatemodeError(thrown);
      if (error.blame === 'client' || refresh.closed.aborted) throw error;
      const due = refusals.confirmAt();
      if (due === undefined || began >= due) throw refusals.current() ?? unjudged(error);
      await Promise.race([
        changed,
        pause(clock, Math.max(0, due - clock.monotonic()), ended ?? refresh.closed),
      ]);
    });
  }

  /** Hides the failed check behind not_ready: clients get its code only once the service is refused. */
  const unjudged = (error: PrivatemodeError): PrivatemodeError =>
    error.blame === 'attestation' && error.status === 400 ? notReady('was not verified', error) : error;

  async function nextEpoch(offeredKey: string | undefined, ended: AbortSignal): Promise<Epoch> {
    for (let waited = false; ; ) {
      const epoch = refresh.current();
      if (epoch !== undefined) return epoch;
      refresh.closed.throwIfAborted();
      const permanent = refresh.permanent();
      if (permanent !== undefined) throw permanent;
      const refusal = refusals.current();
      if (refusal !== undefined && waited) throw refusal;
      const chance = nextChance(offeredKey, ended);
      if (refusal === undefined) await chance;
      else {
        if (refresh.hasKey() && !refresh.renewing()) throw refusal; // the last renewal was a moment ago
        waited = true;
        await Promise.race([chance, pause(clock, REFUSED_PATIENCE, ended)]);
      }
      ended.throwIfAborted();
    }
  }

  /**
   * What `work` resolves with. Rejects with not_ready after `ms`, or with the reason of a request that is aborted; `work`
   * gets a signal that is aborted then.
   */
  async function within(
    ms: number,
    request: AbortSignal | undefined,
    work: (ended: AbortSignal) => Promise<Epoch>,
  ): Promise<Epoch> {
    const done = new AbortController();
    const ended = request === undefined ? done.signal : AbortSignal.any([done.signal, request]);
    const late = pause(clock, ms, ended, 'waiting').then(() => {
      throw refusals.current() ?? notReady(`was not verified within ${ms / 1000} s`, refresh.lastError());
    });
    try {
      return await Promise.race([work(ended), late]);
    } finally {
      done.abort();
    }
  }

  function notReady(what: string, cause: PrivatemodeError | undefined): PrivatemodeError {
    const why = cause === undefined ? '' : `: ${cause.message}`;
    const remedy = cause?.code === 'manifest_mismatch' ? ROLLOUT_REMEDY : undefined;
    return new PrivatemodeError('not_ready', `${host} ${what}${why}`, { cause, remedy });
  }

  /**
   * The suspended epoch, where no verdict speaks against it: an accepted verdict made its secret, and silence takes nothing back. A
   * request that is answered under it ends the suspension.
   */
  const worthTrying = (): Epoch | undefined => (refusals.isRejected() ? undefined : refresh.suspended());

  /** The renewal after a denial. Where it fails, the secret is suspended; then the next verdict decides, as at a start, or it throws. */
  async function renewedAfterDenial(secretId: string, ended: AbortSignal): Promise<Epoch> {
    for (;;) {
      try {
        return await refresh.renew();
      } catch (thrown) {
        refresh.closed.throwIfAborted();
        ended.throwIfAborted(); // it was suspended then
        if (refresh.renewing()) continue; // with another key
        refresh.suspend(secretId);
        if (refusals.isRejected() && refresh.hasKey()) return nextEpoch(undefined, ended);
        throw thrown;
      }
    }
  }

  /** The error of a request whose denied secret could not be replaced: why the service is refused, or not_ready. */
  function errorAfterDenial(thrown: unknown): PrivatemodeError {
    const error = asPrivatemodeError(thrown);
    const isOfClient = error.code === 'api_key_rejected' && deps.apiKey === undefined;
    return isOfClient || error.code === 'not_ready' || error.blame === 'attestation' ? error : denied(error);
  }

  const denied = (cause: PrivatemodeError | undefined): PrivatemodeError =>
    notReady('does not know the secret any more, and could not be verified again', cause);

  /** Admits the renewal that a rejection forces. Throws where the last one was a moment ago: secret_denied, or what that one failed with. */
  function admitForced(secretId: string): void {
    const now = clock.monotonic();
    if (now - lastForced < FORCED_INTERVAL) {
      if (!madeSince) {
        refresh.suspend(secretId);
        throw refusals.current() ?? denied(refresh.lastError());
      }
      const message = `${host} denies a secret that it was given a moment ago`;
      throw new PrivatemodeError('secret_denied', message);
    }
    lastForced = now;
    madeSince = false;
    observe({ type: 'forced-renewal', message: 'The service does not know the secret any more', secretId });
  }

  return {
    start() {
      if (deps.apiKey !== undefined) refresh.configure(deps.apiKey);
    },
    current: () => refresh.current(),
    async acquire({ offeredKey, timeoutMs, signal }) {
      const ready = refresh.current() ?? worthTrying();
      if (ready === undefined) return within(timeoutMs, signal, (ended) => nextEpoch(offeredKey, ended));
      // A timer may be late (the machine slept), and without a kept key there is none. Nobody waits for this renewal.
      const isDue = clock.now() >= ready.renewAt || ready !== refresh.current();
      if (isDue && !refresh.closed.aborted) nextChance(offeredKey).catch(() => {});
      return ready;
    },
    async renewAfterRejection(secretId) {
      const epoch = refresh.current();
      if (epoch !== undefined && epoch.secretId !== secretId) return epoch;
      refresh.closed.throwIfAborted();
      if (!refresh.renewing()) admitForced(secretId);
      try {
        return await within(FORCED_TIMEOUT, undefined, (ended) => renewedAfterDenial(secretId, ended));
      } catch (thrown) {
        refresh.closed.throwIfAborted();
        refresh.suspend(secretId);
        throw errorAfterDenial(thrown);
      }
    },
    authenticated(secretId) {
      if (!refusals.isRejected()) refresh.resume(secretId);
    },
    state() {
      if (refresh.current() !== undefined) return 'ready';
      if (!refresh.hasKey()) return 'awaiting-key';
      return refresh.lastError() === undefined ? 'starting' : 'failing';
    },
    lastError: () => refusals.current() ?? refresh.lastError(),
    lastVerdict: () => verdict,
    updateConfiguredKey: (apiKey) => refresh.configure(apiKey),
    close(reason = new PrivatemodeError('shutting_down', 'the proxy is shutting down')) {
      refresh.close(reason);
    },
  };
}
