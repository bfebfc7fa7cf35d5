/** The requests that use a session. */
export class Requests {
  /** Whether a request has come since a renewal was last due. */
  haveCome = false;
  /**
   * Wake the requests that wait for a change. Each waits for a promise of its own, because in workers of
   * Cloudflare a promise fails once the request that made it has ended.
   */
  #waiting = new Set<() => void>();

  get areWaiting(): boolean {
    return this.#waiting.size > 0;
  }

  /** `changed` resolves at the next change. Whoever no longer waits for it calls `forget`. */
  change(): { readonly changed: Promise<void>; readonly forget: () => void } {
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#waiting.add(resolve);
    return { changed: promise, forget: () => this.#waiting.delete(resolve) };
  }

  /** What requests may get has changed. */
  wake(): void {
    const woken = this.#waiting;
    this.#waiting = new Set();
    for (const wake of woken) wake();
  }
}
