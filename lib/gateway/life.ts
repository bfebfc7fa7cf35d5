/** How long an exchange goes on, and how far it has come. */
import type { ServerResponse } from 'node:http';

/** The application has left, so nobody is there to respond to. */
export class ClientGone extends Error {}

/** How far the response has come. */
export type Phase = 'before_headers' | 'before_first_token' | 'mid_stream';

export class Life {
  /**
   * Aborted when the application has left, or when the grace period of a shutdown is over. Everything that
   * still runs for the exchange ends then.
   */
  readonly signal: AbortSignal;
  /** Resolves when the response is complete, or its connection gone. */
  readonly closed: Promise<void>;
  // One controller for each exchange: AbortSignal.any would keep its objects until a full collection
  // (docs/hazards.md 25).
  readonly #control = new AbortController();
  #phase: Phase = 'before_headers';
  #broken = false;

  constructor(res: ServerResponse) {
    this.signal = this.#control.signal;
    this.closed = new Promise((resolve) => {
      res.once('close', () => {
        if (!res.writableFinished) this.abort(new ClientGone());
        resolve();
      });
    });
  }

  get phase(): Phase {
    return this.#phase;
  }

  /** Whether we break the connection on purpose, before the response is complete. */
  get broken(): boolean {
    return this.#broken;
  }

  reached(phase: Phase): void {
    this.#phase = phase;
  }

  /** Notes that we are about to break the connection, although the response is not complete. */
  markBroken(): void {
    this.#broken = true;
  }

  /** Ends everything that still runs for the exchange. `reason`: the error that it ends with. */
  abort(reason: Error): void {
    this.#control.abort(reason);
  }
}
