/** Gives each request its epoch, and lets it wait for the next one. */
import { type Clock, type Present, pause, presentOf } from '../clock.ts';
import { asPrivatemodeError, PrivatemodeError } from '../errors.ts';
import type { Epoch } from './epoch.ts';
import { confirmAt, isOwnFault, isRejected } from './refusal.ts';
import type { Renewals } from './renewals.ts';
import type { Requests } from './requests.ts';
import { forcedBy, hasKey, type SessionState, suspendedSecret } from './state.ts';

const ROLLOUT_REMEDY =
  'Try again in a moment; the service and the published manifest differ, as they do while a deployment is replaced.';

export interface AcquireOptions {
  /** The bearer token of the request, used for attestation only where no key is configured. */
  readonly offeredKey?: string | undefined;
  readonly timeoutMs: number;
  readonly waiter?: { readonly signal: AbortSignal }; // asked for its signal only if it has to wait
}

interface WaitingDeps {
  readonly renewals: Renewals;
  readonly requests: Requests;
  /** Aborted when the session ends. */
  readonly closed: AbortSignal;
  readonly clock: Clock;
  readonly onDemand: boolean;
  readonly host: string;
}

/** The two functions of a session that wait. `Session` (lib/session/session.ts) says what they promise. */
export function createWaiting({ renewals, requests, closed, clock, onDemand, host }: WaitingDeps) {
  const { state, current, dispatch } = renewals;
  const { deniedWait, refusedWait } = clock.times;
  /** With `onDemand` the renewal may end with the request that waits for it. */
  const whileRefused = onDemand ? deniedWait : refusedWait;

  function acquire({ offeredKey, timeoutMs, waiter }: AcquireOptions): Epoch | Promise<Epoch> {
    requests.haveCome = true;
    const inForce = current();
    const ready = inForce ?? worthTrying();
    if (ready === undefined)
      return within(timeoutMs, waiter?.signal, (ended) => nextEpoch(offeredKey, ended));
    // The renewal may be overdue: a timer may be late (the machine slept), and without a kept key there is
    // none. Nobody waits for this renewal, so after a failure it has the time that the state says.
    const isDue = clock.now() >= (state().due ?? ready.renewAt) || inForce === undefined;
    if (isDue && !closed.aborted) nextChance(offeredKey).catch(() => {});
    return ready;
  }

  async function renewAfterDenial(secretId: string, timeoutMs: number = deniedWait): Promise<Epoch> {
    const epoch = current();
    if (epoch !== undefined && epoch.secretId !== secretId) return epoch;
    closed.throwIfAborted();
    const forced = forcedBy(state(), presentOf(clock)); // before the event, which changes it
    dispatch({ type: 'denied', secretId });
    if (forced === 'failed') throw refusalOf(state()) ?? notReplaced(host, state().outage?.error);
    if (forced === 'made')
      throw new PrivatemodeError('secret_denied', `${host} denies a secret that it was given a moment ago`);
    try {
      return await within(timeoutMs, undefined, renewedAfterDenial);
    } catch (thrown) {
      closed.throwIfAborted();
      dispatch({ type: 'overdue', secretId });
      throw errorAfterDenial(host, thrown);
    }
  }

  /**
   * Starts what may bring the next epoch, and resolves when it is worth looking again. Without `ended` nobody
   * waits, and it may resolve at once. Throws api_key_missing, and the error with which an attestation with
   * the offered key failed.
   */
  async function nextChance(offeredKey: string | undefined, ended?: AbortSignal): Promise<void> {
    if (hasKey(state()))
      return ended === undefined ? dispatch({ type: 'awaited' }) : renewals.renewing(ended);
    if (offeredKey === undefined) {
      throw new PrivatemodeError('api_key_missing', 'no API key is configured, and the request brings none');
    }
    const began = clock.monotonic();
    const { changed, forget } = requests.change();
    try {
      await Promise.race([changed, renewals.offer(offeredKey)]);
    } catch (thrown) {
      const error = asPrivatemodeError(thrown);
      if (error.blame === 'client' || closed.aborted) throw error;
      const due = confirmAt(state().verdicts, clock.times);
      if (due === undefined || began >= due) throw refusalOf(state()) ?? hideVerdict(host, error);
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
      const permanent = permanentAt(state(), presentOf(clock), onDemand);
      if (permanent !== undefined) {
        // A failure of the service may be over, so this request lets a renewal begin. A fault of the manifest
        // stays.
        if (!isOwnFault(permanent.code, state().kind)) dispatch({ type: 'awaited' });
        throw permanent;
      }
      const refused = refusalOf(state());
      if (refused !== undefined && waited) throw refused;
      const chance = nextChance(offeredKey, ended);
      chance.catch(() => {}); // it also rejects once nobody waits for it
      if (refused === undefined) await chance;
      else {
        // No renewal has begun, because the last one was a moment ago.
        if (hasKey(state()) && state().running === undefined) throw refused;
        waited = true;
        await Promise.race([chance, pause(clock, whileRefused, ended)]);
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
      throw (
        refusalOf(state()) ?? notReady(host, `was not verified within ${ms / 1000} s`, state().outage?.error)
      );
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
    !isRejected(state().verdicts) && suspendedSecret(state(), presentOf(clock))
      ? renewals.newest()
      : undefined;

  /**
   * Waits for the renewal after a denial. If the renewal fails, the secret is suspended. If the last verdict
   * rejected the service and there is a key, the next verdict then decides, as at a start. Otherwise this
   * throws.
   */
  async function renewedAfterDenial(ended: AbortSignal): Promise<Epoch> {
    if (state().running === undefined) throw new PrivatemodeError('not_ready', 'no API key to attest with');
    while (state().running !== undefined) await renewals.renewing(ended); // resolves at each change
    closed.throwIfAborted();
    ended.throwIfAborted();
    const { error } = state().outage ?? {};
    if (error === undefined) return renewals.newest() as Epoch; // it was made
    if (isRejected(state().verdicts) && hasKey(state())) return nextEpoch(undefined, ended);
    throw error;
  }

  return { acquire, renewAfterDenial };
}

/** The error with which requests are refused at once, until the session hears something else. */
const refusalOf = ({ verdicts, unjudged }: SessionState): PrivatemodeError | undefined =>
  verdicts.refusal ?? (unjudged?.as === 'too-old' ? unjudged.error : undefined);

/**
 * The error that requests get at once because waiting does not help. With `onDemand` perhaps no renewal has
 * begun since, so it counts for a moment only, unless the given manifest is at fault, which does not change.
 */
function permanentAt(
  { kind, outage }: SessionState,
  { now, times }: Present,
  onDemand: boolean,
): PrivatemodeError | undefined {
  const { permanent, failedAt = 0 } = outage ?? {};
  if (permanent === undefined || !onDemand) return permanent;
  const isFresh = Math.abs(now - failedAt) < times.hurryAfter;
  const stays = kind === 'static' && isOwnFault(permanent.code, kind);
  return isFresh || stays ? permanent : undefined;
}

/** An error of code not_ready. `what` follows the name of the host. `cause`: why, if that is known. */
function notReady(host: string, what: string, cause: PrivatemodeError | undefined): PrivatemodeError {
  const why = cause === undefined ? '' : `: ${cause.message}`;
  const isRollout = cause?.code === 'manifest_mismatch' && !cause.detail?.newestMissing;
  const remedy = isRollout ? ROLLOUT_REMEDY : undefined;
  return new PrivatemodeError('not_ready', `${host} ${what}${why}`, { cause, remedy });
}

/** Hides a failed check behind not_ready: clients get its code only once the service is refused. */
const hideVerdict = (host: string, error: PrivatemodeError): PrivatemodeError =>
  error.blame === 'attestation' && error.status === 400 ? notReady(host, 'was not verified', error) : error;

const notReplaced = (host: string, cause: PrivatemodeError | undefined): PrivatemodeError =>
  notReady(host, 'does not know the secret any more, and could not be verified again', cause);

/**
 * The error of a request whose denied secret could not be replaced: why the service is refused, or not_ready.
 */
function errorAfterDenial(host: string, thrown: unknown): PrivatemodeError {
  const error = asPrivatemodeError(thrown);
  const isTold =
    error.code === 'not_ready' || error.code === 'client_too_old' || error.blame === 'attestation';
  return isTold ? error : notReplaced(host, error);
}
