import { asPrivatemodeError, PrivatemodeError } from '../errors.ts';
import type { Clock } from './clock.ts';
import { type Epoch, isUsable } from './epoch.ts';
import type { Observer } from './events.ts';
import { failureMessage } from './failure-message.ts';
import type { Renewal } from './renewal.ts';

export interface RefreshDeps {
  readonly renewal: Renewal;
  readonly clock: Clock;
  readonly random: () => number;
  readonly observe: Observer;
  /** Called once until a renewal succeeds or the key is replaced, and never while an epoch is usable. */
  readonly onPermanent: (error: PrivatemodeError) => void;
  readonly closed: AbortSignal;
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
  const { clock, observe, closed } = deps;
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

  function fail(error: PrivatemodeError, { configured }: HeldKey): void {
    failures++;
    failedAt = clock.now();
    lastError = error;
    let retryIn: number | undefined;
    let permanentNow = false;
    if (error.code === 'api_key_rejected' && !configured) {
      held = undefined;
      observe({ type: 'key-dropped', message: 'The API key kept from a client is no longer accepted' });
    } else {
      const hopeless = deps.renewal.isPermanent(error, configured);
      retryIn = backoff(hopeless);
      wakeAt(clock.now() + retryIn);
      permanentNow = hopeless && permanent === undefined && current() === undefined;
      if (permanentNow) {
        permanent = error;
        deps.onPermanent(error);
      }
    }
    const message = failureMessage(error, retryIn);
    observe({ type: 'update-failed', message, error, retryIn, permanent: permanentNow });
    announce();
  }

  /** 1 s, doubling, up to 60 s; the upper half of it at random. What waiting does not cure is tried rarely. */
  function backoff(hopeless: boolean): number {
    const full = hopeless ? LONGEST_BACKOFF : Math.min(LONGEST_BACKOFF, 1000 * 2 ** (failures - 1));
    return full * (0.5 + deps.random() / 2);
  }

  /** The renewal that runs, or a new one. Rejects with not_ready if there is no key. */
  function renew(): Promise<Epoch> {
    if (running !== undefined) return running.result;
    if (held === undefined || closed.aborted) {
      return Promise.reject(closed.reason ?? new PrivatemodeError('not_ready', 'no API key to attest with'));
    }
    cancelWake();
    const abort = new AbortController();
    const result = attempt(held, abort.signal);
    result.catch(() => {});
    running = { result, abort };
    return result;
  }

  /** Starts a renewal that nobody waits for. */
  function begin(): void {
    if (held !== undefined) renew().catch(() => {});
  }

  async function attempt(by: HeldKey, signal: AbortSignal): Promise<Epoch> {
    try {
      const made = await deps.renewal.renew(by.value, signal);
      signal.throwIfAborted();
      running = undefined;
      use(made);
      return made;
    } catch (thrown) {
      // An attempt that was given up has a successor, or the session has ended: it changes nothing any more.
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

  closed.addEventListener('abort', () => {
    giveUp(closed.reason);
    announce();
  });

  return {
    /** The usable epoch. */
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
    /** Takes an epoch into use that a client's key made, and keeps the key unless there is one. */
    adopt(made: Epoch, apiKey: string): void {
      if (held === undefined) {
        held = { value: apiKey, configured: false };
        observe({ type: 'key-kept', message: 'The API key of a client is kept for attestation' });
      }
      use(made);
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
  };
}
