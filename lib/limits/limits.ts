/**
 * Defines the limits of clients, and the interface of two counters of requests and tokens: in this process
 * (count-requests.ts), or in a Redis that several instances share (redis-counts.ts).
 */
import type { ClientEntry, Limits } from '../access/clients-file.ts';
import { PrivatemodeError } from '../errors.ts';

/** The name and the limits of the client for which a request is counted. */
export type LimitedClient = Pick<ClientEntry, 'name' | 'limits'>;

/** Holds the place of a running request. */
export interface Permit {
  /** Called once when the request is over. `tokens`: input and output tokens counted by the service, or 0. */
  release(tokens: number): void;
}

export interface RequestCounts {
  /**
   * Counts a request and gives it a place. Returns the permit at once if no store has to be queried. Throws
   * or rejects with requests_per_minute_reached, tokens_per_day_reached or max_concurrent_reached. These
   * errors hold the seconds after which a retry makes sense. If the store cannot be used, the error is
   * limits_unavailable. A refused request is not counted.
   */
  admit(client: LimitedClient): Permit | Promise<Permit>;
}

/** Whether a value from a store is a count of requests, tokens or ms: an exact integer, at least 0. */
export const isCount = (value: unknown): value is number =>
  Number.isSafeInteger(value) && (value as number) >= 0;

const LIMITS = {
  tokensPerDay: ['tokens_per_day_reached', 'tokens per day (UTC)'],
  requestsPerMinute: ['requests_per_minute_reached', 'requests per minute'],
  maxConcurrent: ['max_concurrent_reached', 'requests at the same time'],
} as const satisfies Record<keyof Limits, unknown>;

/** The error for a request that exceeds `limit`. `seconds`: the time after which a retry makes sense. */
export function limitReached(limit: keyof Limits, limits: Limits, seconds: number): PrivatemodeError {
  const [code, what] = LIMITS[limit];
  return new PrivatemodeError(code, `this client has reached its limit of ${what}: ${limits[limit]}`, {
    retryAfter: Math.max(1, Math.ceil(seconds)),
  });
}
