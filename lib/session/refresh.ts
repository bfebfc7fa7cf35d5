import { asPrivatemodeError, PrivatemodeError } from '../errors.ts';
import type { Clock } from './clock.ts';
import { type Epoch, isUsable } from './epoch.ts';
import type { Observer } from './events.ts';
import { headline } from './failure-message.ts';
import type { Update } from './renewal.ts';

/** The key that attests; `configured` tells an operator's key from one that a client brought. */
export interface HeldKey {
  readonly value: string;
  readonly configured: boolean;
}

export interface EpochKeeperOptions {
  readonly update: Update;
  readonly clock: Clock;
  readonly random: () => number;
  readonly observe: Observer;
  readonly isPermanent: (error: PrivatemodeError, by: HeldKey) => boolean;
  /** Called once until it works again or the key is replaced, and never while an epoch is unexpired. */
  readonly onPermanent: (error: PrivatemodeError) => void;
  readonly closing: AbortSignal;
}

/** Holds the one epoch and the key, and renews ahead of expiry: the background half of a session. */
export interface EpochKeeper {
  current(): Epoch | undefined;
  held(): HeldKey | undefined;
  /** The last failure since the last success. */
  lastError(): PrivatemodeError | undefined;
  /** The cause for which waiting is no use. */
  permanent(): PrivatemodeError | undefined;
  /** Resolves when one of the above has changed. */
  changed(): Promise<void>;
  /** Takes an epoch into use that was made elsewhere, with a client's key. */
  install(epoch: Epoch): void;
  /** Configures the key. An update that runs with the old one is given up, and one that is needed begins at once. */
  configure(value: string): void;
  /** Keeps a client's key that has just attested, unless there is one. */
  keep(value: string): void;
  renewing(): boolean;
  /** The update that runs, or a new one. Rejects with not_ready if there is no key. */
  renew(): Promise<Epoch>;
  /** Somebody waits: sees to it that an update runs, or will within NUDGE_INTERVAL of the last failure. */
  nudge(): void;
}

/** No timer is longer: the wall clock may have jumped meanwhile, because the machine slept or was corrected. */
const LONGEST_SLEEP = 30_000;
const LONGEST_BACKOFF = 60_000;
/** Requests that wait make an update begin before its backoff ends, but not more often than this. */
const NUDGE_INTERVAL = 5_000;

export function createEpochKeeper(options: EpochKeeperOptions): EpochKeeper {
  const { update, clock, random, observe, closing } = options;
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

  const current = (): Epoch | undefined =>
    epoch !== undefined && isUsable(epoch, clock) ? epoch : undefined;

  /** Begins an update at `due`, or as soon as it is noticed that the clock was turned back. */
  function wakeAt(due: number): void {
    cancelWake();
    wakeDue = due;
    const setAt = clock.now();
    cancelWake = clock.after(Math.min(Math.max(due - setAt, 0), LONGEST_SLEEP), () => {
      const now = clock.now();
      if (now < due && now >= setAt) wakeAt(due);
      else if (held !== undefined) renew().catch(() => {});
    });
  }

  function install(made: Epoch): void {
    epoch = made;
    failures = 0;
    lastError = permanent = undefined;
    const { secretId, manifestSha256, expiresAt } = made;
    observe({ type: 'epoch', message: 'Secret updated successfully', secretId, manifestSha256, expiresAt });
    wakeAt(made.renewAt);
    announce();
  }

  function fail(error: PrivatemodeError, by: HeldKey): void {
    failures++;
    failedAt = clock.now();
    lastError = error;
    let retryIn: number | undefined;
    let permanentNow = false;
    if (error.code === 'api_key_rejected' && !by.configured) {
      held = undefined;
      observe({ type: 'key-dropped', message: 'The API key kept from a client is no longer accepted' });
    } else {
      const isPermanent = options.isPermanent(error, by);
      retryIn = backoff(isPermanent);
      wakeAt(clock.now() + retryIn);
      if (isPermanent && permanent === undefined && current() === undefined) {
        permanent = error;
        permanentNow = true;
        options.onPermanent(error);
      }
    }
    observe({
      type: 'update-failed',
      message: headline(error, retryIn),
      error,
      retryIn,
      permanent: permanentNow,
    });
    announce();
  }

  /** 1 s, doubling, up to 60 s; the upper half of it at random. What waiting will not cure is asked for rarely. */
  function backoff(isPermanent: boolean): number {
    const full = isPermanent
      ? LONGEST_BACKOFF
      : Math.min(LONGEST_BACKOFF, 1000 * 2 ** Math.min(failures - 1, 10));
    return full * (0.5 + random() / 2);
  }

  function renew(): Promise<Epoch> {
    if (running !== undefined) return running.result;
    const by = held;
    if (by === undefined || closing.aborted) {
      return Promise.reject(closing.reason ?? new PrivatemodeError('not_ready', 'no API key to attest with'));
    }
    cancelWake();
    const abort = new AbortController();
    const result = attempt(by, abort.signal);
    result.catch(() => {});
    running = { result, abort };
    return result;
  }

  async function attempt(by: HeldKey, signal: AbortSignal): Promise<Epoch> {
    try {
      const made = await update(by.value, signal);
      signal.throwIfAborted();
      running = undefined;
      install(made);
      return made;
    } catch (thrown) {
      // An attempt that was given up has a successor or the session's end: it decides nothing any more.
      signal.throwIfAborted();
      running = undefined;
      const error = asPrivatemodeError(thrown);
      fail(error, by);
      throw error;
    }
  }

  function giveUp(reason: PrivatemodeError): void {
    running?.abort.abort(reason);
    running = undefined;
    cancelWake();
  }

  closing.addEventListener('abort', () => {
    giveUp(closing.reason);
    announce();
  });

  return {
    current,
    held: () => held,
    lastError: () => lastError,
    permanent: () => permanent,
    changed: () => change.promise,
    install,
    configure(value) {
      held = { value, configured: true };
      permanent = undefined;
      if (running !== undefined || failures > 0 || current() === undefined) {
        giveUp(new PrivatemodeError('not_ready', 'the API key was replaced'));
        failures = 0;
        renew().catch(() => {});
      }
      announce();
    },
    keep(value) {
      if (held !== undefined) return;
      held = { value, configured: false };
      observe({ type: 'key-kept', message: 'The API key of a client is kept for attestation' });
    },
    renewing: () => running !== undefined,
    renew,
    nudge() {
      if (held === undefined || running !== undefined) return;
      const soonest = failedAt + NUDGE_INTERVAL;
      if (failures === 0 || clock.now() >= soonest || clock.now() < failedAt) renew().catch(() => {});
      else if (soonest < wakeDue) wakeAt(soonest);
    },
  };
}
