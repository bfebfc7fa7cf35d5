/**
 * The limits of clients, and the interface of the two counters of requests and tokens: this process
 * (count-requests.ts), or a Redis that several instances share (redis-counts.ts).
 */
import type { ClientEntry, Limits } from '../access/clients-file.ts';
import { PrivatemodeError } from '../errors.ts';

/** The client for which a request is counted. */
export type LimitedClient = Pick<ClientEntry, 'name' | 'limits'>;

/** The place of a running request. */
export interface Permit {
  /** Called once, when the request is over. `tokens`: input and output, as the service counted them, or 0. */
  release(tokens: number): void;
}

export interface RequestCounts {
  /**
   * Counts a request and gives it a place; returns the permit at once if no store has to be asked. Throws, or
   * rejects with, requests_per_minute_reached, tokens_per_day_reached or max_concurrent_reached: these errors
   * hold the seconds after which a retry is worthwhile. If the store cannot be used, the error is
   * limits_unavailable. A refused request is not counted.
   */
  admit(client: LimitedClient): Permit | Promise<Permit>;
}

/** Whether a value from a store is a number of requests, tokens or ms: whole, exact and not negative. */
export const isCount = (value: unknown): value is number =>
  Number.isSafeInteger(value) && (value as number) >= 0;

const LIMITS = {
  tokensPerDay: ['tokens_per_day_reached', 'tokens per day (UTC)'],
  requestsPerMinute: ['requests_per_minute_reached', 'requests per minute'],
  maxConcurrent: ['max_concurrent_reached', 'requests at the same time'],
} as const satisfies Record<keyof Limits, unknown>;

/** The error for a request beyond `limit`. `seconds`: after how long a retry is worthwhile. */
export function limitReached(limit: keyof Limits, limits: Limits, seconds: number): PrivatemodeError {
  const [code, what] = LIMITS[limit];
  return new PrivatemodeError(code, `this client has reached its limit of ${what}: ${limits[limit]}`, {
    retryAfter: Math.max(1, Math.ceil(seconds)),
  });
}
