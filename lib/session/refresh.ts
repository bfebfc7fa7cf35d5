import { asPrivatemodeError, PrivatemodeError } from '../errors.ts';
import { Alarm } from './clock.ts';
import type { createEpochMaker, Epoch, EpochDeps } from './epoch.ts';
import { failureMessage } from './events.ts';
import { isUsable } from './lifetimes.ts';
import { isSettled, type Refusals } from './refusal.ts';

export interface RefreshDeps extends Pick<EpochDeps, 'manifests' | 'clock' | 'random' | 'observe'> {
  readonly makeEpoch: ReturnType<typeof createEpochMaker>;
  readonly refusals: Pick<Refusals, 'confirmAt'>;
  /**
   * Called when nothing works any more and waiting does not help: 401 on the configured key, a mismatch with a static
   * manifest, a manifest this version does not understand. With a key that is held, once until a renewal succeeds or the
   * key is replaced; with one that a client offers, each time; and never before an epoch has expired, suspended or not. The
   * session goes on trying, slowly.
   */
  readonly onPermanent?: ((error: PrivatemodeError) => void) | undefined;
}

/** The key that attests: the operator's (`configured`), or one that a client brought. */
interface HeldKey {
  readonly value: string;
  readonly configured: boolean;
}

/** A renewal that runs. */
interface Renewal {
  readonly result: Promise<Epoch>;
  readonly abort: AbortController;
}

/** What has failed since the last success. */
interface Outage {
  /** With the key that is held. */
  readonly failures: number;
  /** Of the last one, on the wall clock. */
  readonly failedAt: number;
  readonly error: PrivatemodeError;
  /** The failure for which waiting is no use. */
  readonly permanent: PrivatemodeError | undefined;
}

const LONGEST_BACKOFF = 60_000;
/** Requests that wait make a renewal begin before its backoff ends, but not more often than this. */
const HURRY_INTERVAL = 5_000;

/** The background half of a session: holds the one epoch and the key, and renews the epoch before it expires. */
export class EpochRefresh {
  readonly #deps: RefreshDeps;
  readonly #closing = new AbortController();
  /** Aborted, with the reason, once the session has ended. */
  readonly closed: AbortSignal = this.#closing.signal;
  /** Begins the next renewal. */
  readonly #alarm: Alarm;
  #epoch: Epoch | undefined;
  #isSuspended = false;
  #held: HeldKey | undefined;
  #running: Renewal | undefined;
  #outage: Outage | undefined;
  #change = Promise.withResolvers<void>();

  constructor(deps: RefreshDeps) {
    this.#deps = deps;
    this.#alarm = new Alarm(deps.clock, () => this.#begin());
  }

  /** The epoch that requests may use: it has not expired, and the service has not denied its secret. */
  current(): Epoch | undefined {
    return this.#isSuspended ? undefined : this.#unexpired();
  }

  /** The epoch whose secret is suspended, while it has not expired. */
  suspended(): Epoch | undefined {
    return this.#isSuspended ? this.#unexpired() : undefined;
  }

  /**
   * The service denied this secret, and the renewal after that failed. It is no longer in force, and not deleted: anybody on the way can
   * write a denial, so the next epoch ends this, or `resume`.
   */
  suspend(secretId: string): void {
    if (this.current()?.secretId !== secretId) return;
    this.#isSuspended = true;
    const message = 'The secret is suspended: the service denies it, and could not be verified again';
    this.#deps.observe({ type: 'secret-suspended', message, secretId });
    this.#announce();
  }

  /** A response has authenticated under this secret, so that the service knows it. */
  resume(secretId: string): void {
    if (this.suspended()?.secretId !== secretId) return;
    this.#isSuspended = false;
    const message = 'The secret is in force again: a response authenticated under it';
    this.#deps.observe({ type: 'secret-resumed', message, secretId });
    this.#announce();
  }

  hasKey(): boolean {
    return this.#held !== undefined;
  }

  /** The last failure since the last success. */
  lastError(): PrivatemodeError | undefined {
    return this.#outage?.error;
  }

  /** The failure for which waiting is no use. */
  permanent(): PrivatemodeError | undefined {
    return this.#outage?.permanent;
  }

  /** Resolves when one of the above has changed. */
  changed(): Promise<void> {
    return this.#change.promise;
  }

  renewing(): boolean {
    return this.#running !== undefined;
  }

  /** The renewal that runs, or a new one. Rejects with not_ready if there is no key. */
  async renew(): Promise<Epoch> {
    if (this.#running !== undefined) return this.#running.result;
    this.closed.throwIfAborted();
    if (this.#held === undefined) throw new PrivatemodeError('not_ready', 'no API key to attest with');
    this.#alarm.cancel();
    const abort = new AbortController();
    this.#running = { result: this.#attempt(this.#held, abort.signal), abort };
    return this.#running.result;
  }

  /**
   * Makes an epoch with the key of a client, unless that of another client did while this one waited for its turn.
   * Takes it into use, and keeps the key unless there is one.
   */
  async renewWith(apiKey: string): Promise<Epoch> {
    const { makeEpoch, observe, onPermanent } = this.#deps;
    const known = this.#fresh();
    if (known !== undefined) return known;
    let made: Epoch;
    try {
      made = await makeEpoch(apiKey, this.closed);
      this.closed.throwIfAborted();
    } catch (thrown) {
      const error = asPrivatemodeError(thrown);
      observe({ type: 'offer-failed', message: 'The API key of a client did not attest', error });
      if (this.#unexpired() === undefined && this.#isPermanent(error, false)) onPermanent?.(error);
      throw error;
    }
    const first = this.#fresh();
    if (first !== undefined) return first;
    if (this.#held === undefined) {
      this.#held = { value: apiKey, configured: false };
      observe({ type: 'key-kept', message: 'The API key of a client is kept for attestation' });
    }
    this.#use(made);
    return made;
  }

  /** Replaces the key. Gives up a renewal that runs with the old one; one that is needed begins at once. */
  configure(apiKey: string): void {
    this.#held = { value: apiKey, configured: true };
    const failures = this.#outage?.failures ?? 0;
    this.#outage = this.#outage && { ...this.#outage, permanent: undefined };
    if (this.#running !== undefined || failures > 0 || this.current() === undefined) {
      this.#giveUp(new PrivatemodeError('not_ready', 'the API key was replaced'));
      this.#outage = this.#outage && { ...this.#outage, failures: 0 };
      this.#begin();
    }
    this.#announce();
  }

  /** A request waits: a renewal runs from now on, or begins HURRY_INTERVAL after the last failure at the latest. */
  hurry(): void {
    if (this.#running !== undefined) return;
    const now = this.#deps.clock.now();
    const { failures = 0, failedAt = 0 } = this.#outage ?? {};
    const soonest = failedAt + HURRY_INTERVAL;
    const turnedBack = now < failedAt;
    if (failures === 0 || now >= soonest || turnedBack) this.#begin();
    else if (soonest < this.#alarm.due) this.#alarm.set(soonest);
  }

  close(reason: PrivatemodeError): void {
    this.#closing.abort(reason);
    this.#giveUp(reason);
    this.#announce();
  }

  #unexpired(): Epoch | undefined {
    return this.#epoch !== undefined && isUsable(this.#epoch, this.#deps.clock) ? this.#epoch : undefined;
  }

  /** The usable epoch, unless it is time to renew it. */
  #fresh(): Epoch | undefined {
    const usable = this.current();
    return usable !== undefined && this.#deps.clock.now() < usable.renewAt ? usable : undefined;
  }

  /** Starts a renewal that nobody waits for. */
  #begin(): void {
    this.renew().catch(() => {});
  }

  async #attempt(by: HeldKey, signal: AbortSignal): Promise<Epoch> {
    const began = this.#deps.clock.monotonic();
    try {
      const made = await this.#deps.makeEpoch(by.value, signal);
      signal.throwIfAborted();
      this.#running = undefined;
      this.#use(made);
      return made;
    } catch (thrown) {
      // An attempt that was given up has a successor, or the session has ended: it changes nothing any more.
      signal.throwIfAborted();
      this.#running = undefined;
      const error = asPrivatemodeError(thrown);
      this.#fail(error, by, began);
      throw error;
    }
  }

  #giveUp(reason: PrivatemodeError): void {
    this.#running?.abort.abort(reason);
    this.#running = undefined;
    this.#alarm.cancel();
  }

  #use(made: Epoch): void {
    this.#epoch = made;
    this.#isSuspended = false;
    this.#outage = undefined;
    const { secretId, manifestSha256, expiresAt } = made;
    const message = 'Secret updated successfully';
    this.#deps.observe({ type: 'epoch', message, secretId, manifestSha256, expiresAt });
    this.#alarm.set(made.renewAt);
    this.#announce();
  }

  /** `began`: when the renewal began, on the monotonic clock. */
  #fail(error: PrivatemodeError, { configured }: HeldKey, began: number): void {
    const { clock, observe, onPermanent } = this.#deps;
    const { failures: before = 0, permanent } = this.#outage ?? {};
    const failures = before + 1;
    this.#outage = { failures, failedAt: clock.now(), error, permanent };
    const dropped = error.code === 'api_key_rejected' && !configured;
    if (dropped) {
      this.#held = undefined;
      observe({ type: 'key-dropped', message: 'The API key kept from a client is no longer accepted' });
    }
    const hopeless = this.#isPermanent(error, configured);
    const retryIn = dropped ? undefined : this.#pauseAfter(began, failures, hopeless);
    if (retryIn !== undefined) this.#alarm.set(clock.now() + retryIn);
    const permanentNow = hopeless && permanent === undefined && this.#unexpired() === undefined;
    if (permanentNow) {
      this.#outage = { ...this.#outage, permanent: error };
      onPermanent?.(error);
    }
    const message = failureMessage(error, retryIn);
    observe({ type: 'update-failed', message, error, retryIn, permanent: permanentNow });
    this.#announce();
  }

  /** Whether waiting does not help. `configured`: the key is the operator's, not one that a client brought. */
  #isPermanent({ code }: PrivatemodeError, configured: boolean): boolean {
    return code === 'api_key_rejected' ? configured : isSettled(code, this.#deps.manifests.kind);
  }

  /**
   * ms until the next renewal: 1 s, doubling, up to 60 s, the upper half of it at random; what waiting does not cure is tried rarely. It
   * does not begin later than a rejection can be confirmed, since clients wait to hear of it.
   */
  #pauseAfter(began: number, failures: number, hopeless: boolean): number {
    const { clock, refusals, random } = this.#deps;
    const full = hopeless ? LONGEST_BACKOFF : Math.min(LONGEST_BACKOFF, 1000 * 2 ** (failures - 1));
    const pause = full * (0.5 + random() / 2);
    const due = refusals.confirmAt();
    if (due === undefined || began >= due) return pause;
    return Math.min(pause, Math.max(0, due - clock.monotonic()));
  }

  #announce(): void {
    const { resolve } = this.#change;
    this.#change = Promise.withResolvers();
    resolve();
  }
}
