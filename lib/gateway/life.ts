/** How long an exchange goes on, and how far it has come. */
import type { ServerResponse } from 'node:http';

/** The application went away; nobody is left to answer. */
export class ClientGone extends Error {}

/** How far the response has come. */
export type Phase = 'before_headers' | 'before_first_token' | 'mid_stream';

export class Life {
  /** Aborted when the application has left, or a shutdown ends its patience: whatever still runs for the exchange ends. */
  readonly signal: AbortSignal;
  /** Resolves when the response is complete, or its connection gone. */
  readonly closed: Promise<void>;
  // One controller for each exchange: AbortSignal.any would keep its objects until a full collection (docs/hazards.md 25).
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

  /** Whether we end the connection before the response is complete, on purpose. */
  get broken(): boolean {
    return this.#broken;
  }

  reached(phase: Phase): void {
    this.#phase = phase;
  }

  /** The connection is about to be ended although the response is not complete. */
  markBroken(): void {
    this.#broken = true;
  }

  /** Ends whatever still runs for the exchange, with that reason. */
  abort(reason: Error): void {
    this.#control.abort(reason);
  }
}
