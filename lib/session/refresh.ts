import { asPrivatemodeError, PrivatemodeError } from '../errors.ts';
import type { createEpochMaker, Epoch, EpochDeps } from './epoch.ts';
import { failureMessage } from './events.ts';
import { isSettled, type Judgements } from './judgement.ts';
import { isUsable } from './lifetimes.ts';

export interface RefreshDeps extends Pick<EpochDeps, 'manifests' | 'clock' | 'random' | 'observe'> {
  readonly makeEpoch: ReturnType<typeof createEpochMaker>;
  readonly judgements: Pick<Judgements, 'confirmAt'>;
  /**
   * Called when nothing works any more and waiting does not help: 401 on the configured key, a mismatch with a static
   * manifest, a manifest this version does not understand. With a key that is held, once until a renewal succeeds or the
   * key is replaced; with one that a client offers, each time; and never while an epoch is usable. The session goes on
   * trying, slowly.
   */
  readonly onPermanent?: ((error: PrivatemodeError) => void) | undefined;
}

/** The key that attests: the operator's (`configured`), or one that a client brought. */
interface HeldKey {
  readonly value: string;
  readonly configured: boolean;
}

/** No timer is longer: the wall clock may have jumped meanwhile, because the machine slept or was corrected. */
const LONGEST_SLEEP = 30_000;
const LONGEST_BACKOFF = 60_000;
/** Requests that wait make a renewal begin before its backoff ends, but not more often than this. */
const HURRY_INTERVAL = 5_000;

/** The background half of a session: holds the one epoch and the key, and renews the epoch before it expires. */
export function createEpochRefresh(deps: RefreshDeps) {
  const { makeEpoch, judgements, manifests, clock, random, observe, onPermanent } = deps;
  const closing = new AbortController();
  const closed: AbortSignal = closing.signal; // named, so that a declaration can name it
  let epoch: Epoch | undefined;
  let held: HeldKey | undefined;
  let running: { readonly result: Promise<Epoch>; readonly abort: AbortController } | undefined;
  let failures = 0;
  let failedAt = 0;
  let lastError: PrivatemodeError | undefined;
  let permanent: PrivatemodeError | undefined;
  let change = Promise.withResolvers<void>();
  let cancelWake = (): void => {};
  let wakeDue = Number.POSITIVE_INFINITY;

  function announce(): void {
    const { resolve } = change;
    change = Promise.withResolvers();
    resolve();
  }

  function current(): Epoch | undefined {
    return epoch !== undefined && isUsable(epoch, clock) ? epoch : undefined;
  }

  /** The usable epoch, unless it is time to renew it. */
  function fresh(): Epoch | undefined {
    const usable = current();
    return usable !== undefined && clock.now() < usable.renewAt ? usable : undefined;
  }

  /** Begins a renewal at `due`, or as soon as a timer notices that the clock was turned back. */
  function wakeAt(due: number): void {
    cancelWake();
    wakeDue = due;
    const setAt = clock.now();
    cancelWake = clock.after(Math.min(Math.max(due - setAt, 0), LONGEST_SLEEP), () => {
      const now = clock.now();
      if (now < due && now >= setAt) wakeAt(due);
      else begin();
    });
  }

  function use(made: Epoch): void {
    epoch = made;
    failures = 0;
    lastError = permanent = undefined;
    const { secretId, manifestSha256, expiresAt } = made;
    observe({ type: 'epoch', message: 'Secret updated successfully', secretId, manifestSha256, expiresAt });
    wakeAt(made.renewAt);
    announce();
  }

  /** `began`: when the renewal began, on the monotonic clock. */
  function fail(error: PrivatemodeError, { configured }: HeldKey, began: number): void {
    failures++;
    failedAt = clock.now();
    lastError = error;
    const dropped = error.code === 'api_key_rejected' && !configured;
    if (dropped) {
      held = undefined;
      observe({ type: 'key-dropped', message: 'The API key kept from a client is no longer accepted' });
    }
    const hopeless = isPermanent(error, configured);
    const retryIn = dropped ? undefined : pauseAfter(began, hopeless);
    if (retryIn !== undefined) wakeAt(clock.now() + retryIn);
    const permanentNow = hopeless && permanent === undefined && current() === undefined;
    if (permanentNow) {
      permanent = error;
      onPermanent?.(error);
    }
    const message = failureMessage(error, retryIn);
    observe({ type: 'update-failed', message, error, retryIn, permanent: permanentNow });
    announce();
  }

  /** Whether waiting does not help. `configured`: the key is the operator's, not one that a client brought. */
  function isPermanent({ code }: PrivatemodeError, configured: boolean): boolean {
    return code === 'api_key_rejected' ? configured : isSettled(code, manifests.kind);
  }

  /** ms until the next renewal, which does not begin later than a rejection can be confirmed: clients wait to hear of it. */
  function pauseAfter(began: number, hopeless: boolean): number {
    const pause = backoff(hopeless);
    const due = judgements.confirmAt();
    if (due === undefined || began >= due) return pause;
    return Math.min(pause, Math.max(0, due - clock.monotonic()));
  }

  /** 1 s, doubling, up to 60 s; the upper half of it at random. What waiting does not cure is tried rarely. */
  function backoff(hopeless: boolean): number {
    const full = hopeless ? LONGEST_BACKOFF : Math.min(LONGEST_BACKOFF, 1000 * 2 ** (failures - 1));
    return full * (0.5 + random() / 2);
  }

  /** The renewal that runs, or a new one. Rejects with not_ready if there is no key. */
  async function renew(): Promise<Epoch> {
    if (running !== undefined) return running.result;
    closed.throwIfAborted();
    if (held === undefined) throw new PrivatemodeError('not_ready', 'no API key to attest with');
    cancelWake();
    const abort = new AbortController();
    running = { result: attempt(held, abort.signal), abort };
    return running.result;
  }

  /** Starts a renewal that nobody waits for. */
  function begin(): void {
    renew().catch(() => {});
  }

  async function attempt(by: HeldKey, signal: AbortSignal): Promise<Epoch> {
    const began = clock.monotonic();
    try {
      const made = await makeEpoch(by.value, signal);
      signal.throwIfAborted();
      running = undefined;
      use(made);
      return made;
    } catch (thrown) {
      // An attempt that was given up has a successor, or the session has ended: it changes nothing any more.
      signal.throwIfAborted();
      running = undefined;
      const error = asPrivatemodeError(thrown);
      fail(error, by, began);
      throw error;
    }
  }

  function giveUp(reason: PrivatemodeError): void {
    running?.abort.abort(reason);
    running = undefined;
    cancelWake();
  }

  return {
    current,
    hasKey: () => held !== undefined,
    /** The last failure since the last success. */
    lastError: () => lastError,
    /** The failure for which waiting is no use. */
    permanent: () => permanent,
    /** Resolves when one of the above has changed. */
    changed: () => change.promise,
    renewing: () => running !== undefined,
    renew,
    /**
     * Makes an epoch with the key of a client, unless that of another client did while this one waited for its turn.
     * Takes it into use, and keeps the key unless there is one.
     */
    async renewWith(apiKey: string): Promise<Epoch> {
      const known = fresh();
      if (known !== undefined) return known;
      let made: Epoch;
      try {
        made = await makeEpoch(apiKey, closed);
        closed.throwIfAborted();
      } catch (thrown) {
        const error = asPrivatemodeError(thrown);
        observe({ type: 'offer-failed', message: 'The API key of a client did not attest', error });
        if (current() === undefined && isPermanent(error, false)) onPermanent?.(error);
        throw error;
      }
      const first = fresh();
      if (first !== undefined) return first;
      if (held === undefined) {
        held = { value: apiKey, configured: false };
        observe({ type: 'key-kept', message: 'The API key of a client is kept for attestation' });
      }
      use(made);
      return made;
    },
    /** Replaces the key. Gives up a renewal that runs with the old one; one that is needed begins at once. */
    configure(apiKey: string): void {
      held = { value: apiKey, configured: true };
      permanent = undefined;
      if (running !== undefined || failures > 0 || current() === undefined) {
        giveUp(new PrivatemodeError('not_ready', 'the API key was replaced'));
        failures = 0;
        begin();
      }
      announce();
    },
    /** A request waits: a renewal runs from now on, or begins HURRY_INTERVAL after the last failure at the latest. */
    hurry(): void {
      if (running !== undefined) return;
      const soonest = failedAt + HURRY_INTERVAL;
      const turnedBack = clock.now() < failedAt;
      if (failures === 0 || clock.now() >= soonest || turnedBack) begin();
      else if (soonest < wakeDue) wakeAt(soonest);
    },
    /** Aborted, with the reason, once the session has ended. */
    closed,
    close(reason: PrivatemodeError): void {
      closing.abort(reason);
      giveUp(reason);
      announce();
    },
  };
}
