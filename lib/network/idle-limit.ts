/** How long the service lets a connection idle: what it says, and what it shows by closing connections. */

/** ms; less than services, and the routers before them, wait. */
const RENEW_AFTER = 45_000;
/** ms; a connection that has idled for longer was asleep with the machine, and so were our timers. */
export const ASLEEP = 2 * RENEW_AFTER;
/** ms; a shorter time limit is not followed, since handshakes would never end. */
export const SHORTEST_RENEWAL = 2_000;
/** The part of a time limit of the service that is made use of. */
const SAFE_PART = 0.8;
/** ms for which what was learned of the service's time limit holds. */
const LEARNED_FOR = 600_000;
/** ms; connections closed within that time of each other were closed by a restart and not by a time limit. */
const TOGETHER = 1_000;

const NONE = Number.POSITIVE_INFINITY;

export class IdleLimit {
  #announced = NONE;
  #learned = { limit: NONE, at: 0 };
  #lastClose = { age: 0, at: 0 };

  /** ms of idling after which a connection is replaced. */
  renewAfter(): number {
    const learned = Date.now() - this.#learned.at < LEARNED_FOR ? this.#learned.limit : NONE;
    const safe = SAFE_PART * Math.min(this.#announced, learned);
    return Math.min(RENEW_AFTER, Math.max(SHORTEST_RENEWAL, safe));
  }

  /** The service said for how many ms it keeps idle connections. */
  announce(ms: number): void {
    this.#announced = ms;
  }

  /** The service closed a connection that had idled for `age` ms. Two closed at about the same age, one after the other, show a time limit. */
  learnFrom(age: number): void {
    const [previous, at] = [this.#lastClose, Date.now()];
    this.#lastClose = { age, at };
    const alike = Math.abs(age - previous.age) < age / 5 && at - previous.at > TOGETHER;
    if (alike) this.#learned = { limit: Math.min(age, previous.age), at };
  }
}
